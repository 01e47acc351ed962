// Describes a bf16 matrix to the copy engine (TMA) as the products that read it in boxes want it
// (small_gemm.h, experts/product.h). Host code, no device work; a map stays valid as long as the
// matrix does.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace weft::kernels::cuda {

inline constexpr uint32_t kBoxColumns = 64;

// Boxes of box_rows x kBoxColumns of a contiguous bf16 [rows, k], in the 128-byte swizzle; what
// lies outside of the matrix reads as zero. cudaErrorNotSupported where the driver has no such
// maps.
cudaError_t MakeBoxMap(const void* data, uint32_t rows, uint32_t k, uint32_t box_rows,
                       CUtensorMap* map);

}  // namespace weft::kernels::cuda
