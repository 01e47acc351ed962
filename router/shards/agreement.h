// Whether the shards that answered Info can form one group: same protocol, build, model and sizes,
// ranks in their places, the instruction set they all have, and the model whose tokenizer the
// router holds. Pure functions for the shard group; what differs is said in words, with the way
// out.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/shards/router_model.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

struct GroupAgreement {
  // Best instruction set that every rank supports; empty when the shards name none.
  std::string isa;
  // Smallest of all ranks.
  uint32_t running_max = 0;
  // The same on all ranks.
  uint32_t step_tokens_max = 0;
};

// `infos` in rank order. FAILED_PRECONDITION names the rank, the facts, and both values of each.
absl::StatusOr<GroupAgreement> Agree(absl::Span<const weft::shard::v1::InfoResponse> infos);

// Whether `info` describes the model that `first` did when the router began to serve; the
// scheduler's sizes are fixed since then.
absl::Status SameModel(const weft::shard::v1::InfoResponse& first,
                       const weft::shard::v1::InfoResponse& info);

// Whether two groups of a router, told apart by what `first_name` and `name` say, serve the same
// model in the same types. `info` and `first` are those of their ranks 0.
absl::Status SameModelInGroups(absl::string_view first_name,
                               const weft::shard::v1::InfoResponse& first, absl::string_view name,
                               const weft::shard::v1::InfoResponse& info);
// Why the same seed may give other tokens in one group than in the other; empty when it gives the
// same.
std::string UnequalNumbers(const weft::shard::v1::InfoResponse& first,
                           const weft::shard::v1::InfoResponse& info);

// Whether the router's own model is the one that rank 0 describes; the other ranks agree with it.
// FAILED_PRECONDITION names every difference in vocabulary, end ids, context and tokenizer.
absl::Status FitsRouter(const RouterModel& model, const weft::shard::v1::InfoResponse& info);

// Why the tokenizers themselves cannot be compared, for a log line; empty when they can be.
std::string TokenizersNotCompared(const RouterModel& model,
                                  const weft::shard::v1::InfoResponse& info);

}  // namespace weft::router
