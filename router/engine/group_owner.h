// Whoever owns the shard groups, as the engine loop of one of them sees it: the gate through which
// requests come in, what all groups have in common, and the one who hands requests out when there
// are several. Thread-safe; every engine loop calls it from its own thread, and nothing blocks.

#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "router/engine/served.h"
#include "router/engine/stages.h"
#include "router/scheduler/events.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// How a group stands after a turn of its loop. Tokens of its KV pool are those of one KV group.
struct GroupReport {
  bool serving = false;
  // Sequences that may hold a slot, that do, and that wait for one.
  uint32_t running_max = 0;
  uint32_t running = 0;
  uint32_t waiting = 0;
  // Longest request, prompt and output together, that its pool bears.
  uint32_t request_tokens_max = 0;
  uint32_t block_tokens = 0;
  // Of the pool: all, and those that no sequence refers to.
  uint64_t pool_tokens = 0;
  uint64_t free_tokens = 0;
  // Prompt tokens of requests that no step has held yet.
  uint64_t waiting_tokens = 0;
  // Requests that came here since the start, and their prompt tokens; also those that went back.
  uint64_t arrived = 0;
  uint64_t arrived_tokens = 0;

  friend bool operator==(const GroupReport&, const GroupReport&) = default;
};

// What became of a tenant's requests since the last report.
struct TenantNews {
  TenantIndex tenant = 0;
  // Tokens generated, less prompt tokens that are charged when a request is handed out and need not
  // be computed: found in the prefix cache, or of a request that ended before.
  int64_t tokens = 0;
  // Choices that came in with another one, which was handed out for all: from here on they count as
  // requests of their own.
  uint32_t came = 0;
  // Requests that ended.
  uint32_t ended = 0;
};

class GroupOwner {
 public:
  virtual ~GroupOwner() = default;

  // -- The gate: open while any group's is
  virtual void Open(uint32_t group) = 0;
  virtual void Close(uint32_t group, const absl::Status& why) = 0;
  // What the group's shards allow.
  virtual void SetRunningMax(uint32_t group, uint32_t running_max) = 0;
  virtual void SetRequestTokensMax(uint32_t group, uint32_t request_tokens_max) = 0;
  virtual void SetState(uint32_t group, ServerState state) = 0;

  // -- What groups have in common
  // The key of their prefix hashes, so that a prompt is hashed before its group is known.
  virtual std::array<uint64_t, 2> HashKey() = 0;
  // Whether the group whose rank 0 says `info` serves the model of the others.
  // FAILED_PRECONDITION says in words what differs.
  virtual absl::Status CheckModel(uint32_t group, const weft::shard::v1::InfoResponse& info) = 0;

  // -- Of one group among several only ---------------------------------------------------------
  virtual void Report(uint32_t group, const GroupReport& report,
                      absl::Span<const TenantNews> news) = 0;
  // A request that no step has held, of a group that does not serve. False when all is being
  // stopped; the request is then untouched.
  virtual bool GiveBack(uint32_t group, std::unique_ptr<PreparedRequest>&& request) = 0;
};

}  // namespace weft::router
