// Invariant num.row: a row's numbers do not depend on its batch neighbours, on how its prompt was
// cut, on a prefix hit, on prefill versus decode, or on preemption. Compared for equality of every
// log-probability, not for closeness.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr size_t kNewTokens = 20;

// What one sequence saw: its ids and, for each, log-probability and the top ones, bit for bit.
struct Trace {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<std::pair<TokenId, float>> top;

  void Add(const StepResult& result, size_t row) {
    ids.push_back(result.ids.at(row));
    const SampledLogprobs& values = result.logprobs.at(row);
    logprobs.push_back(values.logprob);
    top.insert(top.end(), values.top.begin(), values.top.end());
  }
  bool operator==(const Trace& other) const {
    return ids == other.ids && logprobs == other.logprobs && top == other.top;
  }
};

SamplingParams Sampling(float temperature) {
  SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.seed = 7;
  sampling.repetition_penalty = 1.1f;
  sampling.logprobs = true;
  sampling.top_logprobs = kTopLogprobsMax;
  return sampling;
}

std::vector<TokenId> Prompt(size_t length, uint32_t vocab, uint32_t salt) {
  std::vector<TokenId> ids(length);
  for (size_t i = 0; i < length; ++i) {
    ids[i] = static_cast<TokenId>((i * i * 31 + i * 17 + salt * 101) % vocab);
  }
  return ids;
}

// Drives one slot of a group; other slots may be added to its steps.
struct Rig {
  explicit Rig(const GroupOptions& options) : group(options), maker(group.Maker()) {}

  void Start(Slot slot, const std::vector<TokenId>& ids, size_t prompt_len, float temperature) {
    maker.Start(slot, Sampling(temperature), static_cast<uint32_t>(prompt_len), ids);
  }
  StepResult Run() { return group.Run(maker.Take()); }
  void Drop(Slot slot) {
    maker.Drop(slot);
    (void)Run();
  }
  // `count` more decode rows of slot 0 alone.
  void DecodeAlone(size_t count, Trace* trace) {
    for (size_t i = 0; i < count; ++i) {
      maker.Decode(0);
      trace->Add(Run(), 0);
    }
  }

  RankGroup group;
  StepMaker maker;
};

std::vector<TokenId> Part(const std::vector<TokenId>& ids, size_t begin, size_t end) {
  return std::vector<TokenId>(ids.begin() + begin, ids.begin() + end);
}

Trace Alone(Rig& rig, const std::vector<TokenId>& prompt, float temperature) {
  Trace trace;
  rig.Start(0, prompt, prompt.size(), temperature);
  rig.maker.Chunk(0, prompt, true);
  trace.Add(rig.Run(), 0);
  rig.DecodeAlone(kNewTokens - 1, &trace);
  rig.Drop(0);
  return trace;
}

Trace Chunked(Rig& rig, const std::vector<TokenId>& prompt, float temperature,
              const std::vector<size_t>& cuts) {
  Trace trace;
  rig.Start(0, prompt, prompt.size(), temperature);
  size_t begin = 0;
  for (const size_t cut : cuts) {
    rig.maker.Chunk(0, Part(prompt, begin, cut), false);
    const StepResult result = rig.Run();
    CHECK(result.ids.empty());
    CHECK(result.weight_passes == 1);
    begin = cut;
  }
  rig.maker.Chunk(0, Part(prompt, begin, prompt.size()), true);
  trace.Add(rig.Run(), 0);
  rig.DecodeAlone(kNewTokens - 1, &trace);
  rig.Drop(0);
  return trace;
}

// Neighbours decode and enter with prompts of their own in every step.
Trace Batched(Rig& rig, const std::vector<TokenId>& prompt, float temperature) {
  const uint32_t vocab = rig.group.spec().vocab;
  for (Slot slot = 1; slot <= 3; ++slot) {
    const std::vector<TokenId> other = Prompt(5 + 9 * slot, vocab, slot);
    rig.Start(slot, other, other.size(), slot % 2 == 0 ? 0.0f : 0.9f);
    rig.maker.Chunk(slot, other, true);
  }
  (void)rig.Run();
  Trace trace;
  rig.Start(0, prompt, prompt.size(), temperature);
  for (size_t i = 0; i < kNewTokens; ++i) {
    for (Slot slot = 1; slot <= 3; ++slot) rig.maker.Decode(slot);
    if (i == 0) {
      rig.maker.Chunk(0, prompt, true);
    } else {
      rig.maker.Decode(0);
    }
    // A long prompt of another sequence in the same step, in the middle of its chunks.
    if (i == 4) rig.Start(4, Prompt(60, vocab, 9), 60, 0.0f);
    if (i >= 4 && i < 8) rig.maker.Chunk(4, Prompt(15, vocab, static_cast<uint32_t>(i)), false);
    const StepResult result = rig.Run();
    CHECK(result.weight_passes == 1);
    trace.Add(result, 3);
  }
  for (Slot slot = 0; slot <= 4; ++slot) rig.maker.Drop(slot);
  (void)rig.Run();
  return trace;
}

Trace WithPrefixHit(Rig& rig, const std::vector<TokenId>& prompt, float temperature) {
  // Another sequence has computed the first blocks in chunks of its own.
  const uint32_t shared = static_cast<uint32_t>(prompt.size()) / 16 * 16;
  REQUIRE(shared > 0);
  REQUIRE(shared < prompt.size());
  rig.Start(1, prompt, prompt.size(), 0.0f);
  rig.maker.Chunk(1, Part(prompt, 0, 5), false);
  (void)rig.Run();
  rig.maker.Chunk(1, Part(prompt, 5, shared + 1), true);
  (void)rig.Run();

  Trace trace;
  rig.Start(0, prompt, prompt.size(), temperature);
  rig.maker.SharePrefix(0, 1, shared);
  rig.maker.Chunk(0, Part(prompt, shared, prompt.size()), true);
  trace.Add(rig.Run(), 0);
  rig.DecodeAlone(kNewTokens - 1, &trace);
  rig.Drop(0);
  rig.Drop(1);
  return trace;
}

Trace Preempted(Rig& rig, const std::vector<TokenId>& prompt, float temperature) {
  Trace trace;
  rig.Start(0, prompt, prompt.size(), temperature);
  rig.maker.Chunk(0, prompt, true);
  trace.Add(rig.Run(), 0);
  rig.DecodeAlone(8, &trace);
  rig.Drop(0);
  // Back from the log: prompt and outputs are prefilled, the last output included.
  std::vector<TokenId> log = prompt;
  log.insert(log.end(), trace.ids.begin(), trace.ids.end());
  rig.Start(0, log, prompt.size(), temperature);
  rig.maker.Chunk(0, log, true);
  trace.Add(rig.Run(), 0);
  rig.DecodeAlone(kNewTokens - trace.ids.size(), &trace);
  rig.Drop(0);
  return trace;
}

void CheckRows(const GroupOptions& options) {
  Rig rig(options);
  for (const float temperature : {0.0f, 0.8f}) {
    for (const size_t length : {size_t{37}, size_t{101}}) {
      INFO("temperature " << temperature << ", prompt of " << length);
      const std::vector<TokenId> prompt = Prompt(length, rig.group.spec().vocab, 0);
      const Trace alone = Alone(rig, prompt, temperature);
      CHECK(Alone(rig, prompt, temperature) == alone);
      CHECK(Chunked(rig, prompt, temperature, {1, 8, 15, 16, 17, 33}) == alone);
      std::vector<size_t> every;
      for (size_t i = 1; i < length; ++i) every.push_back(i);
      CHECK(Chunked(rig, prompt, temperature, every) == alone);
      CHECK(Batched(rig, prompt, temperature) == alone);
      CHECK(WithPrefixHit(rig, prompt, temperature) == alone);
      CHECK(Preempted(rig, prompt, temperature) == alone);
    }
  }
}

TEST_CASE("A row's numbers do not depend on how and beside whom it is computed",
          "[shard][compute][num.row][long]") {
  for (const std::string& isa : SupportedInstructionSets()) {
    for (const std::string name :
         {"llama_q4_1", "llama_q8_0", "llama_mixed", "llama_super_blocks", "llama_nine_heads_f16",
          "llama_untied_linear_parts", "mistral_window", "qwen2_window"}) {
      for (const NumberType dtype : {NumberType::kFloat32, NumberType::kBfloat16}) {
        DYNAMIC_SECTION(name << " " << NumberTypeName(dtype) << " " << isa) {
          GroupOptions options;
          options.model = test::GoldenModelPath(name);
          options.dtype = dtype;
          options.isa = isa;
          options.threads = 2;
          CheckRows(options);
        }
      }
    }
  }
}

TEST_CASE("A row's numbers of every family do not depend on how it is computed",
          "[shard][compute][num.row][long]") {
  for (const std::string& name : test::GoldenModels()) {
    DYNAMIC_SECTION(name) {
      GroupOptions options;
      options.model = test::GoldenModelPath(name);
      options.threads = 2;
      CheckRows(options);
    }
  }
}

TEST_CASE("A row's numbers do not depend on its neighbours on several ranks",
          "[shard][compute][num.row]") {
  for (uint32_t world = 2; world <= 4; ++world) {
    DYNAMIC_SECTION(world << " ranks") {
      GroupOptions options;
      options.model = test::GoldenModelPath("llama_q4_1");
      options.world = world;
      options.dtype = NumberType::kAuto;
      CheckRows(options);
    }
  }
}

TEST_CASE("Thread count does not change a row's numbers", "[shard][compute][num.row]") {
  std::vector<Trace> traces;
  for (const uint32_t threads : {1u, 2u, 5u}) {
    GroupOptions options;
    options.model = test::GoldenModelPath("llama_nine_heads_f16");
    options.threads = threads;
    Rig rig(options);
    traces.push_back(Alone(rig, Prompt(150, rig.group.spec().vocab, 3), 0.7f));
  }
  CHECK(traces[0] == traces[1]);
  CHECK(traces[0] == traces[2]);
}

TEST_CASE("A new epoch forgets slots and gives the same numbers", "[shard][compute]") {
  GroupOptions options;
  options.model = test::GoldenModelPath("llama_q4_1");
  options.world = 2;
  Rig rig(options);
  const std::vector<TokenId> prompt = Prompt(50, rig.group.spec().vocab, 1);
  const Trace first = Alone(rig, prompt, 0.9f);
  rig.group.NewEpoch("");
  CHECK(Alone(rig, prompt, 0.9f) == first);
  // The slot holds nothing at the start of an epoch.
  rig.group.NewEpoch("");
  rig.maker.Decode(0);
  CHECK_THROWS_WITH(rig.Run(), Catch::Contains("token id outside the vocabulary"));
}

}  // namespace
}  // namespace weft::shard
