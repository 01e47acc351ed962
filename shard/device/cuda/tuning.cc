#include "shard/device/cuda/tuning.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/device/cuda/gemm.h"
#include "shard/device/cuda/gemm_plan_table.h"
#include "shard/device/cuda/gemm_tuner.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/cuda/shape.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

struct Product {
  const char* name;
  // shape.rows: as many as it ever has.
  GemmShape shape;
};

// As CudaOps launches them: with other ranks, partial sums are reduced before they meet the
// residual.
std::vector<Product> ProductsOf(const CudaShape& shape, uint32_t world) {
  const uint32_t rows = kStepTokensMax;
  const DType type = shape.type;
  const bool alone = world == 1;
  const DType sum_type = alone ? DType::kFloat32 : type;
  std::vector<Product> products = {
      {"o", {rows, shape.hidden, shape.output_columns(), type, sum_type, alone}},
      {"gate_up", {rows, 2 * shape.mlp, shape.hidden, type, type, false}},
      {"down", {rows, shape.hidden, shape.mlp, type, sum_type, alone}},
      {"head", {kRunningMax, shape.vocab, shape.embedding, type, DType::kFloat32, false}},
  };
  if (shape.projects) {
    const DType wide = DType::kFloat32;
    products.push_back({"project_in", {rows, shape.hidden, shape.embedding, type, wide, false}});
    products.push_back(
        {"project_out", {kRunningMax, shape.embedding, shape.hidden, type, wide, false}});
  }
  if (!shape.latent) {
    products.insert(products.begin(),
                    {"qkv", {rows, shape.qkv_columns(), shape.hidden, type, type, false}});
    return products;
  }
  const uint32_t inputs = shape.query_rank > 0 ? shape.query_rank : shape.hidden;
  const uint32_t query_columns = shape.query_heads * shape.query_dim;
  products.push_back({"query", {rows, query_columns, inputs, type, type, false}});
  products.push_back({"latent", {rows, shape.head_dim, shape.hidden, type, type, false}});
  if (shape.query_rank == 0) return products;
  products.push_back({"query_down", {rows, shape.query_rank, shape.hidden, type, type, false}});
  return products;
}

// Those of all ranks of all worlds, each once.
absl::StatusOr<std::vector<Product>> AllProducts(const ModelFiles& files,
                                                 const std::vector<uint32_t>& worlds) {
  std::vector<Product> all;
  for (const uint32_t world : worlds) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      WEFT_ASSIGN_OR_RETURN(const SlicePlan slice,
                            MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple()));
      WEFT_ASSIGN_OR_RETURN(const CudaShape shape,
                            MakeCudaShape(files.spec(), slice, DType::kBfloat16));
      for (const Product& product : ProductsOf(shape, world)) {
        const bool known = std::any_of(all.begin(), all.end(), [&product](const Product& other) {
          return other.shape == product.shape;
        });
        if (!known) all.push_back(product);
      }
    }
  }
  return all;
}

// The least number of rows that is looked up as `rows` is.
uint32_t FirstOfBucket(uint32_t rows) {
  const uint32_t rounded = RoundedGemmRows(rows, DType::kBfloat16);
  while (rows > 1 && RoundedGemmRows(rows - 1, DType::kBfloat16) == rounded) --rows;
  return rows;
}

std::string Header(const CudaDevice& device) {
  return absl::StrCat(
      "# Kernels of matrix products on ", device.name, " with cuBLASLt ", cublasLtGetVersion(),
      ", measured by `weft bench tune`.\n# A line is a plan (shard/device/cuda/gemm_plan.h); its "
      "note: time, and time of cuBLASLt's first suggestion.\n");
}

absl::Status TuneProduct(const Product& product, const std::vector<uint32_t>& all_rows,
                         GemmTuner& tuner, GemmPlanTable* plans,
                         absl::FunctionRef<void(const CudaTuneLine&)> measured) {
  uint32_t rows_min = FirstOfBucket(all_rows.front());
  for (const uint32_t rows : all_rows) {
    if (rows > product.shape.rows) break;
    GemmPlan plan;
    plan.shape = product.shape;
    plan.shape.rows = rows;
    plan.rows_min = rows_min;
    rows_min = rows + 1;
    absl::StatusOr<TunedGemm> tuned = tuner.Tune(plan.shape);
    if (!tuned.ok()) {
      return Annotate(tuned.status(), absl::StrCat(product.name, " of ", rows, " rows"));
    }
    measured({product.name, plan.shape.n, plan.shape.k, rows, tuned->candidates, tuned->wrong,
              tuned->first_us, tuned->best_us, FormatGemmKernel(tuned->best)});
    plan.kernel = std::move(tuned->best);
    plan.note = absl::StrFormat("%.2f us, %.2f", tuned->best_us, tuned->first_us);
    plans->Put(std::move(plan));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TuneCudaProducts(const ModelFiles& files, const CudaTuneOptions& options,
                              absl::string_view table,
                              absl::FunctionRef<void(const CudaTuneLine&)> measured,
                              absl::FunctionRef<absl::Status(const std::string&)> save) {
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(options.device.index), "choosing the device"));
  WEFT_ASSIGN_OR_RETURN(GemmPlanTable plans, GemmPlanTable::Parse(table));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Product> products, AllProducts(files, options.worlds));
  std::vector<GemmShape> largest;
  for (const Product& product : products) {
    largest.push_back(product.shape);
    largest.back().rows = std::min(product.shape.rows, options.rows.back());
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GemmTuner> tuner, GemmTuner::Create(largest));
  for (const Product& product : products) {
    WEFT_RETURN_IF_ERROR(TuneProduct(product, options.rows, *tuner, &plans, measured));
    WEFT_RETURN_IF_ERROR(save(plans.Format(Header(options.device))));
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
