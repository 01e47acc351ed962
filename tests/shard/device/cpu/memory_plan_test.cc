// The memory plan is what the runner then holds; flags that cannot work are refused by name.

#include <catch2/catch.hpp>
#include <functional>

#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cpu/step_rows.h"
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
  spec.attention_kinds[0].rope.dims = 16;
  return spec;
}

// Every rank's tensors take `bytes`.
std::function<uint64_t(const SlicePlan&)> Holding(uint64_t bytes) {
  return [bytes](const SlicePlan&) { return bytes; };
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
      const auto plan =
          PlanCpuMemory(spec, slice, 1, TensorType::kBf16, Holding(1000), SmallFlags());
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

TEST_CASE("Latent attention keeps one row a token on every rank", "[shard][compute][memory]") {
  DecoderSpec spec = SmallSpec();
  spec.kv_heads = 1;
  spec.latent = {.rank = 40, .plain_dim = 16, .value_dim = 24};
  spec.head_dim = 56;
  for (uint32_t world = 1; world <= 4; ++world) {
    const SlicePlan slice = *MakeSlicePlan(spec, world - 1, world, 1);
    const auto plan = PlanCpuMemory(spec, slice, 1, TensorType::kBf16, Holding(0), SmallFlags());
    REQUIRE(plan.ok());
    // 16 tokens, 3 layers, no values, two bytes a number.
    CHECK(plan->kv_block_bytes == 16ull * 3 * 2 * 56);
  }
}

TEST_CASE("The pool never exceeds all sequences at full length", "[shard][compute][memory]") {
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = uint64_t{1} << 40;
  const DecoderSpec spec = SmallSpec();
  const auto plan =
      PlanCpuMemory(spec, *MakeSlicePlan(spec, 0, 1, 1), 1, TensorType::kBf16, Holding(0), flags);
  REQUIRE(plan.ok());
  CHECK(plan->kv_blocks == 8 * 256 / 16);
}

TEST_CASE("The pool may hold every sequence at full length in each group of layers",
          "[shard][compute][memory]") {
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = uint64_t{1} << 40;
  DecoderSpec spec = SmallSpec();
  spec.layers = 4;
  spec.attention_kinds.push_back(spec.attention_kinds[0]);
  spec.attention_kinds[1].window_tokens = 64;
  spec.layer_attention = {0, 1, 1, 1};
  const auto plan =
      PlanCpuMemory(spec, *MakeSlicePlan(spec, 0, 1, 1), 1, TensorType::kBf16, Holding(0), flags);
  REQUIRE(plan.ok());
  REQUIRE(plan->kv_groups.count() == 4);
  CHECK(plan->kv_blocks == 4 * 8 * 256 / 16);
  CHECK(plan->kv_capped);
}

TEST_CASE("A pool that holds no block is refused, naming the flag", "[shard][compute][memory]") {
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = 1000;
  const DecoderSpec spec = SmallSpec();
  const auto plan =
      PlanCpuMemory(spec, *MakeSlicePlan(spec, 0, 1, 1), 1, TensorType::kBf16, Holding(0), flags);
  CHECK(plan.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(plan.status().message()), Catch::Contains("--kv-memory 1000"));
}

TEST_CASE("Shards that do not fit into the host's memory are refused with what would fit",
          "[shard][compute][memory]") {
  const DecoderSpec spec = SmallSpec();
  constexpr uint64_t kWeights = 10 << 20;
  MemoryFlags flags = SmallFlags();
  flags.kv_memory_bytes = 4 << 20;
  flags.kv_memory_asked = true;
  const auto plan_of = [&](uint32_t world) {
    return PlanCpuMemory(spec, *MakeSlicePlan(spec, 0, world, 1), 1, TensorType::kBf16,
                         Holding(kWeights), flags);
  };
  // As much as it takes, and a byte less.
  flags.running_max = 64;
  flags.host = {uint64_t{1} << 40, "RAM"};
  const auto roomy = plan_of(2);
  REQUIRE(roomy.ok());
  CHECK(roomy->host_used_bytes >=
        2 * (kWeights + roomy->workspace_bytes) + roomy->kv_bytes + HostProcessBytes(2));
  CHECK_THAT(Describe(*roomy), Catch::Contains("of 1048576 MiB RAM"));
  flags.host.bytes = roomy->host_used_bytes;
  CHECK(plan_of(2).ok());
  flags.host.bytes -= 1;
  const auto refused = plan_of(2);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  const std::string message(refused.status().message());
  INFO(message);
  CHECK_THAT(message, Catch::Contains("2 shards") && Catch::Contains("MiB RAM") &&
                          Catch::Contains("It fits with --kv-memory 3MiB"));
  // What it says works.
  flags.kv_memory_bytes = 3 << 20;
  CHECK(plan_of(2).ok());
  // Without any room for a pool there is no such way out.
  flags.host.bytes = 20 << 20;
  CHECK_THAT(std::string(plan_of(1).status().message()),
             Catch::Contains("No --kv-memory lets it fit"));
}

TEST_CASE("A pool of no size in particular shrinks to what fits into the host's memory",
          "[shard][compute][memory]") {
  const DecoderSpec spec = SmallSpec();
  MemoryFlags flags = SmallFlags();
  flags.running_max = 64;
  flags.kv_memory_bytes = 4 << 20;
  const SlicePlan slice = *MakeSlicePlan(spec, 0, 1, 1);
  const auto whole = PlanCpuMemory(spec, slice, 1, TensorType::kBf16, Holding(0), flags);
  REQUIRE(whole.ok());
  flags.host = {uint64_t{1} << 40, "RAM"};
  flags.host.bytes =
      PlanCpuMemory(spec, slice, 1, TensorType::kBf16, Holding(0), flags)->host_used_bytes -
      (1 << 20);
  const auto cut = PlanCpuMemory(spec, slice, 1, TensorType::kBf16, Holding(0), flags);
  REQUIRE(cut.ok());
  CHECK(cut->kv_blocks < whole->kv_blocks);
  CHECK(cut->kv_blocks > 0);
  CHECK(cut->host_used_bytes <= flags.host.bytes);
  CHECK(cut->kv_bytes_unlimited == whole->kv_bytes);
  CHECK_THAT(Describe(*cut), Catch::Contains("without the limit of memory"));
}

TEST_CASE("Ranks of unequal slices shrink to the same number of blocks",
          "[shard][compute][memory]") {
  const DecoderSpec spec = SmallSpec();
  MemoryFlags flags = SmallFlags();
  flags.running_max = 64;
  flags.kv_memory_bytes = 4 << 20;
  // Nine query heads over two ranks: 5 and 4.
  const auto bytes_of = [](const SlicePlan& slice) {
    return uint64_t{slice.heads.size()} * (12 << 20);
  };
  const auto plan_of = [&](Rank rank) {
    return PlanCpuMemory(spec, *MakeSlicePlan(spec, rank, 2, 1), 1, TensorType::kBf16, bytes_of,
                         flags);
  };
  flags.host = {uint64_t{1} << 40, "RAM"};
  flags.host.bytes = plan_of(0)->host_used_bytes - (1 << 20);
  const auto first = plan_of(0);
  const auto second = plan_of(1);
  REQUIRE((first.ok() && second.ok()));
  CHECK(first->kv_bytes_unlimited > 0);
  CHECK(first->kv_blocks == second->kv_blocks);
  CHECK(first->host_used_bytes == second->host_used_bytes);
}

TEST_CASE("Number types resolve from the flags and the files", "[shard][compute][memory]") {
  const NumberTypes quantised =
      ResolveCpuTypes(NumberType::kAuto, NumberType::kAuto, TensorType::kQ4_1);
  CHECK(quantised.activation == NumberType::kBfloat16);
  CHECK(quantised.kv == NumberType::kFloat16);
  const NumberTypes wide = ResolveCpuTypes(NumberType::kAuto, NumberType::kAuto, TensorType::kF16);
  CHECK(wide.activation == NumberType::kFloat32);
  CHECK(wide.kv == NumberType::kFloat32);
  const NumberTypes mixed =
      ResolveCpuTypes(NumberType::kFloat32, NumberType::kBfloat16, TensorType::kQ4_0);
  CHECK(mixed.activation == NumberType::kFloat32);
  CHECK(mixed.kv == NumberType::kBfloat16);
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

TEST_CASE("Float16 weights are held as the file has them: two bytes each, beside float32 rows",
          "[shard][compute][memory]") {
  GroupOptions options;
  options.model = test::GoldenModelPath("llama_nine_heads_f16");
  options.dtype = NumberType::kAuto;
  RankGroup group(options);
  const MemoryPlan& memory = group.cpu(0).memory();
  CHECK(memory.types.activation == NumberType::kFloat32);
  CHECK(memory.types.kv == NumberType::kFloat32);
  // In float32 they would take twice that.
  const uint64_t exact = group.spec().parameters() * sizeof(uint16_t);
  CHECK(memory.weights_bytes >= exact);
  CHECK(memory.weights_bytes < exact * 3 / 2);
}

StepBatch OneRow(uint32_t start) {
  StepBatch batch;
  batch.ids = {1};
  batch.block_ids = {0, 1};
  StepSequence sequence;
  sequence.token_count = 1;
  sequence.start = start;
  batch.sequences.push_back(sequence);
  batch.tables = {{0, 0, 2}};
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
