// What a group does about shards that fail: whom it has restarted, and how long it waits.

#include "router/shards/failure_policy.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/log_lines.h"

namespace weft::router {
namespace {

class CountingRestarter : public ShardRestarter {
 public:
  void Restart(Rank, uint64_t pid, const std::string&) override { asked.push_back(pid); }
  std::vector<uint64_t> asked;
};

TEST_CASE("A restart is asked for once until a group forms", "[router][shards]") {
  CountingRestarter restarter;
  Probe probe;
  FailurePolicy failures(2, /*first_rank=*/4, &restarter, &probe);
  const auto ask = [&failures](uint64_t pid) {
    failures.AskRestart(1, pid, RestartReason::kTimeout, absl::InternalError("no sign of life"));
  };
  ask(0);
  CHECK(restarter.asked.empty());
  {
    const test::LogLines log;
    ask(7);
    ask(7);
    CHECK(restarter.asked == std::vector<uint64_t>{7});
    // Rank 1 of this group as the launcher counts, to whom it is shard-5.
    CHECK(log.Count("asking for a restart rank=5 pid=7") == 1);
  }
  CHECK(failures.Restarting(1, 7));
  CHECK_FALSE(failures.Restarting(0, 7));
  // The same process serves again, as one whose connection broke and came back: when it is found
  // hung later, it is asked for anew.
  failures.OnFormed(1000);
  CHECK_FALSE(failures.Restarting(1, 7));
  ask(7);
  CHECK(restarter.asked == std::vector<uint64_t>{7, 7});
  // Another process took its place.
  failures.OnReplaced(1, 7, 8);
  CHECK_FALSE(failures.Restarting(1, 7));
  ask(8);
  CHECK(restarter.asked == std::vector<uint64_t>{7, 7, 8});
}

TEST_CASE("Attempts to form a group wait longer each time, up to two seconds, until one forms",
          "[router][shards]") {
  Probe probe;
  FailurePolicy failures(1, /*first_rank=*/0, nullptr, &probe);
  CHECK(failures.MayAttempt(0));
  int64_t now_us = 1000;
  for (const int64_t wait_us :
       {50'000, 100'000, 200'000, 400'000, 800'000, 1'600'000, 2'000'000, 2'000'000}) {
    failures.OnAttemptFailed(now_us);
    CHECK_FALSE(failures.MayAttempt(now_us + wait_us - 1));
    CHECK(failures.MayAttempt(now_us + wait_us));
    now_us += wait_us;
  }
  failures.OnFormed(now_us);
  failures.OnAttemptFailed(now_us);
  CHECK(failures.MayAttempt(now_us + 50'000));
}

}  // namespace
}  // namespace weft::router
