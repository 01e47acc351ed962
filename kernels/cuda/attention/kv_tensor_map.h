// How the copy engine of the chip (TMA) sees one layer of the KV cache: boxes of 64 tokens x 64
// dimensions of one head of one block, which it writes to shared memory as rows of 128 bytes with
// the 128-byte swizzle that the tensor cores read. Made on the host, once a layer when the cache is
// allocated; holds the addresses of keys and values, so it ends with them.

#pragma once

#include <cuda.h>

#include "kernels/cuda/kv.h"

namespace weft::kernels::cuda {

// Elements of a box's row: 128 bytes of bf16.
inline constexpr uint32_t kKvBoxDims = 64;

struct KvTensorMaps {
  CUtensorMap keys;
  CUtensorMap values;
};

// True where some kernel has a use for the maps: bf16 with head_dim 64, 128 or 256.
inline constexpr bool HasKvTensorMaps(const KvLayer& kv) {
  return kv.type == DType::kBfloat16 &&
         (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

// Maps of a layer whose ids are below `blocks`; cudaErrorInvalidValue unless HasKvTensorMaps(kv).
// Needs the driver (found through the runtime; nothing is linked), but neither allocates nor waits.
cudaError_t MakeKvTensorMaps(const KvLayer& kv, uint32_t blocks, KvTensorMaps* maps);

}  // namespace weft::kernels::cuda
