#include "deploy/launcher/shard_progress.h"

#include <catch2/catch.hpp>

namespace weft::launcher {
namespace {

TEST_CASE("Progress lines of shards become one line for a person", "[launcher]") {
  ShardProgress progress(2);
  CHECK(progress.Line().empty());
  CHECK(progress.OnLine(1, "loading 1500000000 2000000000 1000000"));
  CHECK(progress.Line() == "shard-0 starting   shard-1 [###############.....]  75 %  1.50 GB/s");
  CHECK(progress.OnLine(0, "loading 0 0 0"));
  CHECK(progress.OnLine(1, "loaded"));
  CHECK(progress.Line() == "shard-0 [....................]   0 %  0.00 GB/s   shard-1 ready");
}

TEST_CASE("Other lines and other shards are not taken for progress", "[launcher]") {
  ShardProgress progress(1);
  for (const char* line : {"", "loading", "loading 1 2", "loading a b c", "loading 1 2 3 4",
                           "metrics on http://127.0.0.1:1/metrics"}) {
    INFO(line);
    CHECK_FALSE(progress.OnLine(0, line));
  }
  CHECK_FALSE(progress.OnLine(1, "loaded"));
  CHECK(progress.Line().empty());
  // More than was announced is no overflow of the bar.
  CHECK(progress.OnLine(0, "loading 30 20 10"));
  CHECK(progress.Line().find("100 %") != std::string::npos);
}

}  // namespace
}  // namespace weft::launcher
