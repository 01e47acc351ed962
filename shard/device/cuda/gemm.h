// Matrix products of the forward through cuBLASLt:
//
//   out[rows, n] = in[rows, k] * weight[n, k]^T            float32 sums
//   out[rows, n] += ...                                    with `accumulate`
//
// so a row-parallel product at world 1 adds itself to the float32 residual. Everything is row-major
// and contiguous. Which of the library's kernels serves a shape is looked up once per shape (rows
// rounded up, so that there are few) and kept; nothing is timed. Owned by the CUDA ops, called by
// the device thread only; it never waits for the device.

#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/types.h"

namespace weft::shard {

struct GemmShape {
  uint32_t rows = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  // Of `in` and `weight`. float32 is computed in float32, not in tf32.
  kernels::cuda::DType in = kernels::cuda::DType::kBfloat16;
  kernels::cuda::DType out = kernels::cuda::DType::kBfloat16;
  bool accumulate = false;
};

class Gemm {
 public:
  // `workspace` is device memory, 256-byte aligned, and must outlive this.
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(void* workspace, size_t workspace_bytes);
  ~Gemm();

  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Launches one product. Pointers are 16-byte aligned, k and n multiples of 8 with bf16.
  absl::Status Run(const GemmShape& shape, const void* in, const void* weight, void* out,
                   cudaStream_t stream);

  // Shapes looked up so far.
  size_t plans() const { return plans_.size(); }

 private:
  // Rows rounded up, n, k, in, out, accumulate.
  using Key =
      std::tuple<uint32_t, uint32_t, uint32_t, kernels::cuda::DType, kernels::cuda::DType, bool>;

  Gemm(void* workspace, size_t workspace_bytes)
      : workspace_(workspace), workspace_bytes_(workspace_bytes) {}

  absl::StatusOr<cublasLtMatmulAlgo_t> FindPlan(const GemmShape& shape);

  void* const workspace_;
  const size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  absl::flat_hash_map<Key, cublasLtMatmulAlgo_t> plans_;
};

}  // namespace weft::shard
