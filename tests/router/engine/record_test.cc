// --record in a whole engine: what it wrote is played again to the bit, whatever happened to the
// shards, and a disk that fills up costs no request anything.

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/recording/part_writer.h"
#include "router/recording/parts.h"
#include "router/recording/replay.h"
#include "tests/common/temp_dir.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

RigOptions SmallRig(const std::string& path) {
  RigOptions options;
  // Fewer blocks than the streams take together: some are preempted.
  options.shape.kv_blocks = 60;
  options.shape.running_max = 8;
  options.shape.step_tokens_max = 64;
  options.engine.step_tokens_max = 64;
  options.engine.running_max = 8;
  options.engine.record.path = path;
  options.step_us = 300;
  return options;
}

// Streams with shared beginnings, one in six cancelled; every other one gets its tokens.
void RunStreams(EngineRig& rig, uint64_t first) {
  std::vector<std::shared_ptr<FakeSink>> sinks;
  std::vector<GenerateInput> inputs;
  for (uint64_t i = first; i < first + 24; ++i) {
    GenerateInput input = MakeInput(i % 5, 40, 30 + static_cast<uint32_t>(i % 7));
    std::vector<TokenId> more = MakePrompt(i, i % 40);
    auto& prompt = std::get<std::vector<TokenId>>(input.prompt);
    prompt.insert(prompt.end(), more.begin(), more.end());
    inputs.push_back(input);
    sinks.push_back(rig.Submit(input));
  }
  for (size_t i = 0; i < sinks.size(); i += 6) {
    sinks[i]->WaitTokens(1);
    sinks[i]->Cancel(CancelReason::kClientGone);
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitEnd();
    if (i % 6 == 0) continue;
    INFO(sinks[i]->status().ToString());
    CHECK(sinks[i]->ids() == rig.Expected(inputs[i]));
  }
}

TEST_CASE("What an engine recorded is played again to the bit, lost groups and all",
          "[engine][recording]") {
  const test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  RigOptions options = SmallRig(path);
  options.engine.record.part_bytes = 2500;
  {
    EngineRig rig(options);
    rig.WaitReady();
    const Grown grown(rig.probe(), {"weft_num_preemptions_total"});
    RunStreams(rig, 0);
    std::vector<std::shared_ptr<FakeSink>> open;
    for (uint64_t i = 0; i < 4; ++i) open.push_back(rig.Submit(MakeInput(i, 50, 200)));
    for (const auto& sink : open) sink->WaitTokens(5);
    rig.RestartShard(0);
    for (const auto& sink : open) sink->WaitEnd();
    RunStreams(rig, 100);
    CHECK(grown("weft_num_preemptions_total") > 0);
    rig.engine().Shutdown();
  }
  recording::ReplayReport report;
  const absl::Status status = recording::Replay(path, &report);
  INFO(status.ToString());
  REQUIRE(status.ok());
  INFO(report.difference);
  CHECK(report.difference == "");
  CHECK(report.complete);
  CHECK(report.plans > 100);
  CHECK(report.states > 3);
  for (const std::string& part : report.parts) {
    recording::ReplayReport alone;
    REQUIRE(recording::Replay(part, &alone).ok());
    CHECK(alone.difference == "");
  }
}

TEST_CASE("A recording holds no token of a prompt or an answer", "[engine][recording]") {
  const test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  const std::string secret = "the quick brown fox jumps over the lazy dog, again and again!";
  {
    EngineRig rig(SmallRig(path));
    rig.WaitReady();
    GenerateInput input = MakeInput(1, 1, 40);
    input.prompt = std::vector<TokenId>(secret.begin(), secret.end());
    const auto sink = rig.Submit(input);
    sink->WaitEnd();
    REQUIRE(sink->status().ok());
    rig.engine().Shutdown();
  }
  const std::string bytes = test::ReadFile(path + ".1");
  CHECK(bytes.size() > 200);
  // Ids of this model are bytes: neither three of them in a row nor three as 32 bits each.
  for (size_t i = 0; i + 3 <= secret.size(); ++i) {
    std::string wide;
    for (const char c : secret.substr(i, 3)) wide += std::string(1, c) + std::string(3, '\0');
    CHECK(!absl::StrContains(bytes, secret.substr(i, 3)));
    CHECK(!absl::StrContains(bytes, wide));
  }
}

TEST_CASE("A disk that is full costs no stream a token", "[engine][recording]") {
  const test::TempDir dir;
  RigOptions options = SmallRig(dir.path() + "/rec");
  options.engine.record.part_bytes = 3000;
  options.engine.record.create_part = [](const std::string& path) {
    return absl::EndsWith(path, ".1") ? recording::CreatePart(path)
                                      : open("/dev/full", O_WRONLY | O_CLOEXEC);
  };
  {
    EngineRig rig(options);
    rig.WaitReady();
    RunStreams(rig, 0);
    RunStreams(rig, 100);
    rig.CheckClean();
  }
  recording::ReplayReport report;
  REQUIRE(recording::Replay(options.engine.record.path, &report).ok());
  CHECK(report.difference == "");
  CHECK(!report.complete);
  CHECK(report.plans > 0);
}

}  // namespace
}  // namespace weft::router
