// The rules by which a device turns the plain operations of a forward into those that its kernels
// compute in one go. Each has a name and says whether the numbers stay the same to the bit. Applied
// at load, each over the whole list before the next one; pure functions of plain data.

#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "shard/model/layer_plan.h"

namespace weft::shard {

struct PlanRule {
  const char* name;
  // What `weft inspect --plan` says of it.
  const char* meaning;
  // The numbers are those of the operations it joins, one after the other, to the bit. Otherwise
  // they differ by rounding.
  bool exact;
  // Rewrites what begins at ops[at] when it fits; false = it does not.
  bool (*apply)(std::vector<PlanOp>& ops, size_t at);
};

// Both parts, one rule after the other. No rule reaches from the body into the tail. Returns how
// often each rule fitted, in their order.
std::vector<size_t> ApplyRules(absl::Span<const PlanRule* const> rules, LayerPlan* plan);

// A bias is added where its product's sums are finished.
extern const PlanRule kBiasIntoProduct;
// The bias of query, key and value is added when they are rotated.
extern const PlanRule kBiasIntoRotation;
// Products take the way for few rows.
extern const PlanRule kFewRowsProduct;
// The same, of products for few rows.
extern const PlanRule kBiasIntoFewRows;
// A product for few rows normalises its input itself.
extern const PlanRule kNormIntoProduct;
// A product for few rows rotates query and key and appends to the cache.
extern const PlanRule kRotationIntoProduct;
// As above, for gates and ups: any product, or those for few rows alone.
extern const PlanRule kActivationIntoProduct;
extern const PlanRule kActivationIntoFewRows;
// The same for products of experts alone.
extern const PlanRule kActivationIntoExperts;
// The products of experts, their activation and the sum of what a row's experts make are one
// operation of few rows.
extern const PlanRule kFewRowsExperts;
// An operation of experts of few rows normalises its input itself and chooses the experts.
extern const PlanRule kRoutingIntoExperts;
// Query and key heads are normalised as they are rotated.
extern const PlanRule kHeadNormIntoRotation;
// A product that stores float32 and has no bias behind it adds to the residual.
extern const PlanRule kResidualIntoProduct;
// What experts made is added to the residual as it is combined.
extern const PlanRule kResidualIntoCombine;
// The same for any product; a bias is added to the residual after it.
extern const PlanRule kResidualIntoRoundedProduct;
// A sum over ranks adds to the residual.
extern const PlanRule kResidualIntoSum;
// A sum over ranks of a few rows goes through memory that all ranks map, adds to the residual and
// computes the next norm.
extern const PlanRule kSumByPeers;
// The norm behind a sum over ranks adds it to the residual.
extern const PlanRule kResidualIntoNorm;
// The rows that sample are picked after the last attention instead of before it.
extern const PlanRule kKeepAfterAttention;

// Fills after_collective: for devices whose collectives are a library's, on the same stream.
void MarkCollectives(LayerPlan* plan);
// Fills next_*: each product for few rows knows the next one, the tail's behind the body's.
void LinkProducts(LayerPlan* plan);

}  // namespace weft::shard
