#include "shard/model/plan_rules.h"

namespace weft::shard {
namespace {

using Ops = std::vector<PlanOp>;

bool Is(const Ops& ops, size_t at, OpKind kind) { return at < ops.size() && ops[at].kind == kind; }

// A product that stores and has no bias waiting behind it.
bool IsPlainProduct(const Ops& ops, size_t at, Matrix matrix) {
  return Is(ops, at, OpKind::kLinear) && ops[at].matrix == matrix &&
         ops[at].epilogue == Epilogue::kStore;
}

// What stands behind a product of partial sums and its bias, if it has one of its own; 0 when there
// is no such product.
size_t BehindPartial(const Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kLinear) || ops[at].out != Buffer::kPartial) return 0;
  return at + (Is(ops, at + 1, OpKind::kAddBias) ? 2 : 1);
}

void Erase(Ops& ops, size_t at, size_t count = 1) {
  const auto begin = ops.begin() + static_cast<ptrdiff_t>(at);
  ops.erase(begin, begin + static_cast<ptrdiff_t>(count));
}

bool BiasIntoProduct(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kLinear) || !Is(ops, at + 1, OpKind::kAddBias)) return false;
  ops[at].adds_bias = true;
  Erase(ops, at + 1);
  return true;
}

bool BiasIntoFewRows(Ops& ops, size_t at) {
  return Is(ops, at, OpKind::kLinear) && ops[at].way == Way::kFewRows && BiasIntoProduct(ops, at);
}

bool BiasIntoRotation(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kAddBias) || !Is(ops, at + 1, OpKind::kRotateAppend)) return false;
  ops[at + 1].adds_bias = true;
  Erase(ops, at);
  return true;
}

bool FewRowsProduct(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kLinear) || ops[at].way == Way::kFewRows) return false;
  ops[at].way = Way::kFewRows;
  return true;
}

bool NormIntoProduct(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kNorm) || ops[at].adds_to_residual) return false;
  if (!Is(ops, at + 1, OpKind::kLinear) || ops[at + 1].way != Way::kFewRows) return false;
  if (ops[at + 1].matrix != ops[at].feeds) return false;
  ops[at + 1].norm = ops[at].norm;
  ops[at + 1].in = Buffer::kResidual;
  Erase(ops, at);
  return true;
}

bool RotationIntoProduct(Ops& ops, size_t at) {
  if (!IsPlainProduct(ops, at, Matrix::kQkv) || ops[at].way != Way::kFewRows) return false;
  if (!Is(ops, at + 1, OpKind::kRotateAppend) || ops[at + 1].norms_heads) return false;
  ops[at].epilogue = Epilogue::kRotateAppend;
  ops[at].rotates = ops[at + 1].rotates;
  ops[at].adds_bias = ops[at + 1].adds_bias;
  Erase(ops, at + 1);
  return true;
}

// A product of gates and ups, or of those of experts, that has no bias waiting behind it.
bool MakesGateUp(const Ops& ops, size_t at) {
  if (IsPlainProduct(ops, at, Matrix::kGateUp)) return true;
  return Is(ops, at, OpKind::kExpertLinear) && ops[at].matrix == Matrix::kExpertGateUp &&
         ops[at].epilogue == Epilogue::kStore;
}

bool ActivationIntoProduct(Ops& ops, size_t at) {
  if (!MakesGateUp(ops, at) || !Is(ops, at + 1, OpKind::kActivate)) return false;
  ops[at].epilogue = Epilogue::kActivate;
  ops[at].out = ops[at + 1].out;
  ops[at].feeds = ops[at + 1].feeds;
  Erase(ops, at + 1);
  return true;
}

bool ActivationIntoFewRows(Ops& ops, size_t at) {
  return Is(ops, at, OpKind::kLinear) && ops[at].way == Way::kFewRows &&
         ActivationIntoProduct(ops, at);
}

bool ActivationIntoExperts(Ops& ops, size_t at) {
  return Is(ops, at, OpKind::kExpertLinear) && !ops[at].adds_bias && ActivationIntoProduct(ops, at);
}

bool FewRowsExperts(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kRoute) || !Is(ops, at + 1, OpKind::kExpertLinear) ||
      !Is(ops, at + 2, OpKind::kActivate) || !Is(ops, at + 3, OpKind::kExpertLinear) ||
      !Is(ops, at + 4, OpKind::kCombine)) {
    return false;
  }
  PlanOp& joined = ops[at + 1];
  ops[at].way = joined.way = Way::kFewRows;
  joined.matrix = Matrix::kExperts;
  joined.epilogue = Epilogue::kStore;
  joined.combines = true;
  joined.out = ops[at + 4].out;
  Erase(ops, at + 2, 3);
  return true;
}

bool RoutingIntoExperts(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kNorm) || ops[at].adds_to_residual ||
      !Is(ops, at + 1, OpKind::kLinear) || ops[at + 1].matrix != Matrix::kRouter ||
      !Is(ops, at + 2, OpKind::kRoute) || !Is(ops, at + 3, OpKind::kExpertLinear) ||
      !ops[at + 3].combines) {
    return false;
  }
  PlanOp& joined = ops[at + 3];
  joined.routes = true;
  joined.norm = ops[at].norm;
  joined.in = Buffer::kResidual;
  Erase(ops, at, 3);
  return true;
}

bool HeadNormIntoRotation(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kNormHeads) || !Is(ops, at + 1, OpKind::kRotateAppend)) return false;
  ops[at + 1].norms_heads = true;
  Erase(ops, at);
  return true;
}

bool ResidualIntoCombine(Ops& ops, size_t at) {
  const bool combines =
      Is(ops, at, OpKind::kCombine) || (Is(ops, at, OpKind::kExpertLinear) && ops[at].combines);
  if (!combines || !Is(ops, at + 1, OpKind::kAddResidual)) return false;
  ops[at].out = Buffer::kResidual;
  ops[at].epilogue = Epilogue::kAddToOut;
  Erase(ops, at + 1);
  return true;
}

bool ResidualIntoRoundedProduct(Ops& ops, size_t at) {
  const size_t sum = BehindPartial(ops, at);
  if (sum == 0 || !Is(ops, sum, OpKind::kAddResidual)) return false;
  for (size_t i = at; i < sum; ++i) ops[i].out = Buffer::kResidual;
  ops[at].epilogue = Epilogue::kAddToOut;
  Erase(ops, sum);
  return true;
}

bool ResidualIntoProduct(Ops& ops, size_t at) {
  return !Is(ops, at + 1, OpKind::kAddBias) && ResidualIntoRoundedProduct(ops, at);
}

bool ResidualIntoSum(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kSumRanks) || !Is(ops, at + 1, OpKind::kAddResidual)) return false;
  ops[at].adds_to_residual = true;
  ops[at].out = Buffer::kResidual;
  Erase(ops, at + 1);
  return true;
}

bool SumByPeers(Ops& ops, size_t at) {
  const size_t sum = BehindPartial(ops, at);
  if (sum == 0 || !Is(ops, sum, OpKind::kSumRanks) || !Is(ops, sum + 1, OpKind::kAddResidual) ||
      !Is(ops, sum + 2, OpKind::kNorm)) {
    return false;
  }
  for (size_t i = at; i < sum; ++i) ops[i].out = Buffer::kPeerPartial;
  PlanOp& joined = ops[sum];
  joined.way = Way::kPeers;
  joined.matrix = ops[at].matrix;
  joined.in = Buffer::kPeerPartial;
  joined.out = ops[sum + 2].out;
  joined.norm = ops[sum + 2].norm;
  joined.feeds = ops[sum + 2].feeds;
  joined.adds_to_residual = true;
  // A norm belongs to the layer that it begins.
  joined.layer = ops[sum + 2].layer;
  Erase(ops, sum + 1, 2);
  return true;
}

bool ResidualIntoNorm(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kAddResidual) || !Is(ops, at + 1, OpKind::kNorm)) return false;
  ops[at + 1].in = ops[at].in;
  ops[at + 1].adds_to_residual = true;
  Erase(ops, at);
  return true;
}

bool KeepAfterAttention(Ops& ops, size_t at) {
  if (!Is(ops, at, OpKind::kKeepSampled) || !Is(ops, at + 1, OpKind::kAttend)) return false;
  ops[at + 1].keeps_sampled = true;
  Erase(ops, at);
  return true;
}

size_t ApplyTo(const PlanRule& rule, Ops* ops) {
  size_t fits = 0;
  for (size_t at = 0; at < ops->size(); ++at) fits += rule.apply(*ops, at) ? 1 : 0;
  return fits;
}

}  // namespace

const PlanRule kBiasIntoProduct = {"bias-into-product",
                                   "a bias is added where its product's sums are finished",
                                   /*exact=*/true, BiasIntoProduct};
const PlanRule kBiasIntoFewRows = {
    "bias-into-product",
    "a bias is added where its product's sums are finished, before they are "
    "rounded",
    /*exact=*/false, BiasIntoFewRows};
const PlanRule kBiasIntoRotation = {"bias-into-rotation",
                                    "the bias of query, key and value is added as they are rotated",
                                    /*exact=*/false, BiasIntoRotation};
const PlanRule kFewRowsProduct = {"few-rows-product",
                                  "products are bound by reading the matrix, once for all rows",
                                  /*exact=*/false, FewRowsProduct};
const PlanRule kNormIntoProduct = {"norm-into-product", "a product normalises its input itself",
                                   /*exact=*/true, NormIntoProduct};
const PlanRule kRotationIntoProduct = {"rotation-into-product",
                                       "a product rotates query and key and appends to the cache",
                                       /*exact=*/true, RotationIntoProduct};
const PlanRule kActivationIntoProduct = {
    "activation-into-product",
    "a product of gates and ups stores what the activation makes of them",
    /*exact=*/true, ActivationIntoProduct};
const PlanRule kActivationIntoFewRows = {
    "activation-into-product",
    "a product of gates and ups stores what the activation makes of them",
    /*exact=*/true, ActivationIntoFewRows};
const PlanRule kActivationIntoExperts = {
    "activation-into-experts",
    "a product of experts' gates and ups stores what the activation makes of them",
    /*exact=*/true, ActivationIntoExperts};
const PlanRule kFewRowsExperts = {
    "few-rows-experts",
    "experts' products, activation and sum are one operation that is bound by reading the matrices",
    /*exact=*/false, FewRowsExperts};
const PlanRule kRoutingIntoExperts = {
    "routing-into-experts",
    "an operation of experts normalises its input itself and chooses the experts",
    /*exact=*/false, RoutingIntoExperts};
const PlanRule kHeadNormIntoRotation = {"head-norm-into-rotation",
                                        "query and key heads are normalised as they are rotated",
                                        /*exact=*/true, HeadNormIntoRotation};
const PlanRule kResidualIntoCombine = {
    "residual-into-combine",
    "what experts made is added to the residual as it is combined, before it is rounded",
    /*exact=*/false, ResidualIntoCombine};
const PlanRule kResidualIntoProduct = {"residual-into-product",
                                       "a product adds its sums to the residual",
                                       /*exact=*/true, ResidualIntoProduct};
const PlanRule kResidualIntoRoundedProduct = {
    "residual-into-product", "a product adds its sums to the residual before they are rounded",
    /*exact=*/false, ResidualIntoRoundedProduct};
const PlanRule kResidualIntoSum = {"residual-into-sum", "a sum over ranks adds to the residual",
                                   /*exact=*/true, ResidualIntoSum};
const PlanRule kSumByPeers = {
    "sum-by-peers",
    "a sum over ranks goes through memory that all map, adds to the residual and takes the norm",
    /*exact=*/false, SumByPeers};
const PlanRule kResidualIntoNorm = {"residual-into-norm",
                                    "a norm adds what is new to the residual first",
                                    /*exact=*/true, ResidualIntoNorm};
const PlanRule kKeepAfterAttention = {"keep-after-attention",
                                      "the rows that sample are picked after the last attention",
                                      /*exact=*/true, KeepAfterAttention};

std::vector<size_t> ApplyRules(absl::Span<const PlanRule* const> rules, LayerPlan* plan) {
  std::vector<size_t> fits;
  for (const PlanRule* const rule : rules) {
    fits.push_back(ApplyTo(*rule, &plan->body) + ApplyTo(*rule, &plan->tail));
  }
  return fits;
}

void MarkCollectives(LayerPlan* plan) {
  bool after = false;
  for (Ops* const part : {&plan->body, &plan->tail}) {
    for (PlanOp& op : *part) {
      const bool collective = (op.kind == OpKind::kSumRanks && op.way == Way::kPlain) ||
                              op.kind == OpKind::kGatherLogits;
      if (collective) {
        after = true;
        continue;
      }
      op.after_collective = after;
      after = false;
    }
  }
}

void LinkProducts(LayerPlan* plan) {
  PlanOp* last = nullptr;
  for (Ops* const part : {&plan->body, &plan->tail}) {
    for (PlanOp& op : *part) {
      // Nobody knows ahead which experts' weights will be read.
      if (op.kind == OpKind::kExpertLinear) last = op.combines ? &op : nullptr;
      if (op.kind != OpKind::kLinear || op.way != Way::kFewRows) continue;
      if (last != nullptr) {
        last->next_matrix = op.matrix;
        last->next_layer = op.layer;
        last->next_epilogue = op.epilogue;
      }
      last = &op;
    }
  }
}

}  // namespace weft::shard
