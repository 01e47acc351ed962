// Matrix products of the forward:
//
//   out[rows, n] = in[rows, k] * weight[n, k]^T            float32 sums
//   out[rows, n] += ...                                    with `accumulate`
//
// so a row-parallel product at world 1 adds itself to the float32 residual. Everything is row-major
// and contiguous. What computes a shape, an algorithm of cuBLASLt or a kernel of ours, is looked up
// once per shape (rows rounded up, so that there are few) and kept: a plan of the table committed
// for this GPU and library (gemm_plan_table.h), or, logged, cuBLASLt's first suggestion. Owned by
// the CUDA ops, called by the device thread only; it never waits for the device and times nothing.

#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/device/cuda/cublaslt.h"
#include "shard/device/cuda/gemm_plan_table.h"

namespace weft::shard {

// A kernel made ready for shapes of one rounded number of rows.
struct PreparedGemm {
  GemmKernel kernel;
  // With a CublasLtChoice.
  cublasLtMatmulAlgo_t algorithm = {};
};

class Gemm {
 public:
  // With the committed table of the current device, if there is one. `workspace` is device memory,
  // 256-byte aligned, and must outlive this.
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(void* workspace, size_t workspace_bytes);
  // With these plans.
  static absl::StatusOr<std::unique_ptr<Gemm>> Create(void* workspace, size_t workspace_bytes,
                                                      GemmPlanTable plans);

  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // From now on one kernel serves all rows of a product, so that a row's sums do not depend on how
  // many there are.
  void ServeAllRowsAlike() { rows_alike_ = true; }

  // Launches one product. Pointers are 16-byte aligned, k and n multiples of 8 with bf16. A weight
  // stays what it is, where it is.
  absl::Status Run(const GemmShape& shape, const void* in, const void* weight, void* out,
                   cudaStream_t stream);

  // For measurements: what Run does with a plan. Prepare fails where the kernel does not serve the
  // shape; `shape.rows` of Launch round up to those of Prepare.
  absl::StatusOr<PreparedGemm> Prepare(const GemmShape& shape, const GemmKernel& kernel);
  absl::Status Launch(const GemmShape& shape, const PreparedGemm& prepared, const void* in,
                      const void* weight, void* out, cudaStream_t stream);
  CublasLt& library() { return *library_; }

  // Shapes looked up so far, and how many of them are served by a plan of the table.
  size_t shapes() const { return prepared_.size(); }
  size_t planned() const { return planned_; }

 private:
  // Rows rounded up, n, k, in, out, accumulate.
  using Key =
      std::tuple<uint32_t, uint32_t, uint32_t, kernels::cuda::DType, kernels::cuda::DType, bool>;
  static Key KeyOf(const GemmShape& shape);

  explicit Gemm(GemmPlanTable plans) : plans_(std::move(plans)) {}

  absl::StatusOr<const PreparedGemm*> Find(const GemmShape& shape);
  absl::StatusOr<PreparedGemm> Choose(const GemmShape& shape);
  absl::StatusOr<PreparedGemm> ChooseForAllRows(const GemmShape& shape);
  void LogMissing(const GemmShape& shape);
  absl::Status LaunchSmall(const GemmShape& shape, const SmallGemmChoice& choice, const void* in,
                           const void* weight, void* out, cudaStream_t stream);
  absl::StatusOr<const CUtensorMap*> MapOf(const void* weight, uint32_t n, uint32_t k);

  const GemmPlanTable plans_;
  std::unique_ptr<CublasLt> library_;
  absl::flat_hash_map<Key, PreparedGemm> prepared_;
  size_t planned_ = 0;
  bool rows_alike_ = false;
  // Whether the log has that the table lacks a shape.
  bool logged_ = false;
  // By pointer, n and k.
  absl::flat_hash_map<std::tuple<const void*, uint32_t, uint32_t>, CUtensorMap> maps_;
};

// The number of rows that `rows` are looked up as. Few different ones, and the same kernel for all
// rows of one: 1, 2 and 4, batches up to 64 in eights, then up to a quarter more than there are.
// (With float32 every number: its kernels do not serve fewer rows than they were looked up for.)
uint32_t RoundedGemmRows(uint32_t rows, kernels::cuda::DType type);

// Whether a kernel of ours takes the shape; true of cuBLASLt.
bool ServesGemm(const GemmKernel& kernel, const GemmShape& shape);

}  // namespace weft::shard
