// Types that all CUDA kernels share. Kernels take raw device pointers and a stream and return what
// launching them gave; they allocate nothing, wait for nothing and may be captured into a graph.
// Whoever owns the buffers is shard/device/cuda.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace weft::kernels::cuda {

// Element type of activations, weights and KV in device memory. Sums are always float32.
enum class DType : uint8_t { kFloat32, kBfloat16 };

inline constexpr uint32_t BytesOf(DType type) { return type == DType::kFloat32 ? 4 : 2; }

}  // namespace weft::kernels::cuda
