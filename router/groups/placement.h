// Which shard group a request goes to, of those that serve: the one that knows the beginning of its
// prompt, unless it is overloaded beside the others, else the least loaded one. Pure functions over
// plain numbers: no clock, thread or memory of what was (router/groups/dispatcher.h has both).
//
// Room. A group gets a request when it can let it in at once, as far as can be seen from here, or
// when fewer than a small look-ahead wait in it: so that its device finds the next prompt when a
// stream ends, while everybody else still waits in the one queue, whose order and share hold for
// all groups. A tenant that holds its share of all places leaves the last ones to others, as in the
// scheduler.
//
// Load is in tokens: those that running sequences hold, and the prompts that wait. Of equally
// loaded groups, as idle ones are, the one that has got least so far is next: so all caches fill.
//
// Prefix. A group is asked for its cache when that saves at least a quarter of the prompt beside
// the least loaded group, and while its load is at most half as much again as that group's and an
// eighth of its own pool: a few streams more cost less than a prompt computed twice, but a prefix
// that everybody shares must not gather everybody in one group. What goes elsewhere then makes the
// prefix known there too.

#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace weft::router {

// Shard groups of a router.
inline constexpr uint32_t kGroupsMax = 16;

struct GroupLoad {
  bool serving = false;
  uint32_t running_max = 0;
  uint32_t running = 0;
  // Requests in it without a slot, those on their way to it among them; and their prompt tokens.
  uint32_t waiting = 0;
  uint64_t waiting_tokens = 0;
  uint64_t pool_tokens = 0;
  uint64_t free_tokens = 0;
  // Longest request that its pool bears.
  uint32_t request_tokens_max = 0;
  // Prompt tokens that it has got since the start.
  uint64_t received_tokens = 0;

  uint64_t tokens() const { return pool_tokens - free_tokens + waiting_tokens; }
};

struct PlacedRequest {
  uint32_t prompt_tokens = 0;
  // It may become so long at least.
  uint32_t tokens_min = 0;
  // Its tenant holds its share of all places.
  bool leaves_reserve = false;
};

struct Placement {
  enum class Kind : uint8_t {
    kLeastLoaded,
    // For the prefix that the group holds.
    kPrefix,
    // No group that serves has room now.
    kLater,
    // It is longer than every group that serves bears.
    kTooLong,
  };
  Kind kind = Kind::kLater;
  // Of the first two kinds.
  uint32_t group = 0;

  bool found() const { return kind == Kind::kLeastLoaded || kind == Kind::kPrefix; }
};

// Requests that may wait in a group of so many slots.
uint32_t LookAhead(uint32_t running_max);

// REQUIRES: the group serves.
bool HasRoom(const GroupLoad& group, const PlacedRequest& request);

// `cached_tokens`, by group: of the prompt's beginning, so many are probably in its cache.
Placement Place(absl::Span<const GroupLoad> groups, const PlacedRequest& request,
                absl::Span<const uint32_t> cached_tokens);

}  // namespace weft::router
