#include "shard/device/cuda/gemm.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cuda/cuda_status.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

cudaDataType_t CudaType(DType type) { return type == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }

// Shapes kept at most; a server meets a few hundred.
constexpr size_t kPlansMax = 4096;

// Few different shapes, and the same kernel for all rows of one: batches up to 64 in eights, then
// up to a quarter more than there are. (Kernels for float32 do not serve fewer rows than they were
// looked up for.)
uint32_t RoundedRows(uint32_t rows, DType type) {
  if (type == DType::kFloat32) return rows;
  uint32_t step = 8;
  while (rows > 8 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

// cuBLASLt is column-major: out^T [n, rows] = weight [n, k] * in^T [k, rows].
struct Layouts {
  Layouts(const GemmShape& shape, uint32_t rows) {
    Init(&weight, CudaType(shape.in), shape.k, shape.n, shape.k);
    Init(&in, CudaType(shape.in), shape.k, rows, shape.k);
    Init(&out, CudaType(shape.out), shape.n, rows, shape.n);
  }
  static void Init(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type, uint64_t rows,
                   uint64_t columns, int64_t stride) {
    WEFT_CHECK_EQ(cublasLtMatrixLayoutInit(layout, type, rows, columns, stride),
                  CUBLAS_STATUS_SUCCESS);
  }

  cublasLtMatrixLayoutOpaque_t weight;
  cublasLtMatrixLayoutOpaque_t in;
  cublasLtMatrixLayoutOpaque_t out;
};

// Deletes itself at the end of the search.
struct Preference {
  Preference() { WEFT_CHECK_EQ(cublasLtMatmulPreferenceCreate(&handle), CUBLAS_STATUS_SUCCESS); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  cublasLtMatmulPreference_t handle = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(void* workspace, size_t workspace_bytes) {
  std::unique_ptr<Gemm> gemm(new Gemm(workspace, workspace_bytes));
  WEFT_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&gemm->handle_), "creating a handle"));
  WEFT_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulDescCreate(&gemm->operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulDescSetAttribute(gemm->operation_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof(transposed)),
                   "a transposed operand"));
  return gemm;
}

Gemm::~Gemm() {
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::Status Gemm::Run(const GemmShape& shape, const void* in, const void* weight, void* out,
                       cudaStream_t stream) {
  if (shape.rows == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm, FindPlan(shape));
  Layouts layouts(shape, shape.rows);
  const float one = 1.0f;
  const float keep = shape.accumulate ? 1.0f : 0.0f;
  return CublasStatus(cublasLtMatmul(handle_, operation_, &one, weight, &layouts.weight, in,
                                     &layouts.in, &keep, out, &layouts.out, out, &layouts.out,
                                     &algorithm, workspace_, workspace_bytes_, stream),
                      absl::StrCat("product of ", shape.rows, " x ", shape.n, " x ", shape.k));
}

absl::StatusOr<cublasLtMatmulAlgo_t> Gemm::FindPlan(const GemmShape& shape) {
  const uint32_t rows = RoundedRows(shape.rows, shape.in);
  const Key key{rows, shape.n, shape.k, shape.in, shape.out, shape.accumulate};
  if (const auto it = plans_.find(key); it != plans_.end()) return it->second;
  Preference preference;
  WEFT_RETURN_IF_ERROR(CublasStatus(cublasLtMatmulPreferenceSetAttribute(
                                        preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                        &workspace_bytes_, sizeof(workspace_bytes_)),
                                    "workspace limit"));
  Layouts layouts(shape, rows);
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  const std::string what =
      absl::StrCat("finding a kernel for ", rows, " x ", shape.n, " x ", shape.k);
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, &layouts.weight, &layouts.in,
                                                  &layouts.out, &layouts.out, preference.handle, 1,
                                                  &result, &found),
                   what));
  if (found == 0) return absl::InternalError(absl::StrCat("cuBLASLt: ", what, ": there is none"));
  if (plans_.size() == kPlansMax) plans_.clear();
  plans_.emplace(key, result.algo);
  return result.algo;
}

}  // namespace weft::shard
