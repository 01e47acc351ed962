#include "kernels/cuda/attention/kv_tensor_map.h"

#include <cuda_runtime.h>

#include "kernels/cuda/tensor_map_encoder.h"

namespace weft::kernels::cuda {
namespace {

// Dimensions from the fastest: element, token of the block, piece (block and head).
cudaError_t EncodeMap(TensorMapEncoder encode, const KvLayer& kv, void* data, uint32_t blocks,
                      CUtensorMap* map) {
  const cuuint64_t row_bytes = cuuint64_t{kv.head_dim} * BytesOf(kv.type);
  const cuuint64_t sizes[3] = {kv.head_dim, kKvBlockTokens, cuuint64_t{blocks} * kv.kv_heads};
  const cuuint64_t strides[2] = {row_bytes, kKvBlockTokens * row_bytes};
  const cuuint32_t box[3] = {kKvBoxDims, kKvBlockTokens, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t MakeKvTensorMaps(const KvLayer& kv, uint32_t blocks, KvTensorMaps* maps) {
  if (!HasKvTensorMaps(kv) || blocks == 0 || kv.kv_heads == 0) return cudaErrorInvalidValue;
  TensorMapEncoder encode = nullptr;
  cudaError_t error = FindTensorMapEncoder(&encode);
  if (error == cudaSuccess) error = EncodeMap(encode, kv, kv.keys, blocks, &maps->keys);
  if (error == cudaSuccess) error = EncodeMap(encode, kv, kv.values, blocks, &maps->values);
  return error;
}

}  // namespace weft::kernels::cuda
