#include "tests/sim/scale/routing.h"

#include <algorithm>
#include <utility>

#include "tests/sim/scale/traces.h"
#ifdef WEFT_HAVE_PLACEMENT
#include "router/groups/placement.h"
#endif

namespace weft::router::scale {
namespace {

uint32_t LeastLoaded(absl::Span<const ReplicaLoad> replicas) {
  uint32_t least = 0;
  for (uint32_t i = 1; i < replicas.size(); ++i) {
    if (replicas[i].tokens() < replicas[least].tokens()) least = i;
  }
  return least;
}

class RoundRobin : public Policy {
 public:
  uint32_t Choose(absl::Span<const ReplicaLoad> replicas, uint32_t /*prompt_tokens*/,
                  absl::Span<const TokenId> /*labels*/) override {
    return next_++ % static_cast<uint32_t>(replicas.size());
  }

 private:
  uint32_t next_ = 0;
};

class LeastLoadedPolicy : public Policy {
 public:
  uint32_t Choose(absl::Span<const ReplicaLoad> replicas, uint32_t /*prompt_tokens*/,
                  absl::Span<const TokenId> /*labels*/) override {
    return LeastLoaded(replicas);
  }
};

// The replica with the longest beginning of the prompt when that saves a quarter of it, while its
// load is at most half as much again as the least one and a part of its pool; else the least
// loaded.
class PrefixAffinity : public Policy {
 public:
  explicit PrefixAffinity(uint32_t pool_share) : pool_share_(pool_share) {}

  uint32_t Choose(absl::Span<const ReplicaLoad> replicas, uint32_t prompt_tokens,
                  absl::Span<const TokenId> labels) override {
    const uint32_t least = LeastLoaded(replicas);
    std::array<uint32_t, kReplicasMax> blocks{};
    places_.Find(labels, absl::MakeSpan(blocks).first(replicas.size()));
    uint32_t best = least;
    for (uint32_t i = 0; i < replicas.size(); ++i) {
      if (blocks[i] > blocks[best] ||
          (blocks[i] == blocks[best] && replicas[i].tokens() < replicas[best].tokens())) {
        best = i;
      }
    }
    const uint64_t saved = uint64_t{blocks[best] - blocks[least]} * kBlockTokens;
    const uint64_t bearable =
        replicas[least].tokens() * 3 / 2 + replicas[best].pool_tokens / pool_share_;
    const bool is_worth_it = saved * 4 >= prompt_tokens && replicas[best].tokens() <= bearable;
    const uint32_t chosen = is_worth_it ? best : least;
    places_.Note(labels, chosen);
    return chosen;
  }

 private:
  const uint32_t pool_share_;
  BlockPlaces places_;
};

#ifdef WEFT_HAVE_PLACEMENT
// Each group as one replica. The product keeps a request until a group has room for it; here it
// goes to the least loaded one then.
class Product : public Policy {
 public:
  uint32_t Choose(absl::Span<const ReplicaLoad> replicas, uint32_t prompt_tokens,
                  absl::Span<const TokenId> labels) override {
    groups_.clear();
    for (const ReplicaLoad& replica : replicas) {
      GroupLoad group;
      group.serving = true;
      group.running_max = replica.running_max;
      group.running = replica.running;
      group.waiting = replica.waiting;
      group.waiting_tokens = replica.waiting_tokens;
      group.pool_tokens = replica.pool_tokens;
      group.free_tokens = replica.pool_tokens - replica.used_tokens;
      group.request_tokens_max = static_cast<uint32_t>(replica.pool_tokens);
      group.received_tokens = replica.received_tokens;
      groups_.push_back(group);
    }
    cached_.assign(replicas.size(), 0);
    places_.Find(labels, absl::MakeSpan(cached_));
    for (uint32_t& cached : cached_) cached *= kBlockTokens;
    PlacedRequest request;
    request.prompt_tokens = request.tokens_min = prompt_tokens;
    const Placement placement = Place(groups_, request, cached_);
    const uint32_t chosen = placement.found() ? placement.group : LeastLoaded(replicas);
    places_.Note(labels, chosen);
    return chosen;
  }

 private:
  BlockPlaces places_;
  std::vector<GroupLoad> groups_;
  std::vector<uint32_t> cached_;
};
#endif

}  // namespace

std::unique_ptr<Policy> MakePolicy(const std::string& name) {
  if (name == "round_robin") return std::make_unique<RoundRobin>();
  if (name == "least_loaded") return std::make_unique<LeastLoadedPolicy>();
  if (name == "prefix_affinity") return std::make_unique<PrefixAffinity>(8);
  if (name == "prefix_tight") return std::make_unique<PrefixAffinity>(32);
#ifdef WEFT_HAVE_PLACEMENT
  if (name == "product") return std::make_unique<Product>();
#endif
  return nullptr;
}

void BlockPlaces::Note(absl::Span<const TokenId> labels, uint32_t replica) {
  for (const TokenId label : labels) newest_[label].set(replica);
  if (newest_.size() < kBlocksMax) return;
  older_ = std::exchange(newest_, Map());
}

void BlockPlaces::Find(absl::Span<const TokenId> labels, absl::Span<uint32_t> blocks) const {
  std::fill(blocks.begin(), blocks.end(), 0);
  Replicas here;
  here.set();
  for (uint32_t at = 0; at < labels.size() && here.any(); ++at) {
    Replicas holders;
    for (const Map* map : {&newest_, &older_}) {
      const auto found = map->find(labels[at]);
      if (found != map->end()) holders |= found->second;
    }
    here &= holders;
    for (uint32_t i = 0; i < blocks.size(); ++i) blocks[i] += here[i];
  }
}

}  // namespace weft::router::scale
