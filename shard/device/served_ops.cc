#include "shard/device/served_ops.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace weft::shard {
namespace {

constexpr NumberType kNumberTypes[] = {NumberType::kFloat32, NumberType::kBfloat16,
                                       NumberType::kFloat16};

template <typename Enum>
bool Holds(uint32_t set, Enum member) {
  return (set >> static_cast<uint32_t>(member) & 1u) != 0;
}

std::string NumberTypesText(uint32_t set) {
  std::vector<const char*> names;
  for (const NumberType type : kNumberTypes) {
    if (Holds(set, type)) names.push_back(NumberTypeName(type));
  }
  return absl::StrJoin(names, " or ");
}

std::string TensorTypesText(uint32_t set) {
  std::vector<const char*> names;
  for (const TensorFormat& format : kTensorFormats) {
    if (Holds(set, format.type)) names.push_back(format.name);
  }
  return absl::StrJoin(names, ", ");
}

bool TouchesKv(const PlanOp& op) {
  return op.kind == OpKind::kRotateAppend || op.kind == OpKind::kAttend ||
         op.epilogue == Epilogue::kRotateAppend;
}

// The matrices that an operation reads.
std::vector<ParamKind> MatricesRead(const PlanOp& op, bool tied_head) {
  if (op.kind == OpKind::kEmbed) {
    return {ParamKind::kTokenEmbedding, ParamKind::kPositionEmbedding};
  }
  if (op.kind == OpKind::kAddPositions) return {ParamKind::kPositionEmbedding};
  if (op.kind == OpKind::kScaleShared) return {ParamKind::kSharedScale};
  const bool multiplies = op.kind == OpKind::kLinear || op.kind == OpKind::kHeadLinear ||
                          op.kind == OpKind::kExpertLinear;
  if (!multiplies) return {};
  std::vector<ParamKind> params = ParamsOf(op.matrix, tied_head);
  if (op.routes) params.push_back(ParamKind::kRouter);
  return params;
}

// The rows that still serve an operation, narrowed by one of its properties after the other.
class Rows {
 public:
  explicit Rows(absl::Span<const ServedOp> ops) {
    for (const ServedOp& op : ops) rows_.push_back(&op);
  }

  template <typename Fits>
  void Keep(Fits fits) {
    std::vector<const ServedOp*> kept;
    for (const ServedOp* row : rows_) {
      if (fits(*row)) kept.push_back(row);
    }
    rows_ = std::move(kept);
  }
  bool empty() const { return rows_.empty(); }
  // What one of the rows takes.
  uint32_t Union(uint32_t ServedOp::*set) const {
    uint32_t all = 0;
    for (const ServedOp* row : rows_) all |= row->*set;
    return all;
  }

 private:
  std::vector<const ServedOp*> rows_;
};

class Check {
 public:
  Check(const ServedOps& served, const DecoderSpec& spec, const NumberTypes& types,
        absl::Span<const MatrixFormat> held)
      : served_(served), spec_(spec), types_(types) {
    for (const MatrixFormat& matrix : held) held_[ParamNumber(matrix.key)] = matrix.type;
  }

  absl::Status Op(const PlanOp& op) const;

 private:
  absl::Status Matrices(const PlanOp& op, Rows* rows) const;
  absl::Status Experts(const PlanOp& op, ParamKey first, TensorType type) const;
  // "layer 3 linear qkv: normed -> qkv: ".
  std::string Where(const PlanOp& op) const {
    const std::string where =
        op.layer < spec_.layers ? absl::StrCat("layer ", op.layer) : "behind the layers";
    return absl::StrCat(where, " ", PlanOpText(op), ": ");
  }
  absl::Status Refuse(const PlanOp& op, const std::string& why, const std::string& way_out) const {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(op), served_.device, " have no kernel for ", why, "; use ", way_out));
  }

  const ServedOps& served_;
  const DecoderSpec& spec_;
  const NumberTypes types_;
  absl::flat_hash_map<uint32_t, TensorType> held_;
};

absl::Status Check::Op(const PlanOp& op) const {
  Rows rows(served_.ops);
  rows.Keep([&op](const ServedOp& row) {
    return row.kind == op.kind && Holds(row.ways, op.way) && Holds(row.epilogues, op.epilogue);
  });
  if (rows.empty()) return Refuse(op, "this operation", served_.other_device);
  const uint32_t activations = rows.Union(&ServedOp::activations);
  rows.Keep([this](const ServedOp& row) { return Holds(row.activations, types_.activation); });
  const std::string activation = NumberTypeName(types_.activation);
  if (rows.empty()) {
    return Annotate(
        Refuse(op,
               absl::StrCat(activation, " activations, only for ", NumberTypesText(activations)),
               "--dtype auto"),
        absl::StrCat("--dtype ", activation));
  }
  if (TouchesKv(op)) {
    const uint32_t kv = rows.Union(&ServedOp::kv);
    rows.Keep([this](const ServedOp& row) { return Holds(row.kv, types_.kv); });
    if (rows.empty()) {
      const std::string name = NumberTypeName(types_.kv);
      return Annotate(Refuse(op,
                             absl::StrCat("a KV cache in ", name, " beside ", activation,
                                          " activations, only for ", NumberTypesText(kv)),
                             absl::StrCat("--kv-dtype auto, or ", served_.other_device)),
                      absl::StrCat("--kv-dtype ", name));
    }
  }
  return Matrices(op, &rows);
}

absl::Status Check::Matrices(const PlanOp& op, Rows* rows) const {
  for (const ParamKind kind : MatricesRead(op, spec_.tied_head)) {
    // What lies outside the layers has layer 0.
    const ParamKey key{kind, op.layer < spec_.layers ? op.layer : 0};
    const auto found = held_.find(ParamNumber(key));
    if (found == held_.end()) continue;
    const TensorType type = found->second;
    const uint32_t weights = rows->Union(&ServedOp::weights);
    rows->Keep([type](const ServedOp& row) { return Holds(row.weights, type); });
    if (rows->empty()) {
      return Refuse(op,
                    absl::StrCat(ParamName(key), " in ", FormatOf(type).name, " beside ",
                                 NumberTypeName(types_.activation), " activations, only in ",
                                 TensorTypesText(weights)),
                    absl::StrCat("another --dtype, or ", served_.other_device));
    }
    if (IsOfExpert(kind)) WEFT_RETURN_IF_ERROR(Experts(op, key, type));
  }
  return absl::OkStatus();
}

absl::Status Check::Experts(const PlanOp& op, ParamKey first, TensorType type) const {
  if (!served_.experts_of_one_type) return absl::OkStatus();
  for (uint32_t expert = 1; expert < spec_.experts.count; ++expert) {
    const ParamKey key{first.kind, first.layer, expert};
    const auto found = held_.find(ParamNumber(key));
    if (found == held_.end() || found->second == type) continue;
    return Refuse(op,
                  absl::StrCat(ParamName(key), " in ", FormatOf(found->second).name, " beside ",
                               ParamName(first), " in ", FormatOf(type).name,
                               ": all experts of a layer in one type"),
                  absl::StrCat("a file that keeps to that, or ", served_.other_device));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<ParamKind> ParamsOf(Matrix matrix, bool tied_head) {
  switch (matrix) {
    case Matrix::kQkv:
      return {ParamKind::kQuery, ParamKind::kKey, ParamKind::kValue};
    case Matrix::kOutput:
      return {ParamKind::kOutput};
    case Matrix::kQueryDown:
      return {ParamKind::kQueryDown};
    case Matrix::kQuery:
      return {ParamKind::kQuery};
    case Matrix::kLatent:
      return {ParamKind::kLatent};
    case Matrix::kKeyUp:
      return {ParamKind::kKeyUp};
    case Matrix::kValueUp:
      return {ParamKind::kValueUp};
    case Matrix::kGateUp:
      return {ParamKind::kGate, ParamKind::kUp, ParamKind::kSharedGate, ParamKind::kSharedUp};
    case Matrix::kDown:
      return {ParamKind::kDown, ParamKind::kSharedDown};
    case Matrix::kRouter:
      return {ParamKind::kRouter};
    case Matrix::kExpertGateUp:
      return {ParamKind::kExpertGate, ParamKind::kExpertUp};
    case Matrix::kExpertDown:
      return {ParamKind::kExpertDown};
    case Matrix::kExperts:
      return {ParamKind::kExpertGate, ParamKind::kExpertUp, ParamKind::kExpertDown};
    case Matrix::kHead:
      return {tied_head ? ParamKind::kTokenEmbedding : ParamKind::kHead};
    case Matrix::kProjectIn:
      return {ParamKind::kProjectIn};
    case Matrix::kProjectOut:
      return {ParamKind::kProjectOut};
    case Matrix::kNone:
    case Matrix::kLatents:
      break;
  }
  return {};
}

absl::Status CheckServed(const ServedOps& served, const LayerPlan& plan, const DecoderSpec& spec,
                         const NumberTypes& types, absl::Span<const MatrixFormat> held) {
  const Check check(served, spec, types, held);
  for (const PlanOp& op : plan.body) WEFT_RETURN_IF_ERROR(check.Op(op));
  for (const PlanOp& op : plan.tail) WEFT_RETURN_IF_ERROR(check.Op(op));
  return absl::OkStatus();
}

}  // namespace weft::shard
