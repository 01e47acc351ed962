#include "shard/model/layer_plan.h"

#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

const char* NormName(Norm norm) {
  switch (norm) {
    case Norm::kNone:
      return "none";
    case Norm::kEmbedding:
      return "embedding";
    case Norm::kAttention:
      return "attention";
    case Norm::kQueryLatent:
      return "query latent";
    case Norm::kLatent:
      return "latent";
    case Norm::kPostAttention:
      return "post-attention";
    case Norm::kPostMlp:
      return "post-MLP";
    case Norm::kMlp:
      return "mlp";
    case Norm::kFinal:
      return "final";
  }
  return "?";
}

const char* EpilogueName(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kStore:
      return "stores";
    case Epilogue::kAddToOut:
      return "adds to it";
    case Epilogue::kActivate:
      return "activates";
    case Epilogue::kRotateAppend:
      return "rotates and appends";
  }
  return "?";
}

}  // namespace

const char* OpName(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kAddPositions:
      return "add positions";
    case OpKind::kNormResidual:
      return "norm of the residual";
    case OpKind::kNormPartial:
      return "norm of what is to be added";
    case OpKind::kNorm:
      return "norm";
    case OpKind::kRound:
      return "round";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kAddBias:
      return "add bias";
    case OpKind::kClip:
      return "clip";
    case OpKind::kNormHeads:
      return "norm of heads";
    case OpKind::kNormLatent:
      return "norm of a latent";
    case OpKind::kHeadLinear:
      return "heads' linear";
    case OpKind::kRotateAppend:
      return "rotate and append";
    case OpKind::kKeepSampled:
      return "keep sampled rows";
    case OpKind::kAttend:
      return "attend";
    case OpKind::kActivate:
      return "activate";
    case OpKind::kRoute:
      return "route";
    case OpKind::kExpertLinear:
      return "experts' linear";
    case OpKind::kScaleShared:
      return "scale what all tokens share";
    case OpKind::kCombine:
      return "combine experts";
    case OpKind::kSumRanks:
      return "sum over ranks";
    case OpKind::kAddResidual:
      return "add to residual";
    case OpKind::kCapLogits:
      return "cap logits";
    case OpKind::kGatherLogits:
      return "gather logits";
  }
  return "?";
}

const char* BufferName(Buffer buffer) {
  switch (buffer) {
    case Buffer::kNone:
      return "-";
    case Buffer::kResidual:
      return "residual";
    case Buffer::kEmbedded:
      return "embedded";
    case Buffer::kNormed:
      return "normed";
    case Buffer::kQkv:
      return "qkv";
    case Buffer::kAttention:
      return "attention";
    case Buffer::kQueryLatent:
      return "query latent";
    case Buffer::kHeadQuery:
      return "heads' query";
    case Buffer::kLatent:
      return "latent";
    case Buffer::kHeadValue:
      return "heads' value";
    case Buffer::kGateUp:
      return "gate_up";
    case Buffer::kMlp:
      return "mlp";
    case Buffer::kRoutes:
      return "routes";
    case Buffer::kExpertGateUp:
      return "experts' gate_up";
    case Buffer::kExpertMlp:
      return "experts' mlp";
    case Buffer::kExpertOut:
      return "experts' out";
    case Buffer::kPartial:
      return "partial";
    case Buffer::kPeerPartial:
      return "peer partial";
    case Buffer::kLogits:
      return "logits";
  }
  return "?";
}

const char* MatrixName(Matrix matrix) {
  switch (matrix) {
    case Matrix::kNone:
      return "-";
    case Matrix::kQkv:
      return "qkv";
    case Matrix::kOutput:
      return "output";
    case Matrix::kQueryDown:
      return "query down";
    case Matrix::kQuery:
      return "query";
    case Matrix::kLatent:
      return "latent";
    case Matrix::kLatents:
      return "latents";
    case Matrix::kKeyUp:
      return "key up";
    case Matrix::kValueUp:
      return "value up";
    case Matrix::kGateUp:
      return "gate_up";
    case Matrix::kDown:
      return "down";
    case Matrix::kHead:
      return "head";
    case Matrix::kProjectIn:
      return "project_in";
    case Matrix::kProjectOut:
      return "project_out";
    case Matrix::kRouter:
      return "router";
    case Matrix::kExpertGateUp:
      return "gate_up";
    case Matrix::kExpertDown:
      return "down";
    case Matrix::kExperts:
      return "experts";
  }
  return "?";
}

std::string PlanOpText(const PlanOp& op) {
  std::string text = OpName(op.kind);
  if (op.matrix != Matrix::kNone) absl::StrAppend(&text, " ", MatrixName(op.matrix));
  const bool is_norm = op.kind == OpKind::kNorm || op.kind == OpKind::kNormResidual ||
                       op.kind == OpKind::kNormPartial;
  if (is_norm) absl::StrAppend(&text, " ", NormName(op.norm));
  absl::StrAppend(&text, ": ", BufferName(op.in), " -> ", BufferName(op.out));
  if (!is_norm && op.norm != Norm::kNone) {
    absl::StrAppend(&text, ", with the ", NormName(op.norm), " norm");
  }
  if (op.norms_heads) absl::StrAppend(&text, ", normalises heads");
  if (op.routes) absl::StrAppend(&text, ", routes");
  if (op.adds_bias) absl::StrAppend(&text, ", adds the bias");
  if (op.combines) absl::StrAppend(&text, ", combines");
  if (op.adds_to_residual) absl::StrAppend(&text, ", adds to the residual");
  if (op.epilogue != Epilogue::kStore) absl::StrAppend(&text, ", ", EpilogueName(op.epilogue));
  if (!op.rotates) absl::StrAppend(&text, ", without rotation");
  if (op.window_tokens > 0) absl::StrAppend(&text, ", window ", op.window_tokens);
  if (op.keeps_sampled) absl::StrAppend(&text, ", keeps the rows that sample");
  if (op.way == Way::kFewRows) absl::StrAppend(&text, ", for few rows");
  if (op.way == Way::kPeers) absl::StrAppend(&text, ", in peers' memory");
  if (op.after_collective) absl::StrAppend(&text, ", after a collective");
  return text;
}

}  // namespace weft::shard
