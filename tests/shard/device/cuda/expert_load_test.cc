// The rows that experts get on a GPU (--expert-load), against those on the CPU, which its own test
// holds against a routing by hand.

#include "shard/expert_load.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr int kDecodeSteps = 12;

GroupOptions Counting(const std::string& model, bool cuda) {
  GroupOptions options;
  options.model = test::GoldenModelPath(model);
  options.cuda = cuda;
  options.threads = 2;
  options.expert_load = true;
  return options;
}

std::vector<uint64_t> ReadLoad(RankGroup& group) {
  const auto rows = group.rank(0).expert_load()->Read();
  INFO(rows.status().ToString());
  REQUIRE(rows.ok());
  return *rows;
}

// Prompts in chunks and together, then steps of three sequences, which a graph pads to four rows,
// and of two. Every sampled id, in order.
std::vector<TokenId> RunSteps(RankGroup& group) {
  std::vector<TokenId> ids;
  StepMaker maker = group.Maker();
  const auto run = [&] {
    const StepResult result = group.Run(maker.Take());
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
  };
  for (Slot slot = 0; slot < 3; ++slot) maker.Start(slot, SamplingParams{});
  maker.Chunk(0, {3, 14, 15, 92, 65}, false);
  run();
  maker.Chunk(0, {35, 89, 79}, true);
  maker.Chunk(1, {3, 23, 84, 62, 64, 33, 83, 27, 95}, true);
  maker.Chunk(2, {28, 84, 19, 71}, true);
  run();
  for (int step = 0; step < kDecodeSteps; ++step) {
    for (Slot slot = 0; slot < 3; ++slot) maker.Decode(slot);
    run();
  }
  maker.Drop(2);
  for (int step = 0; step < kDecodeSteps; ++step) {
    for (Slot slot = 0; slot < 2; ++slot) maker.Decode(slot);
    run();
  }
  for (const Slot slot : {0, 1}) maker.Drop(slot);
  run();
  return ids;
}

TEST_CASE("A GPU counts the rows of experts as the CPU does", "[cuda][model][experts]") {
  // Softmax, biases that keep the products apart, and groups with a plain layer in front.
  for (const std::string model : {"qwen3_moe", "gpt_oss", "deepseek_v2"}) {
    DYNAMIC_SECTION(model) {
      RankGroup cpu(Counting(model, false));
      RankGroup gpu(Counting(model, true));
      REQUIRE(gpu.rank(0).expert_load() != nullptr);
      CHECK(gpu.rank(0).expert_load()->layers() == cpu.rank(0).expert_load()->layers());
      // The warm-up, which captures graphs, does not count.
      const std::vector<uint64_t> none = ReadLoad(gpu);
      CHECK(std::count(none.begin(), none.end(), 0) == static_cast<ptrdiff_t>(none.size()));
      REQUIRE(RunSteps(gpu) == RunSteps(cpu));
      const std::vector<uint64_t> first = ReadLoad(gpu);
      CHECK(first == ReadLoad(cpu));
      // Neither does that of another epoch, and what was counted before it stays.
      gpu.NewEpoch("");
      CHECK(ReadLoad(gpu) == first);
      (void)RunSteps(gpu);
      (void)RunSteps(cpu);
      CHECK(ReadLoad(gpu) == ReadLoad(cpu));
    }
  }
}

TEST_CASE(
    "Who reads the rows of experts sees them grow while steps run, and after the device's end",
    "[cuda][model][experts]") {
  auto group = std::make_unique<RankGroup>(Counting("qwen3_moe", true));
  const std::shared_ptr<ExpertLoad> load = group->rank(0).expert_load();
  REQUIRE(load != nullptr);
  std::atomic<bool> done{false};
  std::atomic<int> bad{0};
  std::thread reader([&] {
    std::vector<uint64_t> before(load->layers().size() * load->experts(), 0);
    while (!done) {
      const auto now = load->Read();
      if (!now.ok()) {
        ++bad;
        return;
      }
      for (size_t i = 0; i < before.size(); ++i) bad += (*now)[i] < before[i] ? 1 : 0;
      before = *now;
    }
  });
  for (int round = 0; round < 20; ++round) (void)RunSteps(*group);
  done = true;
  reader.join();
  CHECK(bad == 0);
  const std::vector<uint64_t> last = ReadLoad(*group);
  CHECK(std::accumulate(last.begin(), last.end(), uint64_t{0}) > 0);
  group.reset();
  const auto after = load->Read();
  REQUIRE(after.ok());
  CHECK(*after == last);
}

TEST_CASE("A GPU counts no rows of experts unasked", "[cuda][model][experts]") {
  GroupOptions options = Counting("qwen3_moe", true);
  options.expert_load = false;
  CHECK(RankGroup(options).rank(0).expert_load() == nullptr);
}

}  // namespace
}  // namespace weft::shard
