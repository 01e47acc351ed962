#include "kernels/cuda/gemm/box_map.h"

#include <cuda_runtime.h>

#include "kernels/cuda/tensor_map_encoder.h"

namespace weft::kernels::cuda {

cudaError_t MakeBoxMap(const void* data, uint32_t rows, uint32_t k, uint32_t box_rows,
                       CUtensorMap* map) {
  // Asked for once: the answer does not change in the life of a process.
  static const TensorMapEncoder encode = [] {
    TensorMapEncoder found = nullptr;
    return FindTensorMapEncoder(&found) == cudaSuccess ? found : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[2] = {k, rows};
  const cuuint64_t strides[1] = {cuuint64_t{k} * 2};
  const cuuint32_t box[2] = {kBoxColumns, box_rows};
  const cuuint32_t element_strides[2] = {1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides, box,
             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace weft::kernels::cuda
