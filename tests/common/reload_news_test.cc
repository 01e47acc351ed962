#include "common/reload_news.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/common/temp_dir.h"

namespace weft {
namespace {

TEST_CASE("A bad content is news once, and a good one after it once", "[common]") {
  using Kind = ReloadNews::Kind;
  const test::TempDir folder;
  const std::string path = folder.Write("keys.json", "garbage");
  ReloadNews news({path}, 100);
  const absl::Status bad = absl::InvalidArgumentError("no JSON");
  CHECK(news.Look(absl::OkStatus()) == Kind::kNone);
  CHECK(news.Look(bad) == Kind::kBad);
  CHECK(news.Look(bad) == Kind::kNone);
  folder.Write("keys.json", "rubbish");
  CHECK(news.Look(bad) == Kind::kBad);
  CHECK(news.Look(absl::NotFoundError("gone")) == Kind::kBad);
  CHECK(news.Look(absl::NotFoundError("gone")) == Kind::kNone);
  CHECK(news.Look(absl::OkStatus()) == Kind::kGoodAgain);
  CHECK(news.Look(absl::OkStatus()) == Kind::kNone);
  CHECK(news.Look(absl::NotFoundError("gone")) == Kind::kBad);
}

}  // namespace
}  // namespace weft
