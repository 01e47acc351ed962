// Sequences that arrive, and limits that are cut. What is wrong with them is told and not checked:
// pool and context may have changed since the request was accepted.

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

absl::Status Scheduler::Impl::CheckArrival(const Arrival& arrival) const {
  const uint64_t prompt_tokens = arrival.prompt.ids().size();
  if (prompt_tokens == 0) return absl::InvalidArgumentError("prompt: has no token");
  if (arrival.max_new_tokens == 0) return absl::InvalidArgumentError("max_tokens: must be > 0");
  const uint64_t length = prompt_tokens + arrival.max_new_tokens;
  if (length > config_.context_tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens: prompt and output together are ",
                                                   length, " tokens; at most ",
                                                   config_.context_tokens_max, " are possible"));
  }
  if (std::abs(int64_t{arrival.priority}) > kPriorityAbsMax) {
    return absl::InvalidArgumentError(absl::StrCat("priority: must be within ", -kPriorityAbsMax,
                                                   " .. ", kPriorityAbsMax, ", not ",
                                                   arrival.priority));
  }
  if (!(arrival.tenant_weight >= kTenantWeightMin && arrival.tenant_weight <= kTenantWeightMax)) {
    return absl::InvalidArgumentError(absl::StrCat("weight: must be within ", kTenantWeightMin,
                                                   " .. ", kTenantWeightMax, ", not ",
                                                   arrival.tenant_weight));
  }
  if (live_.contains(arrival.id)) {
    return absl::AlreadyExistsError(absl::StrCat("sequence ", arrival.id, " is live"));
  }
  // Between groups nobody knows the next pool: whoever does not fit ends when it forms.
  if (formed_ && !FitsPool(static_cast<uint32_t>(length))) {
    return absl::ResourceExhaustedError(absl::StrCat("prompt and output together are ", length,
                                                     " tokens; the KV pool holds ",
                                                     TokensIn(pool_.total())));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Impl::OnArrival(Arrival& arrival) {
  if (absl::Status status = CheckArrival(arrival); !status.ok()) return status;
  auto owner = std::make_unique<Sequence>();
  Sequence* const s = owner.get();
  s->id = arrival.id;
  s->tenant = tenants_.Enter(arrival.tenant, arrival.tenant_weight);
  s->priority = arrival.priority;
  s->turn_us = now_us_ - arrival.priority * config_.ageing_us;
  s->prompt_length = static_cast<uint32_t>(arrival.prompt.ids().size());
  s->length_limit = s->prompt_length + arrival.max_new_tokens;
  s->ignore_eos = arrival.ignore_eos;
  s->stop_ids = std::move(arrival.stop_ids);
  s->bypass_prefix_cache = arrival.bypass_prefix_cache;
  s->cache_salt = arrival.prompt.cache_salt();
  // The tables grow in Plan(), which must not allocate.
  s->tables.reserve(groups_.count());
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    s->tables.emplace_back(groups_.TableMax(group, BlocksFor(s->length_limit)));
  }
  if (!config_.prefix_cache) {
    s->log = arrival.prompt.ReleaseIds();
  } else if (!hasher_.Take(std::move(arrival.prompt), &s->log, &s->block_hashes)) {
    ++prompts_hashed_here_;
  }
  live_.emplace(s->id, std::move(owner));
  waiting_.Push(s);
  return absl::OkStatus();
}

absl::Status Scheduler::Impl::CutLimit(SequenceId id, uint32_t tokens_max) {
  Sequence* const s = Find(id);
  if (s == nullptr) return absl::NotFoundError(absl::StrCat("sequence ", id, " is not live"));
  if (tokens_max >= s->length_limit) return absl::OkStatus();
  if (s->log.size() >= tokens_max || s->planned_length() > tokens_max) {
    return absl::FailedPreconditionError(absl::StrCat("sequence ", id, " has ", s->planned_length(),
                                                      " tokens; it cannot end at ", tokens_max));
  }
  s->length_limit = tokens_max;
  return absl::OkStatus();
}

}  // namespace weft::router
