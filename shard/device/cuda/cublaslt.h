// cuBLASLt's part of the products of gemm.h: which algorithms it has for a shape, an algorithm from
// and to its configuration, and running one. Owned by Gemm, called by the device thread only; it
// allocates no device memory, waits for nothing, may be captured into a graph, and chooses nothing.

#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/device/cuda/gemm_plan.h"

namespace weft::shard {

class CublasLt {
 public:
  // `workspace` is device memory, 256-byte aligned, and must outlive this.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Create(void* workspace, size_t workspace_bytes);
  ~CublasLt();

  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Up to `count` algorithms that need no more than the workspace and sum in float32, the one that
  // the library expects to be the fastest first. INTERNAL when there is none.
  absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Suggest(const GemmShape& shape, int count);

  // What Build takes to make the same algorithm again.
  absl::StatusOr<CublasLtChoice> Describe(const GemmShape& shape,
                                          const cublasLtMatmulAlgo_t& algorithm);
  // Fails when the library does not take the configuration for this shape on this device, or needs
  // more workspace.
  absl::StatusOr<cublasLtMatmulAlgo_t> Build(const GemmShape& shape, const CublasLtChoice& choice);

  // Launches. Pointers are 16-byte aligned, everything is contiguous.
  absl::Status Run(const GemmShape& shape, const cublasLtMatmulAlgo_t& algorithm, const void* in,
                   const void* weight, void* out, cudaStream_t stream);

 private:
  CublasLt(void* workspace, size_t workspace_bytes)
      : workspace_(workspace), workspace_bytes_(workspace_bytes) {}

  absl::StatusOr<cublasLtMatmulAlgo_t> Configure(const GemmShape& shape,
                                                 const CublasLtChoice& choice);

  void* const workspace_;
  const size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
};

}  // namespace weft::shard
