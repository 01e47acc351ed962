// The engine's pure parts one by one, on a clock that the test moves.

#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/limits.h"
#include "router/admission.h"
#include "router/errors.h"
#include "router/shards/agreement.h"
#include "router/shards/ledger.h"
#include "router/shards/supervisor_client.h"
#include "router/shards/vitals.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

StepAnswer Answer(StepNumber step, std::initializer_list<uint32_t> ids, bool from_rank_0,
                  Epoch epoch = 3) {
  StepAnswer answer;
  answer.response.set_epoch(epoch);
  answer.response.set_step(step);
  for (uint32_t id : ids) answer.response.add_ids(id);
  answer.response.set_ids_hash(HashIds(answer.response.ids()));
  if (!from_rank_0) answer.response.clear_ids();
  return answer;
}

TEST_CASE("HashIds is FNV-1a of the little-endian bytes", "[router][engine]") {
  google::protobuf::RepeatedField<uint32_t> ids;
  CHECK(HashIds(ids) == 0x811C9DC5u);
  ids.Add(0x64636261);  // "abcd"
  CHECK(HashIds(ids) == 0xCE3479BDu);
}

TEST_CASE("The ledger gives rank 0's answers in step order", "[router][engine]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  ledger.Sent(1, 10);
  ledger.Sent(2, 20);
  CHECK(ledger.OwesSinceUs(0) == 10);
  REQUIRE(ledger.Answered(0, Answer(2, {7}, true)).ok());
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(0, Answer(1, {5}, true)).ok());
  CHECK(ledger.OwesSinceUs(0) == 0);
  CHECK(ledger.OwesSinceUs(1) == 10);
  CHECK(ledger.TakeNext()->response.step() == 1);
  CHECK(ledger.TakeNext()->response.step() == 2);
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(1, Answer(1, {5}, false)).ok());
  REQUIRE(ledger.Answered(1, Answer(2, {7}, false)).ok());
  CHECK(ledger.in_flight() == 0);
}

TEST_CASE("The ledger holds answers back while a rank is more than two steps behind",
          "[router][engine]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  for (StepNumber step = 1; step <= 3; ++step) {
    ledger.Sent(step, 0);
    REQUIRE(ledger.Answered(0, Answer(step, {1}, true)).ok());
  }
  CHECK(ledger.TakeNext()->response.step() == 1);
  CHECK(ledger.TakeNext()->response.step() == 2);
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(1, Answer(1, {1}, false)).ok());
  CHECK(ledger.TakeNext()->response.step() == 3);
}

TEST_CASE("The ledger refuses answers that cannot be", "[router][engine]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  ledger.Sent(1, 0);
  CHECK(!ledger.Answered(0, Answer(1, {1}, true, 2)).ok());
  CHECK(!ledger.Answered(0, Answer(2, {1}, true)).ok());
  StepAnswer wrong = Answer(1, {1}, true);
  wrong.response.set_ids_hash(5);
  CHECK(!ledger.Answered(0, wrong).ok());
  REQUIRE(ledger.Answered(0, Answer(1, {1}, true)).ok());
  CHECK(!ledger.Answered(0, Answer(1, {1}, true)).ok());
  CHECK(!ledger.Answered(1, Answer(1, {2}, false)).ok());
}

TEST_CASE("A silent process is hung only when it uses no CPU time", "[router][engine]") {
  constexpr int64_t kTimeoutUs = 1'000'000;
  ShardVitals vitals;
  vitals.Restart(0);
  int64_t cpu_us = 700'000;
  const ProcessCpuReader reader = [&cpu_us](uint64_t) { return cpu_us; };
  CHECK(!vitals.ProcessHung(100'000, kTimeoutUs, 1, &reader));
  cpu_us = 800'000;  // what it did before it fell silent does not count
  CHECK(!vitals.ProcessHung(300'000, kTimeoutUs, 1, &reader));
  CHECK(!vitals.ProcessHung(999'999, kTimeoutUs, 1, &reader));
  CHECK(vitals.ProcessHung(1'000'000, kTimeoutUs, 1, &reader));
  cpu_us = 900'000;  // slow: it worked
  CHECK(!vitals.ProcessHung(1'000'000, kTimeoutUs, 1, &reader));
  CHECK(!vitals.ProcessHung(1'799'999, kTimeoutUs, 1, &reader));
  CHECK(vitals.ProcessHung(1'800'000, kTimeoutUs, 1, &reader));
  const ProcessCpuReader gone = [](uint64_t) { return std::nullopt; };
  vitals.OnStep(3'000'000);
  CHECK(!vitals.ProcessHung(3'999'999, kTimeoutUs, 1, &gone));
  CHECK(vitals.ProcessHung(4'000'000, kTimeoutUs, 1, &gone));
  CHECK(vitals.ProcessHung(4'000'000, kTimeoutUs, 1, nullptr));
}

TEST_CASE("A device thread is hung when it owes a step and neither beats nor works",
          "[router][engine]") {
  constexpr int64_t kTimeoutUs = 1'000'000;
  ShardVitals vitals;
  vitals.Restart(0);
  wire::InfoResponse info;
  info.set_heartbeat_age_us(0);
  info.set_cpu_time_us(1000);
  vitals.OnInfo(info, 100'000);
  CHECK(!vitals.DeviceHung(5'000'000, kTimeoutUs, 0, true));  // owes nothing
  CHECK(vitals.DeviceHung(1'100'000, kTimeoutUs, 50'000, true));
  CHECK(!vitals.DeviceHung(1'100'000, kTimeoutUs, 200'000, true));  // owes it since a short time
  info.set_heartbeat_age_us(900'000);
  info.set_cpu_time_us(600'000);  // it computes
  vitals.OnInfo(info, 1'000'000);
  CHECK(!vitals.DeviceHung(1'100'000, kTimeoutUs, 50'000, true));
}

TEST_CASE("A process that waits for an accelerator is not alive for its CPU time",
          "[router][engine]") {
  constexpr int64_t kTimeoutUs = 2'000'000;
  constexpr int64_t kInfoUs = 200'000;
  ShardVitals vitals;
  vitals.Restart(0);
  wire::InfoResponse info;
  // A step is launched at 0 and within its allowance for three seconds; then it is over due. The
  // wait takes a tenth of a core.
  int64_t hung_us = 0;
  for (int64_t now_us = kInfoUs; hung_us == 0 && now_us < 20'000'000; now_us += kInfoUs) {
    info.set_heartbeat_age_us(now_us < 3'000'000 ? 0 : static_cast<uint64_t>(now_us));
    info.set_cpu_time_us(static_cast<uint64_t>(now_us / 10));
    vitals.OnInfo(info, now_us);
    if (vitals.DeviceHung(now_us, kTimeoutUs, 1, /*works_on_cpu=*/false)) hung_us = now_us;
  }
  CHECK(hung_us > 3'000'000);
  CHECK(hung_us <= 3'000'000 + kTimeoutUs + kInfoUs);
  CHECK(!vitals.DeviceHung(hung_us, kTimeoutUs, 1, /*works_on_cpu=*/true));
}

TEST_CASE("The CPU time of this process can be read", "[router][engine]") {
  CHECK(ReadProcessCpuUs(static_cast<uint64_t>(getpid())).has_value());
  CHECK(!ReadProcessCpuUs(uint64_t{1} << 40).has_value());
}

std::vector<wire::InfoResponse> Infos(uint32_t world) {
  std::vector<wire::InfoResponse> infos(world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    wire::InfoResponse& info = infos[rank];
    info.set_protocol_version(kShardProtocolVersion);
    info.set_rank(rank);
    info.set_world(world);
    info.set_spec_hash(9);
    info.add_kv_groups()->set_block_tokens(16);
    info.set_running_max(64 - rank);
    info.set_step_tokens_max(512 + rank);
    info.set_context_tokens(1000);
    info.add_isa_supported("avx512");
    info.add_isa_supported("avx2");
  }
  return infos;
}

TEST_CASE("Shards agree on the best instruction set all have and the smallest sizes",
          "[router][engine]") {
  std::vector<wire::InfoResponse> infos = Infos(3);
  infos[1].clear_isa_supported();
  infos[1].add_isa_supported("avx2");
  const absl::StatusOr<GroupAgreement> agreement = Agree(infos);
  REQUIRE(agreement.ok());
  CHECK(agreement->isa == "avx2");
  CHECK(agreement->running_max == 62);
  CHECK(agreement->step_tokens_max == 512);
}

TEST_CASE("Shards that do not fit are named with what was expected and found", "[router][engine]") {
  const auto error = [](const std::function<void(std::vector<wire::InfoResponse>&)>& change) {
    std::vector<wire::InfoResponse> infos = Infos(2);
    change(infos);
    return std::string(Agree(infos).status().message());
  };
  CHECK(error([](auto& i) { i[1].set_spec_hash(1); }) == "shard 1: spec hash: expected 9, found 1");
  CHECK(error([](auto& i) { i[1].set_rank(0); }) == "shard 1: rank: expected 1, found 0");
  CHECK(absl::StartsWith(error([](auto& i) { i[0].set_world(1); }),
                         "shard 0: number of shards: expected 2, found 1"));
  CHECK(
      absl::StrContains(error([](auto& i) { i[1].set_protocol_version(99); }), "protocol version"));
  CHECK(absl::StrContains(error([](auto& i) { i[1].mutable_build()->set_revision("x"); }),
                          "revision"));
  CHECK(absl::StrContains(error([](auto& i) {
                            i[1].clear_isa_supported();
                            i[1].add_isa_supported("neon");
                          }),
                          "instruction set"));
}

TEST_CASE("A permit gives back what it took, wherever its request was", "[router][engine]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/1, /*queue_tokens_max=*/10},
                      &clock);
  auto first = admission.Enter();
  auto second = admission.Enter();
  REQUIRE(first.ok());
  REQUIRE(second.ok());  // a free running place is a place in the queue
  CHECK(ErrorReason(admission.Enter().status()) == "QUEUE_FULL");
  REQUIRE(first->AddTokens(100).ok());  // alone in the queue
  CHECK(ErrorReason(second->AddTokens(1)) == "QUEUE_TOKENS_FULL");
  first->MarkRunning();
  first->MarkRunning();
  CHECK(admission.running() == 1);
  CHECK(admission.waiting() == 1);
  REQUIRE(second->AddTokens(1).ok());
  CHECK(ErrorReason(admission.Enter().status()) == "QUEUE_FULL");
  *first = Admission::Permit();
  second->Release();
  second->Release();
  CHECK(admission.running() == 0);
  CHECK(admission.waiting() == 0);
  admission.Close(UnavailableError("DRAINING", "bye", absl::Seconds(1)));
  CHECK(ErrorReason(admission.Enter().status()) == "DRAINING");
  admission.Open();
  CHECK(admission.Enter().ok());
}

TEST_CASE("Retry-After follows the rate at which requests leave", "[router][engine]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/4, 1000}, &clock);
  std::vector<Admission::Permit> waiting;
  for (int i = 0; i < 5; ++i) {
    auto permit = admission.Enter();
    permit->MarkRunning();
    clock.AdvanceUs(4'000'000);
  }
  for (int i = 0; i < 5; ++i) waiting.push_back(*admission.Enter());
  const absl::Status full = admission.Enter().status();
  CHECK(RetryAfter(full) == absl::Seconds(20));  // five wait, one leaves every 4 s
}

TEST_CASE("Lengths are checked against the longest request", "[router][engine]") {
  ManualClock clock(1);
  Admission admission({}, &clock);
  admission.SetRequestTokensMax(100);
  CHECK(admission.OutputTokens(60, std::nullopt).value() == 40);
  CHECK(admission.OutputTokens(60, 40).value() == 40);
  CHECK(ErrorField(admission.OutputTokens(60, 41).status()) == "max_tokens");
  CHECK(ErrorField(admission.OutputTokens(100, 1).status()) == "prompt");
}

TEST_CASE("The supervisor's lines are read and written as the protocol says", "[router][engine]") {
  CHECK(RestartLine(2, 77, "broken\nchannel") == "restart 2 77 broken channel\n");
  CHECK(RestartLine(2, 77, std::string(5000, 'x')).size() == 1024);
  ShardDeath death;
  REQUIRE(ParseDiedLine("died 3 41", &death).ok());
  CHECK(death.rank == 3);
  CHECK(death.pid == 41);
  for (const char* bad : {"died", "died 1", "died x 2", "died 1 2 3", "lived 1 2", ""}) {
    CHECK(!ParseDiedLine(bad, &death).ok());
  }
}

}  // namespace
}  // namespace weft::router
