// The plans of many products: looked up by shape, read from a table's text and written as one. The
// tables of the GPUs that were measured are committed in plans/, one per GPU and cuBLASLt version,
// and lie in the binary: no file is read at run time. A value; const functions from any thread. It
// knows no device and checks no plan against one: gemm.h does.
//
// A table's text has a plan a line (gemm_plan.h); empty lines and what follows a # are comments.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "shard/device/cuda/gemm_plan.h"

namespace weft::shard {

class GemmPlanTable {
 public:
  GemmPlanTable() = default;

  // INVALID_ARGUMENT, beginning with "line N: ", when a line is no plan or two plans serve the same
  // rows of one product.
  static absl::StatusOr<GemmPlanTable> Parse(absl::string_view text);

  // The plan that serves `shape`, or null.
  const GemmPlan* Find(const GemmShape& shape) const;

  // Adds a plan; plans of the same product that share rows with it go.
  void Put(GemmPlan plan);

  size_t size() const { return plans_.size(); }
  // Sorted: the same plans give the same text. `header` is lines of comment.
  std::string Format(absl::string_view header) const;

 private:
  // The first plan of the product that serves `shape.rows` or more, or what follows the product.
  std::vector<GemmPlan>::const_iterator LowerBound(const GemmShape& shape) const;

  // By product, then rows.
  std::vector<GemmPlan> plans_;
};

// What a table is called: "nvidia-h200_130100" of "NVIDIA H200" and cublasLtGetVersion().
std::string GemmPlanTableName(absl::string_view gpu, size_t cublaslt_version);

// The text of the committed table of that name; none = there is none.
absl::optional<absl::string_view> CommittedGemmPlans(absl::string_view name);

}  // namespace weft::shard
