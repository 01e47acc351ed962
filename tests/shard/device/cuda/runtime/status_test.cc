#include "shard/device/cuda/runtime/status.h"

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>

namespace weft::shard {
namespace {

TEST_CASE("An error that a call has reported is not the next launch's", "[cuda][status]") {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size_t{1} << 50);
  REQUIRE(error == cudaErrorMemoryAllocation);
  CHECK(absl::IsResourceExhausted(CudaStatus(error, "a petabyte")));
  // What the launchers return.
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace
}  // namespace weft::shard
