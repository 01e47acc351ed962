#include "shard/device/cuda/memory_plan.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/limits.h"
#include "shard/device/cuda/planning.h"
#include "shard/device/cuda/runner.h"
#include "shard/weights/loader.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;
PlannedGpu Gpu(uint64_t total, uint64_t used) {
  return {"test", total, used, absl::NotFoundError("a test's")};
}

MemoryFlags Defaults() {
  MemoryFlags flags;
  flags.kv_memory_bytes = 0;
  flags.running_max = kRunningDefaultCuda;
  flags.step_tokens_max = kStepTokensDefaultCuda;
  return flags;
}

std::unique_ptr<ModelFiles> Shape(const std::string& name) {
  auto files = ModelFiles::OpenShape(test::GoldenPath("../bench/shapes/") + name);
  REQUIRE(files.ok());
  return *std::move(files);
}

absl::StatusOr<MemoryPlan> Plan(const ModelFiles& files, uint32_t rank, uint32_t world,
                                const MemoryFlags& flags, const PlannedGpu& gpu) {
  const auto slice = MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple());
  REQUIRE(slice.ok());
  return PlanCudaRank(files.spec(), *slice, flags, gpu);
}

TEST_CASE("The environment makes CUDA load kernels before they are launched", "[cuda][plan]") {
  unsetenv("CUDA_MODULE_LOADING");
  PrepareCudaEnvironment();
  REQUIRE(std::getenv("CUDA_MODULE_LOADING") != nullptr);
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "EAGER");
  CHECK(std::string(std::getenv("NCCL_NVLS_ENABLE")) == "0");
}

TEST_CASE("A GPU's plan adds up and stays within its share", "[cuda_plan]") {
  const auto files = Shape("llama-3.1-8b");
  for (const uint32_t world : {1, 2, 4, 8}) {
    for (const double fraction : {0.5, 0.9, 0.99}) {
      CAPTURE(world, fraction);
      MemoryFlags flags = Defaults();
      flags.memory_fraction = fraction;
      // So little that the pool is bounded by memory, not by sequences.
      const PlannedGpu gpu = Gpu(48 * kGib, kGib);
      const auto plan = Plan(*files, world - 1, world, flags, gpu);
      REQUIRE(plan.ok());
      const auto usable = static_cast<uint64_t>(std::floor(48.0 * kGib * fraction));
      CHECK(plan->total_bytes() == plan->weights_bytes + plan->workspace_bytes + plan->kv_bytes);
      CHECK(plan->kv_bytes == uint64_t{plan->kv_blocks} * plan->kv_block_bytes);
      CHECK(plan->device_used_bytes + plan->total_bytes() <= usable);
      // Not a block more would fit.
      CHECK(plan->device_used_bytes + plan->total_bytes() + plan->kv_block_bytes > usable);
      CHECK(plan->left_bytes() + plan->total_bytes() + plan->device_used_bytes ==
            plan->device_bytes);
      CHECK(plan->kv_block_tokens == kKvBlockTokensCuda);
    }
  }
}

TEST_CASE("The plan holds what NCCL takes after the pool", "[cuda_plan]") {
  const auto files = Shape("llama-3.2-1b");
  MemoryFlags flags = Defaults();
  // Next to nothing else is left in the workspace.
  flags.running_max = 8;
  flags.step_tokens_max = 64;
  const auto alone = Plan(*files, 0, 1, flags, Gpu(141 * kGib, kGib));
  REQUIRE(alone.ok());
  CHECK(NcclBytes(1) == 0);
  for (const uint32_t world : {2, 4, 8}) {
    CAPTURE(world);
    const auto plan = Plan(*files, 0, world, flags, Gpu(141 * kGib, kGib));
    REQUIRE(plan.ok());
    CHECK(plan->workspace_bytes >= alone->workspace_bytes / 2 + NcclBytes(world));
    CHECK(NcclBytes(world) >= NcclBytes(world / 2));
  }
}

TEST_CASE("Counted rows of experts are in the plan, of a model that has any", "[cuda_plan]") {
  const PlannedGpu gpu = Gpu(141 * kGib, kGib);
  MemoryFlags counting = Defaults();
  counting.expert_load = true;
  const auto latent = Shape("deepseek-v2-lite");
  const auto without = Plan(*latent, 0, 1, Defaults(), gpu);
  const auto with = Plan(*latent, 0, 1, counting, gpu);
  REQUIRE((without.ok() && with.ok()));
  const DecoderSpec& spec = latent->spec();
  CHECK(with->workspace_bytes >=
        without->workspace_bytes + spec.layers * spec.experts.count * sizeof(uint64_t));
  const auto plain = Shape("llama-3.2-1b");
  CHECK(Plan(*plain, 0, 1, counting, gpu)->workspace_bytes ==
        Plan(*plain, 0, 1, Defaults(), gpu)->workspace_bytes);
}

TEST_CASE("Latent attention on a GPU keeps one row a token on every rank", "[cuda_plan]") {
  const auto files = Shape("deepseek-v2-lite");
  const DecoderSpec& spec = files->spec();
  for (const uint32_t world : {1, 2, 4}) {
    CAPTURE(world);
    const auto plan = Plan(*files, 0, world, Defaults(), Gpu(141 * kGib, kGib));
    REQUIRE(plan.ok());
    CHECK(plan->kv_block_bytes == uint64_t{2} * spec.layers * (512 + 64) * kKvBlockTokensCuda);
  }
  const auto slice = MakeSlicePlan(spec, 0, 1, 1);
  DecoderSpec odd = spec;
  odd.latent.plain_dim = 12;
  const absl::Status status = PlanCudaRank(odd, *slice, Defaults(), Gpu(141 * kGib, kGib)).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(), "heads' parts without rotation of 12 elements"));
}

TEST_CASE("An embedding of another width stands between whole matrices on every rank",
          "[cuda_plan]") {
  const auto files = Shape("llama-3.1-8b");
  const DecoderSpec& spec = files->spec();
  DecoderSpec narrow = spec;
  narrow.embedding_dim = spec.hidden / 2;
  for (const uint32_t world : {1, 4}) {
    CAPTURE(world);
    const auto slice = MakeSlicePlan(spec, 0, world, 1);
    const auto wide = PlanCudaRank(spec, *slice, Defaults(), Gpu(141 * kGib, kGib));
    const auto plan = PlanCudaRank(narrow, *slice, Defaults(), Gpu(141 * kGib, kGib));
    REQUIRE((wide.ok() && plan.ok()));
    // Half of embedding and head is gone, and both projections came, two bytes a number.
    const uint64_t projections = uint64_t{2} * 2 * spec.hidden * narrow.embedding_dim;
    const uint64_t rows = uint64_t{2} * 2 * slice->vocab.size() * narrow.embedding_dim;
    CHECK(plan->weights_bytes == wide->weights_bytes - rows + projections);
    // What the embedding made, in float32.
    CHECK(plan->workspace_bytes >
          wide->workspace_bytes + uint64_t{4} * kStepTokensDefaultCuda * narrow.embedding_dim - 1);
  }
  narrow.embedding_dim = 12;
  const auto slice = MakeSlicePlan(spec, 0, 1, 1);
  const absl::Status status =
      PlanCudaRank(narrow, *slice, Defaults(), Gpu(141 * kGib, kGib)).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(),
                          "embedding size 12: CUDA shards serve multiples of 8; use --device cpu"));
}

TEST_CASE("Weights and KV of a GPU have the sizes that the shape says", "[cuda_plan]") {
  const auto files = Shape("llama-3.1-8b");
  const DecoderSpec& spec = files->spec();
  for (const uint32_t world : {1, 2, 4, 8}) {
    CAPTURE(world);
    const auto plan = Plan(*files, 0, world, Defaults(), Gpu(141 * kGib, kGib));
    REQUIRE(plan.ok());
    // Two bytes a parameter; norms are on every rank, padding comes on top.
    const double share = 2.0 * static_cast<double>(spec.parameters()) / world;
    CHECK(static_cast<double>(plan->weights_bytes) >= share);
    CHECK(static_cast<double>(plan->weights_bytes) < 1.01 * share);
    CHECK(plan->kv_block_bytes == uint64_t{2} * 2 * spec.layers * spec.kv_heads / world *
                                      spec.head_dim * kKvBlockTokensCuda);
    CHECK(plan->types.activation == NumberType::kBfloat16);
  }
  MemoryFlags wide = Defaults();
  wide.dtype = NumberType::kFloat32;
  const auto half = Plan(*files, 0, 1, Defaults(), Gpu(141 * kGib, 0));
  const auto full = Plan(*files, 0, 1, wide, Gpu(141 * kGib, 0));
  REQUIRE((half.ok() && full.ok()));
  CHECK(full->kv_block_bytes == 2 * half->kv_block_bytes);
  CHECK(full->weights_bytes == 2 * half->weights_bytes);
}

TEST_CASE("Too little device memory names what is needed and what would fit", "[cuda_plan]") {
  const auto files = Shape("llama-3.1-8b");
  const PlannedGpu gpu = Gpu(141 * kGib, kGib);
  MemoryFlags flags = Defaults();
  flags.memory_fraction = 0.05;
  const auto refused = Plan(*files, 0, 1, flags, gpu);
  REQUIRE(refused.status().code() == absl::StatusCode::kResourceExhausted);
  const std::string said(refused.status().message());
  CAPTURE(said);
  for (const char* const word :
       {"--memory-fraction 0.05", "144384 MiB", "needs ", "weights ", "workspace ", "KV block",
        "in use already 1024 MiB", "more shards", "--step-tokens-max", "--running-max"}) {
    CHECK(absl::StrContains(said, word));
  }
  // What it proposes works, and a hundredth less does not.
  const std::string proposal = "It fits with --memory-fraction ";
  REQUIRE(absl::StrContains(said, proposal));
  double fraction = 0;
  REQUIRE(absl::SimpleAtod(said.substr(said.find(proposal) + proposal.size(), 4), &fraction));
  flags.memory_fraction = fraction;
  CHECK(Plan(*files, 0, 1, flags, gpu).ok());
  flags.memory_fraction = fraction - 0.01;
  CHECK_FALSE(Plan(*files, 0, 1, flags, gpu).ok());

  const auto huge = Plan(*Shape("llama-3.1-70b"), 0, 1, Defaults(), Gpu(80 * kGib, kGib));
  REQUIRE(huge.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(absl::StrContains(huge.status().message(), "No --memory-fraction"));
  CHECK(absl::StrContains(huge.status().message(), "more shards"));
  CHECK(Plan(*Shape("llama-3.1-70b"), 0, 4, Defaults(), Gpu(80 * kGib, kGib)).ok());
}

TEST_CASE("The pool of all GPUs together is bounded by --kv-memory", "[cuda_plan]") {
  const auto files = Shape("llama-3.2-1b");
  MemoryFlags flags = Defaults();
  flags.kv_memory_bytes = 4 * kGib;
  for (const uint32_t world : {1, 2, 4}) {
    CAPTURE(world);
    const auto plan = Plan(*files, 0, world, flags, Gpu(141 * kGib, kGib));
    REQUIRE(plan.ok());
    CHECK(plan->kv_bytes <= 4 * kGib / world);
    CHECK(plan->kv_bytes + plan->kv_block_bytes > 4 * kGib / world);
  }
  flags.kv_memory_bytes = 1000;
  const auto none = Plan(*files, 0, 2, flags, Gpu(141 * kGib, kGib));
  CHECK(none.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(absl::StrContains(none.status().message(), "--kv-memory"));
}

TEST_CASE("A plan's line for the log has its sums", "[cuda_plan]") {
  MemoryPlan plan;
  plan.weights_bytes = 10 * kGib;
  plan.workspace_bytes = kGib;
  plan.kv_block_bytes = kGib;
  plan.kv_blocks = 5;
  plan.kv_block_tokens = 64;
  plan.kv_bytes = 5 * kGib;
  CHECK(Describe(plan) ==
        "memory plan: weights 10240 MiB, workspace 1024 MiB, KV pool 5120 MiB (320 tokens), "
        "together 16384 MiB");
  plan.device_bytes = 20 * kGib;
  plan.device_used_bytes = kGib;
  CHECK(absl::EndsWith(Describe(plan), " of 20480 MiB; in use before 1024 MiB, left 3072 MiB"));
}

}  // namespace
}  // namespace weft::shard
