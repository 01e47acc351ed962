#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "router/observe/probe.h"

namespace weft::router {
namespace {

// The series of weft_cache_config_info that say 1.
std::set<std::string> Current(Probe& probe) {
  std::set<std::string> series;
  const std::string text = probe.Render();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "weft_cache_config_info{") && absl::EndsWith(line, " 1")) {
      series.insert(std::string(line.substr(0, line.size() - 2)));
    }
  }
  return series;
}

TEST_CASE("Of the KV pools that groups have had only the last one's series says 1",
          "[router][probe]") {
  Probe probe;
  probe.CacheConfig(16, 4001, true);
  const std::set<std::string> first = Current(probe);
  REQUIRE(first.size() == 1);
  CHECK(absl::StrContains(*first.begin(), "num_blocks=\"4001\""));
  probe.CacheConfig(16, 3001, true);
  const std::set<std::string> second = Current(probe);
  REQUIRE(second.size() == 1);
  CHECK(absl::StrContains(*second.begin(), "num_blocks=\"3001\""));
  probe.CacheConfig(16, 4001, true);
  CHECK(Current(probe) == first);
}

}  // namespace
}  // namespace weft::router
