#include "shard/device/cuda/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

// An error of cuBLASLt as Status, as CudaStatus makes it of CUDA's.
absl::Status CublasStatus(cublasStatus_t error, absl::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat("cuBLASLt: ", what, ": ", cublasLtGetStatusString(error));
  if (error == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

cudaDataType_t CudaType(DType type) { return type == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }

std::string Name(const GemmShape& shape) {
  return absl::StrCat(shape.rows, " x ", shape.n, " x ", shape.k);
}

// cuBLASLt is column-major: out^T [n, rows] = weight [n, k] * in^T [k, rows].
struct Layouts {
  explicit Layouts(const GemmShape& shape) {
    Init(&weight, CudaType(shape.in), shape.k, shape.n, shape.k);
    Init(&in, CudaType(shape.in), shape.k, shape.rows, shape.k);
    Init(&out, CudaType(shape.out), shape.n, shape.rows, shape.n);
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

  template <typename T>
  absl::Status Set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    return CublasStatus(
        cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)),
        "a preference");
  }

  cublasLtMatmulPreference_t handle = nullptr;
};

// An attribute of an algorithm and the part of a choice that holds it.
struct Attribute {
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  uint32_t CublasLtChoice::*value;
  // Of the library's type: 4 or 2.
  size_t bytes;
};

// All but the id, which cublasLtMatmulAlgoInit takes.
constexpr Attribute kAttributes[] = {
    {CUBLASLT_ALGO_CONFIG_TILE_ID, &CublasLtChoice::tile, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, &CublasLtChoice::stages, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &CublasLtChoice::splits, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &CublasLtChoice::reduction, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &CublasLtChoice::swizzle, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &CublasLtChoice::custom, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &CublasLtChoice::inner, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &CublasLtChoice::cluster, 2},
};

absl::StatusOr<uint32_t> Get(const cublasLtMatmulAlgo_t& algorithm,
                             cublasLtMatmulAlgoConfigAttributes_t attribute, size_t bytes) {
  // Little-endian: the lower half of a value of two bytes.
  uint32_t value = 0;
  size_t written = 0;
  WEFT_RETURN_IF_ERROR(CublasStatus(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, bytes, &written),
      absl::StrCat("reading attribute ", static_cast<int>(attribute))));
  return value;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == kCublasLtDataWords * sizeof(uint64_t));

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Create(void* workspace,
                                                           size_t workspace_bytes) {
  std::unique_ptr<CublasLt> library(new CublasLt(workspace, workspace_bytes));
  WEFT_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&library->handle_), "creating a handle"));
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulDescCreate(&library->operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "an operation"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulDescSetAttribute(library->operation_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof(transposed)),
                   "a transposed operand"));
  return library;
}

CublasLt::~CublasLt() {
  if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> CublasLt::Suggest(const GemmShape& shape,
                                                                    int count) {
  Preference preference;
  WEFT_RETURN_IF_ERROR(preference.Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_));
  if (shape.out == DType::kBfloat16) {
    // The others add parts of k in the type of the output.
    WEFT_RETURN_IF_ERROR(preference.Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
  }
  Layouts layouts(shape);
  std::vector<cublasLtMatmulHeuristicResult_t> results(count);
  int found = 0;
  const std::string what = absl::StrCat("finding a kernel for ", Name(shape));
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, &layouts.weight, &layouts.in,
                                                  &layouts.out, &layouts.out, preference.handle,
                                                  count, results.data(), &found),
                   what));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  }
  if (algorithms.empty()) {
    return absl::InternalError(absl::StrCat("cuBLASLt: ", what, ": there is none"));
  }
  return algorithms;
}

absl::StatusOr<CublasLtChoice> CublasLt::Describe(const GemmShape& shape,
                                                  const cublasLtMatmulAlgo_t& algorithm) {
  CublasLtChoice choice;
  WEFT_ASSIGN_OR_RETURN(choice.id, Get(algorithm, CUBLASLT_ALGO_CONFIG_ID, sizeof(choice.id)));
  for (const Attribute& attribute : kAttributes) {
    WEFT_ASSIGN_OR_RETURN(choice.*attribute.value,
                          Get(algorithm, attribute.attribute, attribute.bytes));
  }
  const absl::StatusOr<cublasLtMatmulAlgo_t> again = Configure(shape, choice);
  if (!again.ok() || std::memcmp(&*again, &algorithm, sizeof(algorithm)) != 0) {
    choice.data.assign(std::begin(algorithm.data), std::end(algorithm.data));
  }
  return choice;
}

absl::StatusOr<cublasLtMatmulAlgo_t> CublasLt::Configure(const GemmShape& shape,
                                                         const CublasLtChoice& choice) {
  cublasLtMatmulAlgo_t algorithm = {};
  const cudaDataType_t in = CudaType(shape.in);
  const cudaDataType_t out = CudaType(shape.out);
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out,
                                          static_cast<int>(choice.id), &algorithm),
                   absl::StrCat("algorithm ", choice.id)));
  for (const Attribute& attribute : kAttributes) {
    const uint32_t value = choice.*attribute.value;
    // Not every algorithm lets every attribute be set, even to what it is.
    const absl::StatusOr<uint32_t> present = Get(algorithm, attribute.attribute, attribute.bytes);
    if (present.ok() && *present == value) continue;
    WEFT_RETURN_IF_ERROR(
        CublasStatus(cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute.attribute, &value,
                                                          attribute.bytes),
                     absl::StrCat("setting attribute ", static_cast<int>(attribute.attribute),
                                  " of algorithm ", choice.id, " to ", value)));
  }
  return algorithm;
}

absl::StatusOr<cublasLtMatmulAlgo_t> CublasLt::Build(const GemmShape& shape,
                                                     const CublasLtChoice& choice) {
  cublasLtMatmulAlgo_t algorithm = {};
  if (choice.data.size() == kCublasLtDataWords) {
    std::copy(choice.data.begin(), choice.data.end(), algorithm.data);
  } else {
    WEFT_ASSIGN_OR_RETURN(algorithm, Configure(shape, choice));
  }
  Layouts layouts(shape);
  cublasLtMatmulHeuristicResult_t result = {};
  WEFT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulAlgoCheck(handle_, operation_, &layouts.weight, &layouts.in,
                                           &layouts.out, &layouts.out, &algorithm, &result),
                   absl::StrCat("algorithm ", choice.id, " for ", Name(shape))));
  if (result.workspaceSize > workspace_bytes_) {
    return absl::FailedPreconditionError(
        absl::StrCat("algorithm ", choice.id, " for ", Name(shape), " wants ", result.workspaceSize,
                     " bytes of workspace, there are ", workspace_bytes_));
  }
  return algorithm;
}

absl::Status CublasLt::Run(const GemmShape& shape, const cublasLtMatmulAlgo_t& algorithm,
                           const void* in, const void* weight, void* out, cudaStream_t stream) {
  Layouts layouts(shape);
  const float one = 1.0f;
  const float keep = shape.accumulate ? 1.0f : 0.0f;
  return CublasStatus(cublasLtMatmul(handle_, operation_, &one, weight, &layouts.weight, in,
                                     &layouts.in, &keep, out, &layouts.out, out, &layouts.out,
                                     &algorithm, workspace_, workspace_bytes_, stream),
                      absl::StrCat("product of ", Name(shape)));
}

}  // namespace weft::shard
