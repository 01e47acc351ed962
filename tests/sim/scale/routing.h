// Which replica gets a request, when each replica is a router with a shard group of its own behind
// a balancer that sees all of them: the policies that the simulation compares. A policy decides at
// arrival, from plain numbers. One thread, deterministic.

#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router::scale {

inline constexpr uint32_t kReplicasMax = 64;

struct ReplicaLoad {
  uint32_t running_max = 0;
  uint32_t running = 0;
  uint32_t waiting = 0;
  // That sequences which run hold, each block once; and those of prompts that wait.
  uint64_t used_tokens = 0;
  uint64_t waiting_tokens = 0;
  uint64_t pool_tokens = 0;
  // Prompt tokens that it has got since the start.
  uint64_t received_tokens = 0;

  uint64_t tokens() const { return used_tokens + waiting_tokens; }
};

class Policy {
 public:
  virtual ~Policy() = default;
  // The request's replica. `labels`: one for each full block of its prompt.
  virtual uint32_t Choose(absl::Span<const ReplicaLoad> replicas, uint32_t prompt_tokens,
                          absl::Span<const TokenId> labels) = 0;
};

// "round_robin", "least_loaded", "prefix_affinity" (which bears an eighth of a pool more load for a
// prefix) or "prefix_tight" (a thirty-second), or where the build has it "product": that of a
// router with several groups (router/groups/placement.h), decided at arrival. Null for another
// name.
std::unique_ptr<Policy> MakePolicy(const std::string& name);

// Which replicas probably hold a block: of the last prompts that were sent to them.
class BlockPlaces {
 public:
  using Replicas = std::bitset<kReplicasMax>;

  void Note(absl::Span<const TokenId> labels, uint32_t replica);
  // By replica: of the first blocks, so many are there without a gap.
  void Find(absl::Span<const TokenId> labels, absl::Span<uint32_t> blocks) const;

 private:
  // Blocks of a generation: the last but one is forgotten when the newest has so many.
  static constexpr size_t kBlocksMax = 1 << 20;
  using Map = absl::flat_hash_map<TokenId, Replicas>;
  Map newest_;
  Map older_;
};

}  // namespace weft::router::scale
