// The whole forward on a GPU: the tiny models and the demo model against transformers and against
// the CPU.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/shard/device/cpu/golden_check.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

// Before the first call of CUDA. Several ranks are threads of this process: a kernel that is loaded
// when it is first launched may wait for its device to be idle, which a device that waits for
// another rank's launch never is.
const bool loads_eagerly = setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0;

// Ends the process when its scope takes longer: a rank that waits for another hangs for good.
class TimeLimit {
 public:
  explicit TimeLimit(unsigned int seconds) {
    signal(SIGALRM, [](int) {
      constexpr char kMessage[] = "FAILED: a case ran longer than its time limit\n";
      (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
      _exit(1);
    });
    alarm(seconds);
  }
  ~TimeLimit() { alarm(0); }
};

GroupOptions OnGpu(NumberType dtype) {
  GroupOptions options;
  options.cuda = true;
  options.dtype = dtype;
  options.threads = 4;
  return options;
}

TEST_CASE("Tiny models agree with transformers on a GPU", "[cuda][model]") {
  for (const std::string& name : test::GoldenModels()) {
    DYNAMIC_SECTION(name << " in float32") {
      GroupOptions options = OnGpu(NumberType::kFloat32);
      options.model = test::GoldenModelPath(name);
      CheckModel(name, options);
    }
    DYNAMIC_SECTION(name << " in bfloat16") {
      GroupOptions options = OnGpu(NumberType::kBfloat16);
      options.model = test::GoldenModelPath(name);
      CheckModel(name, options, Bfloat16Error(name), /*greedy=*/false);
    }
  }
}

int Gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

TEST_CASE("Tiny models agree with transformers on two to four GPUs", "[cuda][model][gpus]") {
  if (Gpus() < 2) test::SkipTest("gpus", "there is " + std::to_string(Gpus()));
  REQUIRE(loads_eagerly);
  // Of one model, every section begins here anew.
  const TimeLimit limit(120);
  // Uneven heads, biases, packed weights, learned positions, both halves of a layer side by side,
  // norms of heads, latents; the others differ in what one GPU shows. Not in bfloat16:
  // its sums' kernels wait on their devices for other ranks' launches, which calls of the same
  // process can hold up for good (seen with three ranks). tests/gpu/serve_test.py has it with a
  // process for each rank.
  for (int world = 2; world <= std::min(4, Gpus()); ++world) {
    for (const std::string name : {"llama_nine_heads_f16", "llama_biased", "llama_q4_1", "gpt2",
                                   "gpt_neox", "qwen3", "deepseek_v3"}) {
      DYNAMIC_SECTION(name << " on " << world) {
        GroupOptions options = OnGpu(NumberType::kFloat32);
        options.model = test::GoldenModelPath(name);
        options.world = static_cast<uint32_t>(world);
        CheckModel(name, options);
      }
    }
  }
}

TEST_CASE("A step that has ended counts although the one behind it was cut short",
          "[cuda][model]") {
  if (Gpus() < 2) test::SkipTest("gpus", "there is " + std::to_string(Gpus()));
  REQUIRE(loads_eagerly);
  const TimeLimit limit(120);
  GroupOptions options = OnGpu(NumberType::kBfloat16);
  options.model = test::GoldenModelPath("llama_nine_heads_f16");
  options.world = 2;
  RankGroup group(options);
  StepMaker maker = group.Maker();
  maker.Start(0, SamplingParams{});
  maker.Chunk(0, {1, 2, 3}, true);
  const StepBatch first = maker.Take();
  maker.Decode(0);
  const StepBatch second = maker.Take();
  // Rank 1 never comes to the second step, and rank 0 waits for it on its device.
  absl::StatusOr<StepResult> theirs = absl::UnknownError("not run");
  std::thread rank1([&] { theirs = group.rank(1).Run(first); });
  REQUIRE(group.rank(0).Launch(first).ok());
  REQUIRE(group.rank(0).Launch(second).ok());
  rank1.join();
  REQUIRE(theirs.ok());
  // A first Abort() ends what waits on the host and in sums over ranks. The second step's gathering
  // of logits waits in NCCL, which only a later Abort() ends, so they are repeated as the executor
  // does until the device rests. Then all that rank 0 launched has ended, and the second step has
  // said how before the first one is taken.
  absl::Notification rested;
  std::thread aborting([&] {
    do {
      group.rank(0).Abort();
    } while (!rested.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  });
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const cudaError_t rest = cudaDeviceSynchronize();
  rested.Notify();
  aborting.join();
  REQUIRE(rest == cudaSuccess);
  const absl::StatusOr<StepResult> mine = group.rank(0).Take();
  INFO(mine.status().ToString());
  REQUIRE(mine.ok());
  CHECK(mine->ids == theirs->ids);
  CHECK_FALSE(group.rank(0).Take().ok());
  CHECK(group.rank(0).device_status().ok());
}

TEST_CASE("The demo model in float32 on a GPU continues as transformers", "[cuda][model][demo]") {
  const Agreement agreement = CompareDemo(OnGpu(NumberType::kFloat32), 1e-3);
  CHECK(agreement.cases == 50);
  CHECK(agreement.unexplained == 0);
}

TEST_CASE("The demo model in bfloat16 on a GPU mostly continues as in float32",
          "[cuda][model][demo]") {
  // Its weights, in four bits in the file, are rounded to bfloat16 as well: on an H200 37 of them
  // stay equal to the last token.
  const Agreement agreement = CompareDemo(OnGpu(NumberType::kBfloat16), 0.5);
  CHECK(agreement.cases == 50);
  CHECK(agreement.equal >= 34);
  CHECK(agreement.unexplained == 0);
}

// Top log-probabilities after `ids`, put in as chunks of `chunk` tokens, beside `neighbours` other
// sequences that decode.
std::vector<float> LogprobsAfter(RankGroup& group, const std::vector<TokenId>& ids, uint32_t chunk,
                                 uint32_t neighbours) {
  SamplingParams sampling;
  sampling.logprobs = true;
  sampling.top_logprobs = kTopLogprobsMax;
  StepMaker maker = group.Maker();
  for (uint32_t slot = 1; slot <= neighbours; ++slot) {
    maker.Start(slot, SamplingParams{});
    maker.Chunk(slot, std::vector<TokenId>(slot * 5, slot), true);
    (void)group.Run(maker.Take());
  }
  maker.Start(0, sampling);
  StepResult result;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const size_t end = std::min(ids.size(), begin + chunk);
    for (uint32_t slot = 1; slot <= neighbours; ++slot) maker.Decode(slot);
    maker.Chunk(0, std::vector<TokenId>(ids.begin() + begin, ids.begin() + end), end == ids.size());
    result = group.Run(maker.Take());
  }
  for (uint32_t slot = 0; slot <= neighbours; ++slot) maker.Drop(slot);
  (void)group.Run(maker.Take());
  REQUIRE(result.logprobs.size() == 1);
  std::vector<float> values = {result.logprobs[0].logprob};
  for (const auto& [id, logprob] : result.logprobs[0].top) {
    values.push_back(static_cast<float>(id));
    values.push_back(logprob);
  }
  return values;
}

TEST_CASE("Deterministic: chunks, neighbours and decoding change no bit", "[cuda][model]") {
  for (const std::string name : {"llama_nine_heads_f16", "llama_q4_1", "llama_biased"}) {
    DYNAMIC_SECTION(name) {
      GroupOptions options = OnGpu(NumberType::kBfloat16);
      options.model = test::GoldenModelPath(name);
      options.deterministic = true;
      options.running_max = 40;
      RankGroup group(options);
      std::mt19937_64 random(kernels::cuda::testing::Seed());
      std::vector<TokenId> ids(150);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % group.spec().vocab);
      const std::vector<float> alone = LogprobsAfter(group, ids, 150, 0);
      for (const uint32_t chunk : {1u, 7u, 64u, 149u}) {
        for (const uint32_t neighbours : {0u, 3u, 20u}) {
          CAPTURE(chunk, neighbours);
          CHECK(LogprobsAfter(group, ids, chunk, neighbours) == alone);
        }
      }
      // Greedy decoding gives what a prompt of the same tokens gives.
      StepMaker maker = group.Maker();
      maker.Start(0, SamplingParams{});
      maker.Chunk(0, ids, true);
      std::vector<TokenId> log = ids;
      for (int i = 0; i < 20; ++i) {
        const TokenId next = group.Run(maker.Take()).ids.at(0);
        log.push_back(next);
        maker.Decode(0);
      }
      (void)maker.Take();
      group.NewEpoch("");
      StepMaker again = group.Maker();
      for (size_t length = ids.size(); length < log.size(); ++length) {
        again.Start(0, SamplingParams{});
        again.Chunk(0, std::vector<TokenId>(log.begin(), log.begin() + length), true);
        CHECK(group.Run(again.Take()).ids.at(0) == log[length]);
        again.Drop(0);
        (void)group.Run(again.Take());
      }
    }
  }
}

// Prompts in chunks beside decoding sequences, sequences that come and go, parameters of all
// kinds: the GPU in float32 samples what the CPU samples.
TEST_CASE("Mixed steps of random sequences agree with the CPU", "[cuda][model]") {
  const uint64_t seed = kernels::cuda::testing::Seed();
  GroupOptions cpu_options;
  cpu_options.model = test::GoldenModelPath("llama_nine_heads_f16");
  cpu_options.running_max = 12;
  GroupOptions gpu_options = OnGpu(NumberType::kFloat32);
  gpu_options.model = cpu_options.model;
  gpu_options.running_max = cpu_options.running_max;
  RankGroup cpu(cpu_options);
  RankGroup gpu(gpu_options);
  StepMaker cpu_maker = cpu.Maker();
  StepMaker gpu_maker = gpu.Maker();
  std::mt19937_64 random(seed);
  const uint32_t vocab = cpu.spec().vocab;
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  // Prompt tokens still to come, and tokens left to decode, of each slot.
  struct Slot {
    bool held = false;
    uint32_t prompt = 0;
    uint32_t decode = 0;
  };
  std::vector<Slot> slots(cpu_options.running_max);
  size_t sampled = 0;
  size_t different = 0;
  for (int step = 0; step < 300; ++step) {
    const auto both = [&](auto call) {
      call(cpu_maker);
      call(gpu_maker);
    };
    for (uint32_t s = 0; s < slots.size(); ++s) {
      if (slots[s].held && slots[s].prompt == 0 && slots[s].decode == 0) {
        both([&](StepMaker& maker) { maker.Drop(s); });
        slots[s] = Slot{};
      }
    }
    for (uint32_t s = 0; s < slots.size(); ++s) {
      if (!slots[s].held || slots[s].prompt > 0) continue;
      --slots[s].decode;
      both([&](StepMaker& maker) { maker.Decode(s); });
    }
    uint32_t budget = below(4) == 0 ? 0 : 100;
    for (uint32_t s = 0; s < slots.size(); ++s) {
      if (budget == 0 || (slots[s].held && slots[s].prompt == 0)) continue;
      if (!slots[s].held) {
        if (below(3) != 0) continue;
        slots[s] = {true, 1 + below(90), 1 + below(40)};
        SamplingParams params;
        params.seed = random();
        const uint32_t kind = below(6);
        if (kind > 0) params.temperature = 0.3f + 0.2f * static_cast<float>(below(5));
        if (kind == 2) params.top_k = 1 + below(20);
        if (kind == 3) params.top_p = 0.7f;
        if (kind == 4) params.min_p = 0.05f;
        if (kind == 5) params.logit_bias = {{below(vocab), 4.0f}, {below(vocab), -100.0f}};
        both([&](StepMaker& maker) { maker.Start(s, params, slots[s].prompt); });
      }
      const uint32_t count = std::min(budget, std::min(slots[s].prompt, 1 + below(50)));
      std::vector<TokenId> ids(count);
      for (TokenId& id : ids) id = below(vocab);
      slots[s].prompt -= count;
      budget -= count;
      both([&](StepMaker& maker) { maker.Chunk(s, ids, slots[s].prompt == 0); });
    }
    const StepResult expected = cpu.Run(cpu_maker.Take());
    const StepResult result = gpu.Run(gpu_maker.Take());
    REQUIRE(result.slots == expected.slots);
    REQUIRE(result.ids.size() == expected.ids.size());
    for (size_t i = 0; i < result.ids.size(); ++i) {
      ++sampled;
      if (result.ids[i] == expected.ids[i]) continue;
      // From here on the two contexts differ: the sequence is of no more use.
      ++different;
      slots[result.slots[i]].prompt = 0;
      slots[result.slots[i]].decode = 0;
    }
  }
  WARN(sampled << " tokens, " << different << " differ");
  CHECK(sampled > 1000);
  // Sums in another order flip a draw now and then.
  CHECK(different <= sampled / 500);
}

}  // namespace
}  // namespace weft::shard
