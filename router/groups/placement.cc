#include "router/groups/placement.h"

#include <algorithm>
#include <tuple>

namespace weft::router {
namespace {

// One part in so many of a group's slots may wait in it, within bounds, and is left to tenants that
// hold less than their share.
constexpr uint32_t kSlotShare = 16;
constexpr uint32_t kLookAheadMin = 2;
constexpr uint32_t kLookAheadMax = 8;
// A cache counts when it saves one part in so many of the prompt.
constexpr uint64_t kSavedShare = 4;
// A group is overloaded with more than this part of the least load and one part in so many of its
// own pool.
constexpr uint64_t kOverloadNumerator = 3;
constexpr uint64_t kOverloadDenominator = 2;
constexpr uint64_t kOverloadPoolShare = 8;

bool Overloaded(const GroupLoad& group, const GroupLoad& least) {
  return group.tokens() > least.tokens() * kOverloadNumerator / kOverloadDenominator +
                              group.pool_tokens / kOverloadPoolShare;
}

}  // namespace

uint32_t LookAhead(uint32_t running_max) {
  return std::clamp(running_max / kSlotShare, kLookAheadMin, kLookAheadMax);
}

bool HasRoom(const GroupLoad& group, const PlacedRequest& request) {
  const uint32_t reserve = request.leaves_reserve ? group.running_max / kSlotShare : 0;
  const uint64_t taken = uint64_t{group.running} + group.waiting + reserve;
  const bool comes_in = taken < group.running_max &&
                        group.waiting_tokens + request.prompt_tokens <= group.free_tokens;
  return comes_in ||
         group.waiting < LookAhead(group.running_max) - (request.leaves_reserve ? 1 : 0);
}

Placement Place(absl::Span<const GroupLoad> groups, const PlacedRequest& request,
                absl::Span<const uint32_t> cached_tokens) {
  const auto none = static_cast<uint32_t>(groups.size());
  uint32_t least = none;
  uint32_t cached = none;
  bool bears = false;
  bool serves = false;
  for (uint32_t g = 0; g < none; ++g) {
    const GroupLoad& group = groups[g];
    if (!group.serving) continue;
    serves = true;
    if (request.tokens_min > group.request_tokens_max) continue;
    bears = true;
    if (!HasRoom(group, request)) continue;
    const auto load = [&](uint32_t i) {
      return std::make_tuple(groups[i].tokens(), uint64_t{groups[i].running} + groups[i].waiting,
                             groups[i].received_tokens);
    };
    if (least == none || load(g) < load(least)) least = g;
    if (cached == none || cached_tokens[g] > cached_tokens[cached] ||
        (cached_tokens[g] == cached_tokens[cached] && load(g) < load(cached))) {
      cached = g;
    }
  }
  if (least == none) {
    return {serves && !bears ? Placement::Kind::kTooLong : Placement::Kind::kLater, 0};
  }
  const uint64_t saved = cached_tokens[cached] - cached_tokens[least];
  if (saved > 0 && saved * kSavedShare >= request.prompt_tokens &&
      !Overloaded(groups[cached], groups[least])) {
    return {Placement::Kind::kPrefix, cached};
  }
  return {Placement::Kind::kLeastLoaded, least};
}

}  // namespace weft::router
