#include "deploy/launcher/inspect_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/status.h"
#include "deploy/launcher/read_bandwidth.h"
#include "shard/device/cpu/planner.h"
#include "shard/device/cuda/planning.h"
#include "shard/device/served_ops.h"

namespace weft::launcher {
namespace {

using shard::Buffer;
using shard::Matrix;
using shard::OpKind;
using shard::ParamKey;
using shard::ParamKind;
using shard::PlanOp;

// What the bytes of an operation follow from.
struct Costs {
  const shard::ModelFiles& files;
  const shard::SlicePlan& slice;
  const StepOptions& step;
  bool cuda;
  uint64_t activation_bytes;
  // Of one token in one layer, this rank.
  uint64_t kv_bytes;
};

// Of a layer's experts, those that `rows` rows take if each takes its own at random.
double ExpertsRead(const shard::ExpertsSpec& experts, uint64_t rows) {
  const double taken = static_cast<double>(experts.per_token) / experts.count;
  return experts.count * (1.0 - std::pow(1.0 - taken, static_cast<double>(rows)));
}

// GPUs hold matrices in the activation type, the CPU as the file has them.
uint64_t MatrixBytes(const Costs& costs, Matrix matrix, uint32_t layer) {
  const uint32_t of_layer = shard::IsOfLayer(matrix) ? layer : 0;
  uint64_t bytes = 0;
  for (const ParamKind kind : shard::ParamsOf(matrix, costs.files.spec().tied_head)) {
    const shard::ModelFiles::ParamSize size =
        costs.files.SliceSize(ParamKey{kind, of_layer}, costs.slice);
    bytes += costs.cuda ? size.elements * costs.activation_bytes : size.bytes;
  }
  return bytes;
}

// Of a plain MLP, or of the one beside experts.
uint64_t MlpColumns(const Costs& costs, uint32_t layer) {
  const bool experts = costs.files.spec().HasExperts(layer);
  return experts ? costs.slice.shared.size() : costs.slice.mlp.size();
}

// Of one row.
uint64_t BufferBytes(const Costs& costs, Buffer buffer, uint32_t layer) {
  const shard::DecoderSpec& spec = costs.files.spec();
  const uint64_t places = spec.experts.per_token;
  const uint64_t heads = costs.slice.heads.size();
  const uint64_t kv_heads = costs.slice.kv_heads.size();
  switch (buffer) {
    case Buffer::kNone:
      return 0;
    case Buffer::kResidual:
      return uint64_t{spec.hidden} * sizeof(float);
    case Buffer::kEmbedded:
      return uint64_t{spec.embedding_columns()} * sizeof(float);
    case Buffer::kNormed:
    case Buffer::kPartial:
    case Buffer::kPeerPartial:
      return spec.hidden * costs.activation_bytes;
    case Buffer::kQkv:
      return (heads + (spec.latent.rank > 0 ? 0 : 2 * kv_heads)) * spec.head_dim *
             costs.activation_bytes;
    case Buffer::kAttention:
      return heads * spec.attention_dim() * costs.activation_bytes;
    case Buffer::kQueryLatent:
      return spec.latent.query_rank * costs.activation_bytes;
    case Buffer::kHeadQuery:
      return heads * spec.query_dim() * costs.activation_bytes;
    case Buffer::kLatent:
      return spec.head_dim * costs.activation_bytes;
    case Buffer::kHeadValue:
      return heads * spec.output_dim() * costs.activation_bytes;
    case Buffer::kGateUp:
      return (spec.gated_mlp ? 2 : 1) * MlpColumns(costs, layer) * costs.activation_bytes;
    case Buffer::kMlp:
      return MlpColumns(costs, layer) * costs.activation_bytes;
    case Buffer::kRoutes:
      return spec.experts.count * sizeof(float);
    case Buffer::kExpertGateUp:
      return 2 * places * costs.slice.expert.size() * costs.activation_bytes;
    case Buffer::kExpertMlp:
      return places * costs.slice.expert.size() * costs.activation_bytes;
    case Buffer::kExpertOut:
      return places * spec.hidden * costs.activation_bytes;
    case Buffer::kLogits:
      return costs.slice.vocab.size() * sizeof(float);
  }
  return 0;
}

// Of `context` tokens, those that a row attends to.
uint64_t SeenTokens(const PlanOp& op, uint32_t context) {
  return op.window_tokens == 0 ? context : std::min(op.window_tokens, context);
}

// Of one row of what an operation reads or makes. What was rounded for a matrix next to the
// embedding is as wide as that.
uint64_t RowBytes(const Costs& costs, const PlanOp& op, Buffer buffer) {
  const bool by_embedding =
      op.in == Buffer::kEmbedded || op.matrix == Matrix::kProjectIn || op.matrix == Matrix::kHead;
  if (buffer != Buffer::kNormed || !by_embedding) return BufferBytes(costs, buffer, op.layer);
  return costs.files.spec().embedding_columns() * costs.activation_bytes;
}

uint64_t OpBytes(const Costs& costs, const PlanOp& op, uint64_t rows) {
  const uint64_t in = rows * RowBytes(costs, op, op.in);
  uint64_t bytes = in + rows * RowBytes(costs, op, op.out);
  switch (op.kind) {
    case OpKind::kLinear:
    case OpKind::kHeadLinear:
      bytes += MatrixBytes(costs, op.matrix, op.layer);
      break;
    case OpKind::kAttend:
      bytes +=
          costs.kv_bytes * (uint64_t{costs.step.decode_rows} * SeenTokens(op, costs.step.context) +
                            costs.step.prompt_tokens);
      break;
    case OpKind::kSumRanks:
      // Each rank reads the others' part.
      bytes += in * (costs.slice.world - 1);
      break;
    case OpKind::kExpertLinear:
      bytes += static_cast<uint64_t>(ExpertsRead(costs.files.spec().experts, rows) *
                                     static_cast<double>(MatrixBytes(costs, op.matrix, op.layer)));
      if (op.routes) bytes += MatrixBytes(costs, Matrix::kRouter, op.layer);
      break;
    default:
      break;
  }
  return bytes;
}

bool Same(const std::vector<StepOp>& ops, size_t a, size_t b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (shard::PlanOpText(ops[a + i].op) != shard::PlanOpText(ops[b + i].op)) return false;
    if (ops[a + i].bytes != ops[b + i].bytes) return false;
  }
  return true;
}

// Joins neighbouring layers whose operations are the same.
std::vector<StepOp> JoinLayers(const std::vector<StepOp>& all) {
  std::vector<StepOp> joined;
  size_t block = 0;  // where the last block begins in `all`, and how long it is
  size_t block_size = 0;
  for (size_t at = 0; at < all.size();) {
    size_t count = 1;
    while (at + count < all.size() && all[at + count].op.layer == all[at].op.layer) ++count;
    if (count == block_size && Same(all, block, at, count)) {
      for (size_t i = 0; i < count; ++i) ++joined[joined.size() - count + i].times;
    } else {
      joined.insert(joined.end(), all.begin() + static_cast<ptrdiff_t>(at),
                    all.begin() + static_cast<ptrdiff_t>(at + count));
      block = at;
      block_size = count;
    }
    at += count;
  }
  return joined;
}

// 1,024 tokens of context unless it says how many.
constexpr uint32_t kContextDefault = 1024;

absl::Status CheckAtMost(const char* flag, uint32_t value, uint32_t max) {
  if (value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": must be at most ", max, ", found ", value));
}

absl::Status CheckStep(const StepOptions& step, const shard::DecoderSpec& spec) {
  if (step.shards == 0) return absl::InvalidArgumentError("--plan-shards: 0 is not from 1");
  WEFT_RETURN_IF_ERROR(CheckAtMost("--plan-rows", step.decode_rows, kRunningMax));
  WEFT_RETURN_IF_ERROR(CheckAtMost("--plan-context", step.context, spec.context_tokens));
  WEFT_RETURN_IF_ERROR(CheckAtMost("--plan-prompt", step.prompt_tokens,
                                   std::min(spec.context_tokens, kStepTokensMax)));
  if (step.decode_rows == 0 && step.prompt_tokens == 0) {
    return absl::InvalidArgumentError(
        "--plan-rows and --plan-prompt: both are 0; a step has at least one row");
  }
  return absl::OkStatus();
}

}  // namespace

void DeclareStepFlags(Flags& flags, StepOptions* options) {
  flags.AddSwitch("plan", &options->shown, "Print the operations of a step instead");
  flags.Add("plan-shards", &options->shards, "Of a step in a group of so many shards");
  flags.Add("plan-rows", &options->decode_rows, "Sequences that decode in it");
  flags.Add("plan-context", &options->context,
            "Tokens of context that each of them reads; 0 = 1024, or the model's if shorter");
  flags.Add("plan-prompt", &options->prompt_tokens, "Tokens of a prompt beside them; 0 = none");
  flags.AddNumber("limit-gbytes-per-s", &options->limit_gbytes_per_s, 0, 100'000,
                  "What the device reads at best; 0 = 4550 on CUDA (one H200), unknown on the CPU");
}

absl::StatusOr<StepOps> PlanStep(const shard::ModelFiles& files, const PlanOptions& options,
                                 const StepOptions& given) {
  WEFT_RETURN_IF_ERROR(CheckStep(given, files.spec()));
  StepOptions step = given;
  if (step.context == 0) step.context = std::min(kContextDefault, files.spec().context_tokens);
  WEFT_ASSIGN_OR_RETURN(const RankPlan rank, PlanFirstRank(files, step.shards, options));
  const uint32_t rows = step.decode_rows + step.prompt_tokens;
  const uint32_t sampled = step.decode_rows + (step.prompt_tokens > 0 ? 1 : 0);
  shard::LayerPlan plan;
  if (rank.cuda) {
    WEFT_ASSIGN_OR_RETURN(plan,
                          shard::PlanCudaStep(files.spec(), rank.slice, rank.flags, rows, sampled));
  } else {
    plan = shard::MakeCpuPlan(files.spec(), rank.slice.world, shard::CpuPlanRules());
  }
  const bool wide = rank.memory.types.activation == shard::NumberType::kFloat32;
  const Costs costs = {files,
                       rank.slice,
                       step,
                       rank.cuda,
                       wide ? uint64_t{4} : uint64_t{2},
                       rank.memory.kv_block_bytes / rank.memory.kv_block_tokens /
                           rank.memory.kv_groups.block_layers};
  StepOps out;
  out.cuda = rank.cuda;
  out.step = step;
  out.layers = files.spec().layers;
  out.gbytes_per_s = step.limit_gbytes_per_s;
  if (out.gbytes_per_s == 0 && rank.cuda) out.gbytes_per_s = kH200GbytesPerS;
  std::vector<StepOp> all;
  for (const auto* part : {&plan.body, &plan.tail}) {
    const uint64_t of_part = part == &plan.body ? rows : sampled;
    for (const PlanOp& op : *part) {
      // The last attention still has all rows.
      const uint64_t op_rows = op.keeps_sampled ? rows : of_part;
      all.push_back({op, 1, OpBytes(costs, op, op_rows)});
      out.bytes += all.back().bytes;
    }
  }
  out.ops = JoinLayers(all);
  return out;
}

boost::json::object StepJson(const StepOps& ops) {
  boost::json::object out = {
      {"device", ops.cuda ? "cuda" : "cpu"},     {"shards", ops.step.shards},
      {"decode_rows", ops.step.decode_rows},     {"context_tokens", ops.step.context},
      {"prompt_tokens", ops.step.prompt_tokens}, {"bytes", ops.bytes}};
  const auto add_time = [&ops](uint64_t bytes, boost::json::object& to) {
    if (ops.gbytes_per_s > 0) to["limit_us"] = static_cast<double>(bytes) / ops.gbytes_per_s * 1e-3;
  };
  add_time(ops.bytes, out);
  boost::json::array& list = out["ops"].emplace_array();
  for (const StepOp& op : ops.ops) {
    boost::json::object entry = {{"op", shard::PlanOpText(op.op)}, {"bytes", op.bytes}};
    if (op.op.layer < ops.layers) {
      entry["first_layer"] = op.op.layer;
      entry["layers"] = op.times;
    }
    add_time(op.bytes, entry);
    list.push_back(std::move(entry));
  }
  return out;
}

std::string StepText(const StepOps& ops) {
  const StepOptions& step = ops.step;
  std::string text = absl::StrFormat(
      "a step of %d decode rows at context %d and a prompt of %d tokens, %s, rank 0 of %d\n",
      step.decode_rows, step.context, step.prompt_tokens, ops.cuda ? "CUDA" : "CPU", step.shards);
  uint32_t layer = UINT32_MAX;
  const auto line = [&](const std::string& what, uint64_t bytes) {
    absl::StrAppendFormat(&text, "  %-96s %11.3f MB", what, static_cast<double>(bytes) * 1e-6);
    if (ops.gbytes_per_s > 0) {
      absl::StrAppendFormat(&text, " %9.2f us",
                            static_cast<double>(bytes) / ops.gbytes_per_s * 1e-3);
    }
    text += '\n';
  };
  for (const StepOp& op : ops.ops) {
    if (op.op.layer != layer) {
      layer = op.op.layer;
      if (layer == ops.layers) {
        text += "behind the layers\n";
      } else if (op.times > 1) {
        absl::StrAppendFormat(&text, "layers %d to %d, each\n", layer, layer + op.times - 1);
      } else {
        absl::StrAppendFormat(&text, "layer %d\n", layer);
      }
    }
    line(shard::PlanOpText(op.op), op.bytes);
  }
  text += "in all\n";
  line(ops.gbytes_per_s > 0
           ? absl::StrFormat("bytes moved, and their time at %.0f GB/s", ops.gbytes_per_s)
           : "bytes moved",
       ops.bytes);
  return text;
}

}  // namespace weft::launcher
