#include "shard/device/cuda/gemm.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/small_gemm.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using kernels::cuda::GemvEpilogue;
using kernels::cuda::SmallGemmEpilogue;

// One kernel for all rows is looked up for so many, from so many suggestions.
constexpr uint32_t kAlikeRows = 256;
constexpr int kAlikeSuggestions = 16;
// Shapes and weights kept at most; a server meets a few hundred.
constexpr size_t kShapesMax = 4096;
constexpr size_t kMapsMax = 1024;
// Steps of k that SmallGemm multiplies at a time, CTAs of a cluster that share a tile's work, and
// rows from which two tiles may share a load of them (kernels/cuda/gemm/small_gemm.h).
constexpr uint32_t kSmallGemmStep = 64;
constexpr uint32_t kSmallGemmCluster = 8;
constexpr uint32_t kSmallGemmShareRows = 25;

std::string Name(const GemmShape& shape) {
  return absl::StrCat(shape.n, " x ", shape.k, " (",
                      shape.in == DType::kFloat32 ? "float32" : "bfloat16", " to ",
                      shape.out == DType::kFloat32 ? "float32" : "bfloat16",
                      shape.accumulate ? ", added" : "", ")");
}

// The committed table of the current device; empty, and logged once, when there is none.
absl::StatusOr<GemmPlanTable> CommittedTable() {
  int device = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "the current device"));
  cudaDeviceProp properties;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "properties of the device"));
  const std::string name = GemmPlanTableName(properties.name, cublasLtGetVersion());
  const absl::optional<absl::string_view> text = CommittedGemmPlans(name);
  absl::StatusOr<GemmPlanTable> table = GemmPlanTable::Parse(text.value_or(""));
  if (!table.ok()) return Annotate(table.status(), absl::StrCat("plans/", name, ".txt"));
  if (table->size() == 0) {
    WEFT_LOG_WARN(
        "no measured kernels for matrix products on this GPU with this cuBLASLt ({}): its first "
        "suggestions are taken; `weft bench tune` measures them",
        name);
  }
  return table;
}

bool Serves(const CublasLtChoice&, const GemmShape&) { return true; }

bool Serves(const GemvChoice&, const GemmShape& shape) {
  return shape.in == DType::kBfloat16 && shape.rows <= kernels::cuda::kGemvRowsMax &&
         shape.k % 8 == 0 && (!shape.accumulate || shape.out == DType::kFloat32);
}

bool Serves(const SmallGemmChoice& choice, const GemmShape& shape) {
  const bool shares =
      choice.sharers == 1 || (choice.sharers == 2 && shape.rows >= kSmallGemmShareRows);
  return shape.in == DType::kBfloat16 && shape.rows <= kernels::cuda::kSmallGemmRowsMax &&
         shape.k % kSmallGemmStep == 0 && shape.n % 8 == 0 && choice.splits >= 1 &&
         choice.splits <= shape.k / kSmallGemmStep && shares &&
         choice.splits * choice.sharers <= kSmallGemmCluster &&
         (!shape.accumulate || shape.out == DType::kFloat32);
}

absl::Status LaunchGemv(const GemmShape& shape, const void* in, const void* weight, void* out,
                        cudaStream_t stream) {
  kernels::cuda::GemvParams params;
  params.weight = weight;
  params.in = in;
  params.out = out;
  params.out_stride = shape.n;
  params.out_type = shape.out;
  params.epilogue = shape.accumulate ? GemvEpilogue::kAccumulate : GemvEpilogue::kStore;
  params.rows = shape.rows;
  params.n = shape.n;
  params.k = shape.k;
  return CudaStatus(kernels::cuda::Gemv(params, stream), "product of few rows");
}

}  // namespace

uint32_t RoundedGemmRows(uint32_t rows, DType type) {
  if (type == DType::kFloat32 || rows <= 2) return rows;
  if (rows <= 4) return 4;
  uint32_t step = 8;
  while (rows > 8 * step) step *= 2;
  return (rows + step - 1) / step * step;
}

bool ServesGemm(const GemmKernel& kernel, const GemmShape& shape) {
  return std::visit([&shape](const auto& choice) { return Serves(choice, shape); }, kernel);
}

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(void* workspace, size_t workspace_bytes) {
  WEFT_ASSIGN_OR_RETURN(GemmPlanTable plans, CommittedTable());
  return Create(workspace, workspace_bytes, std::move(plans));
}

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Create(void* workspace, size_t workspace_bytes,
                                                   GemmPlanTable plans) {
  std::unique_ptr<Gemm> gemm(new Gemm(std::move(plans)));
  WEFT_ASSIGN_OR_RETURN(gemm->library_, CublasLt::Create(workspace, workspace_bytes));
  return gemm;
}

Gemm::Key Gemm::KeyOf(const GemmShape& shape) {
  return {shape.rows, shape.n, shape.k, shape.in, shape.out, shape.accumulate};
}

absl::Status Gemm::Run(const GemmShape& shape, const void* in, const void* weight, void* out,
                       cudaStream_t stream) {
  if (shape.rows == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const PreparedGemm* const prepared, Find(shape));
  return Launch(shape, *prepared, in, weight, out, stream);
}

absl::StatusOr<const PreparedGemm*> Gemm::Find(const GemmShape& shape) {
  GemmShape rounded = shape;
  rounded.rows = rows_alike_ ? kAlikeRows : RoundedGemmRows(shape.rows, shape.in);
  const Key key = KeyOf(rounded);
  if (const auto it = prepared_.find(key); it != prepared_.end()) return &it->second;
  WEFT_ASSIGN_OR_RETURN(PreparedGemm prepared,
                        rows_alike_ ? ChooseForAllRows(rounded) : Choose(rounded));
  if (prepared_.size() == kShapesMax) prepared_.clear();
  return &prepared_.emplace(key, std::move(prepared)).first->second;
}

absl::StatusOr<PreparedGemm> Gemm::Choose(const GemmShape& shape) {
  if (const GemmPlan* const plan = plans_.Find(shape); plan != nullptr) {
    absl::StatusOr<PreparedGemm> prepared = Prepare(shape, plan->kernel);
    if (prepared.ok()) {
      ++planned_;
      return prepared;
    }
    WEFT_LOG_WARN("product {} of {} rows: \"{}\" does not work here, cuBLASLt chooses: {}",
                  Name(shape), shape.rows, FormatGemmKernel(plan->kernel),
                  std::string(prepared.status().message()));
  } else {
    LogMissing(shape);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms,
                        library_->Suggest(shape, 1));
  return PreparedGemm{CublasLtChoice{}, algorithms.front()};
}

// Each output's sum over k is made by one block in one order as long as k is not split; then the
// number of rows changes how many blocks there are, not what one of them does.
absl::StatusOr<PreparedGemm> Gemm::ChooseForAllRows(const GemmShape& shape) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms,
                        library_->Suggest(shape, kAlikeSuggestions));
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    WEFT_ASSIGN_OR_RETURN(const CublasLtChoice choice, library_->Describe(shape, algorithm));
    if (choice.splits <= 1 && choice.reduction == 0) return PreparedGemm{choice, algorithm};
  }
  return absl::UnimplementedError(absl::StrCat("--deterministic: product ", Name(shape),
                                               ": cuBLASLt suggests no kernel that sums in one "
                                               "piece"));
}

void Gemm::LogMissing(const GemmShape& shape) {
  // Without a table Create has said it of all.
  if (plans_.size() == 0 || logged_) return;
  logged_ = true;
  WEFT_LOG_INFO(
      "product {} of {} rows was not measured, nor may others be: there cuBLASLt chooses; `weft "
      "bench tune` measures a model's products",
      Name(shape), shape.rows);
}

absl::StatusOr<PreparedGemm> Gemm::Prepare(const GemmShape& shape, const GemmKernel& kernel) {
  if (!ServesGemm(kernel, shape)) {
    return absl::InvalidArgumentError("the kernel does not serve this shape");
  }
  PreparedGemm prepared{kernel, {}};
  if (const auto* const choice = std::get_if<CublasLtChoice>(&kernel)) {
    WEFT_ASSIGN_OR_RETURN(prepared.algorithm, library_->Build(shape, *choice));
  }
  return prepared;
}

absl::Status Gemm::Launch(const GemmShape& shape, const PreparedGemm& prepared, const void* in,
                          const void* weight, void* out, cudaStream_t stream) {
  if (std::holds_alternative<GemvChoice>(prepared.kernel)) {
    return LaunchGemv(shape, in, weight, out, stream);
  }
  if (const auto* const choice = std::get_if<SmallGemmChoice>(&prepared.kernel)) {
    return LaunchSmall(shape, *choice, in, weight, out, stream);
  }
  return library_->Run(shape, prepared.algorithm, in, weight, out, stream);
}

absl::StatusOr<const CUtensorMap*> Gemm::MapOf(const void* weight, uint32_t n, uint32_t k) {
  const auto key = std::make_tuple(weight, n, k);
  if (const auto it = maps_.find(key); it != maps_.end()) return &it->second;
  CUtensorMap map;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(kernels::cuda::MakeSmallGemmMap(weight, n, k, &map), "map of a weight"));
  if (maps_.size() == kMapsMax) maps_.clear();
  return &maps_.emplace(key, map).first->second;
}

absl::Status Gemm::LaunchSmall(const GemmShape& shape, const SmallGemmChoice& choice,
                               const void* in, const void* weight, void* out, cudaStream_t stream) {
  kernels::cuda::SmallGemmParams params;
  WEFT_ASSIGN_OR_RETURN(const CUtensorMap* const map, MapOf(weight, shape.n, shape.k));
  params.weight = *map;
  params.in = in;
  params.out = out;
  params.rows = shape.rows;
  params.n = shape.n;
  params.k = shape.k;
  params.out_stride = shape.n;
  params.out_type = shape.out;
  params.epilogue = shape.accumulate ? SmallGemmEpilogue::kAccumulate : SmallGemmEpilogue::kStore;
  params.splits = static_cast<uint8_t>(choice.splits);
  params.sharers = static_cast<uint8_t>(choice.sharers);
  return CudaStatus(kernels::cuda::SmallGemm(params, stream), "product of few rows");
}

}  // namespace weft::shard
