// The memory plan is what the runner then holds; flags that cannot work are refused by name.

#include <catch2/catch.hpp>

#include "shard/device/cpu/step_rows.h"
#include "shard/kv/memory_plan.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

DecoderSpec SmallSpec() {
  DecoderSpec spec;
  spec.layers = 3;
  spec.hidden = 72;
  spec.heads = 9;
  spec.kv_heads = 3;
  spec.head_dim = 16;
  spec.mlp_hidden = 128;
  spec.vocab = 199;
  spec.context_tokens = 256;
  spec.rope.dims = 16;
  return spec;
}

MemoryFlags SmallFlags() {
  MemoryFlags flags;
  flags.kv_memory_bytes = 1 << 20;
  flags.running_max = 8;
  flags.step_tokens_max = 64;
  return flags;
}

TEST_CASE("Every rank plans the same number of blocks, and all pools fit the flag",
          "[shard][compute][memory]") {
  const DecoderSpec spec = SmallSpec();
  for (uint32_t world = 1; world <= 4; ++world) {
    uint64_t total_bytes = 0;
    uint32_t blocks = 0;
    for (Rank rank = 0; rank < world; ++rank) {
      const SlicePlan slice = *MakeSlicePlan(spec, rank, world, 1);
      const auto plan = PlanMemory(spec, slice, 1, TensorType::kBf16, 1000, SmallFlags());
      REQUIRE(plan.ok());
      if (rank == 0) blocks = plan->kv_blocks;
      CHECK(plan->kv_blocks == blocks);
      CHECK(plan->kv_bytes == uint64_t{blocks} * plan->kv_block_bytes);
      // 16 tokens, 3 layers, K and V, two bytes a number.
      CHECK(plan->kv_block_bytes == 16ull * 3 * 2 * 2 * slice.kv_heads.size() * spec.head_dim);
      total_bytes += plan->kv_bytes;
    }
    CHECK(blocks > 0);
    CHECK(total_bytes <= SmallFlags().kv_memory_bytes);
  }
}

TEST_CASE("The pool never exceeds all sequences at full length", "[shard][compute][memory]") {
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = uint64_t{1} << 40;
  const DecoderSpec spec = SmallSpec();
  const auto plan = PlanMemory(spec, *MakeSlicePlan(spec, 0, 1, 1), 1, TensorType::kBf16, 0, flags);
  REQUIRE(plan.ok());
  CHECK(plan->kv_blocks == 8 * 256 / 16);
}

TEST_CASE("A pool that holds no block is refused, naming the flag", "[shard][compute][memory]") {
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = 1000;
  const DecoderSpec spec = SmallSpec();
  const auto plan = PlanMemory(spec, *MakeSlicePlan(spec, 0, 1, 1), 1, TensorType::kBf16, 0, flags);
  CHECK(plan.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(plan.status().message()), Catch::Contains("--kv-memory 1000"));
}

TEST_CASE("Number types resolve from the flags and the files", "[shard][compute][memory]") {
  const auto quantised = ResolveTypes(NumberType::kAuto, NumberType::kAuto, TensorType::kQ4_1);
  CHECK(quantised->activation == NumberType::kBfloat16);
  CHECK(quantised->kv == NumberType::kFloat16);
  const auto wide = ResolveTypes(NumberType::kAuto, NumberType::kAuto, TensorType::kF16);
  CHECK(wide->activation == NumberType::kFloat32);
  CHECK(wide->kv == NumberType::kFloat32);
  const auto mixed = ResolveTypes(NumberType::kFloat32, NumberType::kBfloat16, TensorType::kQ4_0);
  CHECK(mixed->activation == NumberType::kFloat32);
  CHECK(mixed->kv == NumberType::kBfloat16);
  const auto refused = ResolveTypes(NumberType::kFloat16, NumberType::kAuto, TensorType::kF16);
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("--dtype float16"));
  CHECK(ParseNumberType("bfloat16").value() == NumberType::kBfloat16);
  CHECK_THAT(std::string(ParseNumberType("int8").status().message()), Catch::Contains("int8"));
}

TEST_CASE("The runner refuses an instruction set it does not have", "[shard][compute][memory]") {
  GroupOptions options;
  options.model = test::GoldenModelPath("llama_q4_1");
  options.isa = "avx9000";
  CHECK_THROWS_WITH(RankGroup(options), Catch::Contains("avx9000") && Catch::Contains("portable"));
}

TEST_CASE("The runner's weights take the bytes of their slices", "[shard][compute][memory]") {
  GroupOptions options;
  options.model = test::GoldenModelPath("llama_tied_llama3");
  RankGroup group(options);
  const MemoryPlan& memory = group.cpu(0).memory();
  const uint64_t exact = group.spec().parameters() * sizeof(float);
  CHECK(memory.weights_bytes >= exact);
  // Padding of tiles and of inputs to blocks, in a model this small.
  CHECK(memory.weights_bytes < exact * 3 / 2);
  CHECK(memory.kv_blocks == group.kv_blocks());

  // Rounded to bfloat16 they take half.
  options.dtype = NumberType::kBfloat16;
  RankGroup narrow(options);
  CHECK(narrow.cpu(0).memory().weights_bytes < memory.weights_bytes * 6 / 10);
}

StepBatch OneRow(uint32_t start) {
  StepBatch batch;
  batch.ids = {1};
  batch.block_ids = {0, 1};
  StepSequence sequence;
  sequence.token_count = 1;
  sequence.start = start;
  sequence.block_count = 2;
  batch.sequences.push_back(sequence);
  return batch;
}

TEST_CASE("A step that breaks its limits is refused before it touches memory",
          "[shard][compute][memory]") {
  StepRows rows(StepRowsLimits{4, 2, 100, 64, 2});
  auto none = [](Slot) { return kNoToken; };
  CHECK(rows.Build(OneRow(31), none).ok());
  CHECK_FALSE(rows.Build(OneRow(32), none).ok());  // Beyond its block table.
  StepBatch batch = OneRow(0);
  batch.block_ids[1] = 2;
  CHECK_FALSE(rows.Build(batch, none).ok());
  batch = OneRow(0);
  batch.ids[0] = 100;
  CHECK_FALSE(rows.Build(batch, none).ok());
  batch = OneRow(0);
  batch.sequences[0].slot = 2;
  CHECK_FALSE(rows.Build(batch, none).ok());
  batch = OneRow(0);
  batch.sequences[0].from_last_sample = true;
  CHECK_FALSE(rows.Build(batch, none).ok());
  batch = OneRow(0);
  batch.ids.resize(5);
  CHECK_FALSE(rows.Build(batch, none).ok());
}

}  // namespace
}  // namespace weft::shard
