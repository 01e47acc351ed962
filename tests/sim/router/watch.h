// What the parts of a simulated world tell it: a broken invariant, things that happened and are
// counted, what the shards see of requests. Implemented by World; one thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router::sim {

// What a run is for, and how often it happened. Plain numbers, so that a run in another process
// can hand them over in shared memory.
struct Counts {
  // One for each thing that is delivered: a request, cancel, tokenisation or fault; a turn of one
  // of the router's loops; a call that reaches a shard, a step that a shard ends, a reply that
  // reaches the router; a head, token or end that a client takes.
  uint64_t events = 0;
  uint64_t turns = 0;
  uint64_t calls = 0;
  uint64_t replies = 0;
  uint64_t steps = 0;
  uint64_t tokens = 0;
  // Of requests with a constraint; the calls that brought their masks, and how often a step waited
  // for one.
  uint64_t constrained_tokens = 0;
  uint64_t masks = 0;
  uint64_t mask_waits = 0;
  uint64_t requests = 0;
  uint64_t refused = 0;
  uint64_t finished = 0;
  uint64_t stopped = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t invalid = 0;
  uint64_t prefilled_again = 0;
  uint64_t prefix_hits = 0;
  // Streams that went on behind tokens from elsewhere.
  uint64_t resumed = 0;
  // Tokens of prompts that were scored.
  uint64_t scored = 0;
  uint64_t preemptions = 0;
  uint64_t epochs = 0;
  uint64_t groups_lost = 0;
  uint64_t deaths = 0;
  uint64_t deaths_in_joins = 0;
  uint64_t lies = 0;
  uint64_t lost_replies = 0;
  uint64_t repeated_replies = 0;
  uint64_t restarts_asked = 0;
  uint64_t drains = 0;
  uint64_t flushes = 0;
  uint64_t fatal = 0;
  // With several groups: requests that came to a group, and that one gave back.
  uint64_t handed_out = 0;
  uint64_t given_back = 0;
  uint64_t full_checks = 0;
  // Of everything that clients and shards saw; equal for equal scripts.
  uint64_t digest = 0;
};

// What a process exits with that found a broken invariant.
inline constexpr int kViolatedExit = 3;

// What is known of the request of a chunk.
struct SeenChunk {
  // Tokens that it may have, prompt and output together.
  uint32_t length_max = 0;
  uint32_t tenant = 0;
};

class Watch {
 public:
  virtual ~Watch() = default;

  // `invariant` (docs/ARCHITECTURE.md) does not hold. Does not return.
  [[noreturn]] virtual void Violated(absl::string_view invariant, const std::string& what) = 0;
  // The event counts, and cheap invariants are looked at.
  virtual void OnEvent() = 0;
  virtual Counts& counts() = 0;

  // -- What clients see, by the request's id
  // It was not taken; or it was, and has ended.
  virtual void OnRefused(int64_t request, const absl::Status& why) = 0;
  virtual void OnEnd(int64_t request) = 0;

  // -- What the shards see ---------------------------------------------------------------------
  // A chunk runs.
  virtual SeenChunk OnChunk(const weft::shard::v1::Chunk& chunk) = 0;
  // The answer of a step holds another token than the sequence's.
  virtual void OnFalseToken(SequenceId sequence) = 0;
  // A row of the sequence says that its logits are not finite.
  virtual void OnInvalidRow(SequenceId sequence) = 0;
  // A pool of so many blocks serves from now on.
  virtual void OnPool(uint32_t kv_blocks) = 0;
};

// What the shards of all groups are to a world: the same, with the group.
class GroupsWatch {
 public:
  virtual ~GroupsWatch() = default;
  virtual SeenChunk OnGroupChunk(uint32_t group, const weft::shard::v1::Chunk& chunk) = 0;
  virtual void OnGroupPool(uint32_t group, uint32_t kv_blocks) = 0;
};

}  // namespace weft::router::sim
