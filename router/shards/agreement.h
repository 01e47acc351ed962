// Whether the shards that answered Info can form one group: same protocol, build, model and sizes,
// ranks in their places, and the instruction set they all have. Pure functions for the shard group.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/shard.pb.h"

namespace weft::router {

struct GroupAgreement {
  // Best instruction set that every rank supports; empty when the shards name none.
  std::string isa;
  // Smallest of all ranks.
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
};

// `infos` in rank order. FAILED_PRECONDITION names the rank, the fact, what was expected and found.
absl::StatusOr<GroupAgreement> Agree(absl::Span<const weft::shard::v1::InfoResponse> infos);

// Whether `info` describes the model that `first` did when the router began to serve; the
// scheduler's sizes are fixed since then.
absl::Status SameModel(const weft::shard::v1::InfoResponse& first,
                       const weft::shard::v1::InfoResponse& info);

}  // namespace weft::router
