// How one matrix product is computed for a range of rows: by a cuBLASLt algorithm, named by its
// configuration, or by a kernel of ours. A value and its text; made by `weft bench tune`, kept in
// gemm_plan_table.h, followed by gemm.h. Pure functions, any thread; knows neither the device nor
// the library, and decides nothing.
//
// As text a plan is one line of words, always these in this order, numbers decimal, and after a #
// a note that nothing reads:
//
//   n=6144 k=4096 in=bf16 out=bf16 rows=9-16 use=cublaslt id=66 tile=9 stages=35 splits=1
//       reduction=0 swizzle=0 custom=3 inner=0 cluster=2 [data=<128 hex digits>]   # 5.2 us
//   n=4096 k=4096 in=bf16 out+=f32 rows=1-1 use=gemv
//   n=4096 k=4096 in=bf16 out+=f32 rows=33-40 use=small splits=4 sharers=2
//
// (the first is one line as well). `out+=` is a product that is added to what the output holds.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/types.h"

namespace weft::shard {

// out[rows, n] = in[rows, k] * weight[n, k]^T, or += that.
struct GemmShape {
  uint32_t rows = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  // Of `in` and `weight`. float32 is computed in float32, not in tf32.
  kernels::cuda::DType in = kernels::cuda::DType::kBfloat16;
  kernels::cuda::DType out = kernels::cuda::DType::kBfloat16;
  bool accumulate = false;

  friend bool operator==(const GemmShape&, const GemmShape&) = default;
};

// The configuration attributes of a cuBLASLt algorithm (CUBLASLT_ALGO_CONFIG_*), of one version of
// the library.
struct CublasLtChoice {
  uint32_t id = 0;
  uint32_t tile = 0;
  uint32_t stages = 0;
  uint32_t splits = 1;
  uint32_t reduction = 0;
  uint32_t swizzle = 0;
  uint32_t custom = 0;
  uint32_t inner = 0;
  uint32_t cluster = 0;
  // The words of the algorithm as the library has them, where the attributes are not all of it;
  // else empty.
  std::vector<uint64_t> data;

  friend bool operator==(const CublasLtChoice&, const CublasLtChoice&) = default;
};

// kernels/cuda/gemm/gemv.h.
struct GemvChoice {
  friend bool operator==(const GemvChoice&, const GemvChoice&) = default;
};

// kernels/cuda/gemm/small_gemm.h.
struct SmallGemmChoice {
  uint32_t splits = 1;
  uint32_t sharers = 1;

  friend bool operator==(const SmallGemmChoice&, const SmallGemmChoice&) = default;
};

using GemmKernel = std::variant<CublasLtChoice, GemvChoice, SmallGemmChoice>;

struct GemmPlan {
  // shape.rows: the most rows it serves.
  GemmShape shape;
  uint32_t rows_min = 1;
  GemmKernel kernel;
  std::string note;

  friend bool operator==(const GemmPlan&, const GemmPlan&) = default;
};

// Words of CublasLtChoice::data.
inline constexpr size_t kCublasLtDataWords = 8;

// "use=gemv", "use=small splits=4 sharers=1" and so on.
std::string FormatGemmKernel(const GemmKernel& kernel);
// Without a line end.
std::string FormatGemmPlan(const GemmPlan& plan);

// INVALID_ARGUMENT naming the word that is wrong and what is expected there.
absl::StatusOr<GemmPlan> ParseGemmPlan(absl::string_view line);

}  // namespace weft::shard
