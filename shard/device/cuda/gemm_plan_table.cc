#include "shard/device/cuda/gemm_plan_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace weft::shard {
namespace {

auto ProductOf(const GemmShape& shape) {
  return std::make_tuple(shape.n, shape.k, shape.in, shape.out, shape.accumulate);
}

bool Before(const GemmShape& a, const GemmShape& b) {
  return std::make_pair(ProductOf(a), a.rows) < std::make_pair(ProductOf(b), b.rows);
}

bool SameProduct(const GemmShape& a, const GemmShape& b) { return ProductOf(a) == ProductOf(b); }

}  // namespace

absl::StatusOr<GemmPlanTable> GemmPlanTable::Parse(absl::string_view text) {
  GemmPlanTable table;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view words = line.substr(0, line.find('#'));
    if (absl::StripAsciiWhitespace(words).empty()) continue;
    absl::StatusOr<GemmPlan> plan = ParseGemmPlan(line);
    if (!plan.ok()) return Annotate(plan.status(), absl::StrCat("line ", number));
    const size_t plans = table.size();
    table.Put(*std::move(plan));
    if (table.size() != plans + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": another plan serves some of these rows"));
    }
  }
  return table;
}

std::vector<GemmPlan>::const_iterator GemmPlanTable::LowerBound(const GemmShape& shape) const {
  return std::lower_bound(
      plans_.begin(), plans_.end(), shape,
      [](const GemmPlan& plan, const GemmShape& wanted) { return Before(plan.shape, wanted); });
}

const GemmPlan* GemmPlanTable::Find(const GemmShape& shape) const {
  const auto plan = LowerBound(shape);
  if (plan == plans_.end() || !SameProduct(plan->shape, shape)) return nullptr;
  return plan->rows_min <= shape.rows ? &*plan : nullptr;
}

void GemmPlanTable::Put(GemmPlan plan) {
  GemmShape first_rows = plan.shape;
  first_rows.rows = plan.rows_min;
  const auto first = LowerBound(first_rows);
  auto last = first;
  while (last != plans_.end() && SameProduct(last->shape, plan.shape) &&
         last->rows_min <= plan.shape.rows) {
    ++last;
  }
  plans_.insert(plans_.erase(first, last), std::move(plan));
}

std::string GemmPlanTable::Format(absl::string_view header) const {
  std::string out(header);
  const GemmPlan* last = nullptr;
  for (const GemmPlan& plan : plans_) {
    if (last == nullptr || !SameProduct(last->shape, plan.shape)) absl::StrAppend(&out, "\n");
    absl::StrAppend(&out, FormatGemmPlan(plan), "\n");
    last = &plan;
  }
  return out;
}

std::string GemmPlanTableName(absl::string_view gpu, size_t cublaslt_version) {
  return absl::StrCat(absl::StrReplaceAll(absl::AsciiStrToLower(gpu), {{" ", "-"}}), "_",
                      cublaslt_version);
}

}  // namespace weft::shard
