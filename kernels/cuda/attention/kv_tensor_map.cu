#include "kernels/cuda/attention/kv_tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace weft::kernels::cuda {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

cudaError_t FindEncode(Encode* encode) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess || found == nullptr) return cudaErrorNotSupported;
  *encode = reinterpret_cast<Encode>(found);
  return cudaSuccess;
}

// Dimensions from the fastest: element, token of the block, piece (block and head).
cudaError_t EncodeMap(Encode encode, const KvLayer& kv, void* data, uint32_t blocks,
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
  Encode encode = nullptr;
  cudaError_t error = FindEncode(&encode);
  if (error == cudaSuccess) error = EncodeMap(encode, kv, kv.keys, blocks, &maps->keys);
  if (error == cudaSuccess) error = EncodeMap(encode, kv, kv.values, blocks, &maps->values);
  return error;
}

}  // namespace weft::kernels::cuda
