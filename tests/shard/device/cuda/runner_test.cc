// The runner of one GPU on its own: what it takes at load, and how long its steps may take.

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <memory>

#include "absl/time/clock.h"
#include "shard/device/cuda/runner.h"
#include "shard/model/warmup_batch.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr uint32_t kChunk = 8192;

size_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  REQUIRE(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess);
  return free_bytes;
}

// A runner in an epoch of its own whose steps get nothing beyond their allowance.
std::unique_ptr<CudaModelRunner> MakeLoneRunner() {
  auto files = ModelFiles::OpenShape(test::GoldenPath("../bench/shapes/") + "llama-3.2-1b");
  REQUIRE(files.ok());
  const auto slice = MakeSlicePlan((*files)->spec(), 0, 1, (*files)->mlp_multiple());
  const auto device = FindCudaDevice({0, 0});
  REQUIRE((slice.ok() && device.ok()));
  CudaRunnerOptions options;
  options.memory.kv_memory_bytes = uint64_t{4} << 30;
  options.memory.step_tokens_max = kChunk;
  options.memory.running_max = 16;
  options.device = *device;
  options.step_timeout_us = 0;
  LoadProgress progress;
  const std::atomic<bool> cancel{false};
  auto runner = CreateCudaModelRunner(options, **files, *slice, progress, cancel);
  INFO(runner.status().ToString());
  REQUIRE(runner.ok());
  auto communicator = (*runner)->MakeMeeting()->Meet(
      {1, "", 0, 1, absl::Now() + absl::Seconds(10), absl::Seconds(10), nullptr});
  REQUIRE(communicator.ok());
  REQUIRE((*runner)->BeginEpoch(*std::move(communicator), "").ok());
  return *std::move(runner);
}

TEST_CASE("The KV pool is there when the load has ended", "[cuda][runner]") {
  const size_t before = FreeBytes();
  const auto runner = MakeLoneRunner();
  const MemoryPlan& plan = runner->memory();
  CHECK(before - FreeBytes() >= plan.weights_bytes + plan.kv_bytes);
}

TEST_CASE("Steps queued behind long ones are not late", "[cuda][runner]") {
  const auto runner = MakeLoneRunner();
  const auto warm = runner->Warmup();
  INFO(warm.status().ToString());
  REQUIRE(warm.ok());
  // Far from the start, where a chunk takes many times what the warm-up measured.
  const StepBatch batch =
      MakeWarmupBatch({1, kChunk, 13 * kChunk, false}, {64, warm->kv_blocks, 1});
  CHECK(runner->work_left_us() == 0);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(runner->Launch(batch).ok());
    const int64_t one_us = runner->work_left_us();
    REQUIRE(runner->Launch(batch).ok());
    CHECK(runner->work_left_us() > one_us);
    CHECK(runner->Take().ok());
    CHECK(runner->work_left_us() > 0);
    CHECK(runner->Take().ok());
    CHECK(runner->work_left_us() == 0);
  }
  CHECK(runner->device_status().ok());
  runner->EndEpoch();
}

TEST_CASE("A step that breaks its limits costs itself, and not the device", "[cuda][runner]") {
  const auto runner = MakeLoneRunner();
  const auto warm = runner->Warmup();
  INFO(warm.status().ToString());
  REQUIRE(warm.ok());
  const StepBatch good = MakeWarmupBatch({1, 64, 0, false}, {64, warm->kv_blocks, 1});
  StepBatch bad = good;
  bad.sequences[0].slot = 1000;
  CHECK(absl::IsInvalidArgument(runner->Launch(bad)));
  bad = good;
  bad.starts[0].slot = 1000;
  CHECK(absl::IsInvalidArgument(runner->Launch(bad)));
  CHECK(runner->device_status().ok());
  REQUIRE(runner->Launch(good).ok());
  const auto result = runner->Take();
  REQUIRE(result.ok());
  CHECK(result->invalid_rows.empty());
  runner->EndEpoch();
}

}  // namespace
}  // namespace weft::shard
