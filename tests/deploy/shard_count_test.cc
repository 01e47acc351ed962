#include "deploy/launcher/shard_count.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cuda/planning.h"

namespace weft::launcher {
namespace {

// A host with so many GPUs.
auto Gpus(uint32_t count) {
  return [count](uint32_t index) {
    return index < count ? absl::OkStatus() : absl::NotFoundError("this process sees no GPU");
  };
}

TEST_CASE("Replicas without GPUs of their own are refused with the number that would work",
          "[launcher]") {
  CHECK(CheckGpus("cuda", 2, Gpus(8), 4).ok());
  CHECK(CheckGpus("cuda", 2, Gpus(7), 4).message() ==
        "--replicas 4: with --shards 2 they take 8 GPUs, and this host shows 7; use --replicas 3, "
        "or --device cpu, or see CUDA_VISIBLE_DEVICES");
}

TEST_CASE("More shards than GPUs are refused with how many there are", "[launcher]") {
  CHECK(CheckGpus("cuda", 2, Gpus(2)).ok());
  CHECK(CheckGpus("auto", 2, Gpus(8)).ok());
  for (const char* device : {"auto", "cuda"}) {
    const absl::Status status = CheckGpus(device, 4, Gpus(2));
    INFO(status);
    CHECK(absl::StrContains(status.message(), "--shards 4: each shard takes a GPU"));
    CHECK(absl::StrContains(status.message(), "this host shows 2; use --shards 2"));
  }
  // Without GPUs auto means the CPU, and cuda means an error.
  CHECK(CheckGpus("auto", 4, Gpus(0)).ok());
  CHECK(absl::StrContains(CheckGpus("cuda", 4, Gpus(0)).message(), "--device cuda"));
  CHECK(CheckGpus("cpu", 64, Gpus(1)).ok());
  // A GPU that cannot be used is named, not counted.
  const auto old = [](uint32_t index) {
    return index == 0 ? absl::OkStatus() : absl::FailedPreconditionError("GPU 1 is too old");
  };
  CHECK(absl::StrContains(CheckGpus("auto", 2, old).message(), "GPU 1 is too old"));
}

TEST_CASE("Memory in which the processes cannot be is refused before one is started",
          "[launcher]") {
  ServeOptions options;
  options.shards = 2;
  const uint64_t bytes = shard::HostProcessBytes(2);
  // Router and shards; with CUDA's libraries more for the launcher and for each shard.
  CHECK(bytes >> 20 == (shard::CudaIsBuilt().ok() ? 492 : 192));
  CHECK(CheckProcessMemory({0, "RAM"}, options).ok());
  CHECK(CheckProcessMemory({bytes, "RAM"}, options).ok());
  const absl::Status status = CheckProcessMemory({bytes - 1, "RAM"}, options);
  INFO(status);
  CHECK(absl::StartsWith(status.message(),
                         absl::StrCat("launcher, router and 2 shards take ", bytes >> 20, " MiB")));
  CHECK(absl::StrContains(status.message(), "MiB RAM: raise the limit"));
  options.replicas = 2;
  CHECK_FALSE(CheckProcessMemory({2 * bytes - 1, "RAM"}, options).ok());
  CHECK(CheckProcessMemory({2 * bytes, "RAM"}, options).ok());
}

TEST_CASE("More shards than a model has heads are refused before one is started", "[launcher]") {
  const std::string model = WEFT_SOURCE_DIR "/tests/goldens/llama_nine_heads_f16";
  ServeOptions options;
  options.shard.device = "cpu";
  for (const uint32_t shards : {1u, 2u, 9u}) {
    options.shards = shards;
    CHECK(CheckShardCount(model, options).ok());
  }
  options.shards = 12;
  const absl::Status status = CheckShardCount(model, options);
  INFO(status);
  CHECK(absl::StrContains(status.message(), "--shards: "));
  CHECK(absl::StrContains(status.message(), "12 shards are too many: the model has 9 query heads"));
  CHECK(absl::StrContains(status.message(), "1 to 9 shards would work"));
  CHECK_FALSE(CheckShardCount("/no/such/model", options).ok());
}

}  // namespace
}  // namespace weft::launcher
