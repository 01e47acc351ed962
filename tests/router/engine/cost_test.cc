// What a streamed token costs the router's own threads, beside the budget of 2 us at 256 rows; and
// that shards do not wait for them.

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"
#include "tests/router/engine/engine_rig.h"
#include "tests/support/thread_times.h"

namespace weft::router {
namespace {

using testing::ThreadTimes;
using testing::ThreadTimesByName;

// How long the threads that a step passes have waited for a CPU so far, microseconds.
double WaitedUs() {
  double waited_us = 0;
  for (const auto& [name, times] : ThreadTimesByName()) {
    const bool on_the_way = name == "engine" || name == "mock-device" ||
                            absl::StartsWith(name, "grpc") || absl::StartsWith(name, "default-exe");
    if (on_the_way) waited_us += times.waited_us;
  }
  return waited_us;
}

// With `record`, the scheduler's events are recorded there.
void MeasureTokens(const std::string& record) {
  constexpr uint32_t kRows = 256;
  constexpr uint32_t kTokens = 300;
  RigOptions options;
  options.shape.running_max = kRows;
  options.shape.kv_blocks = kRows * 24;
  options.engine.running_max = kRows;
  options.engine.record.path = record;
  options.step_us = 4000;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < kRows; ++i) sinks.push_back(rig.Submit(MakeInput(i, 12, kTokens)));
  for (auto& sink : sinks) sink->WaitTokens(20);
  const uint64_t bytes_before = rig.shard(0).stats().request_bytes;
  const std::map<std::string, ThreadTimes> before = ThreadTimesByName();
  size_t tokens_before = 0;
  for (auto& sink : sinks) tokens_before += sink->tokens().size();
  for (auto& sink : sinks) sink->WaitTokens(kTokens - 10);
  const std::map<std::string, ThreadTimes> after = ThreadTimesByName();
  size_t tokens = 0;
  for (auto& sink : sinks) tokens += sink->tokens().size();
  tokens -= tokens_before;
  const uint64_t bytes = rig.shard(0).stats().request_bytes - bytes_before;
  double own_us = 0;
  std::ostringstream report;
  for (const auto& [name, times] : after) {
    const auto it = before.find(name);
    const double used_us = times.cpu_us - (it == before.end() ? 0 : it->second.cpu_us);
    report << name << " " << used_us / static_cast<double>(tokens) << " us a token\n";
    const bool is_own = name == "engine" || name == "record" || name.rfind("text-", 0) == 0;
    if (is_own) own_us += used_us;
  }
  const double us_a_token = own_us / static_cast<double>(tokens);
  const double bytes_a_row = static_cast<double>(bytes) / static_cast<double>(tokens);
  WARN((record.empty() ? "" : "recorded: ")
       << tokens << " tokens; engine and text threads " << us_a_token << " us a token; "
       << bytes_a_row << " bytes to the shard a row\n"
       << report.str());
  CHECK(bytes_a_row <= 32);
  // Ten times the budget: this machine may be busy; the number above is the measurement.
  CHECK(us_a_token <= 20);
  for (auto& sink : sinks) sink->WaitEnd();
  rig.CheckClean();
}

TEST_CASE("A token costs the engine and text threads microseconds", "[router][engine][slow]") {
  MeasureTokens("");
}

TEST_CASE("A token that is recorded costs them hardly more", "[router][engine][slow][recording]") {
  const test::TempDir dir;
  MeasureTokens(dir.path() + "/rec");
}

TEST_CASE("The shards never wait for a slow router", "[router][engine][slow]") {
  RigOptions options;
  options.step_us = 10'000;
  // Replies of a shard of this host come on the engine loop's thread.
  options.engine.make_shard_client = [](Rank rank, const std::string& address, const ShardTls& tls,
                                        const ShardReplySink& sink, Poller* poller,
                                        const Clock* clock) {
    const auto late = [sink](ShardReply reply) {
      const bool is_step = reply.call == ShardCall::kPrefill || reply.call == ShardCall::kDecode;
      if (is_step) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      sink(std::move(reply));
    };
    return MakeShardClient(rank, address, tls, late, poller, clock);
  };
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 32; ++i) sinks.push_back(rig.Submit(MakeInput(i, 12, 200)));
  sinks[31]->WaitTokens(5);
  rig.shard(0).ResetBusy();
  const double waited_before_us = WaitedUs();
  sinks[0]->WaitTokens(190);
  const testing::MockShardStats stats = rig.shard(0).stats();
  const double waited_us = WaitedUs() - waited_before_us;
  const auto span_us = static_cast<double>(stats.span_us);
  const auto starved_us = static_cast<double>(stats.starved_us);
  WARN("free and without a step for " << starved_us << " us, in steps for " << stats.busy_us
                                      << " us of " << span_us << " us; threads waited for a CPU "
                                      << waited_us << " us");
  // What a busy machine takes from the router's and the mock's threads is not the router's doing.
  CHECK(starved_us <= 0.02 * span_us + waited_us);
  for (auto& sink : sinks) sink->WaitEnd();
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router
