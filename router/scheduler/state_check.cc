#include "router/scheduler/state_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/scheduler/tenant_table.h"

namespace weft::router {
namespace {

// Thousands of years from any beginning: sums of such times do not overflow.
constexpr int64_t kTimeAbsMaxUs = int64_t{1} << 56;
// No step costs so much; far from where numbers of steps stop being whole.
constexpr double kCostUsMax = 1e15;
constexpr StepNumber kStepMax = StepNumber{1} << 62;
// A sum of weights was built up in another order.
constexpr double kSumTolerance = 1e-6;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the scheduler's state has ", what));
}

bool IsLabel(const BlockHash& hash) {
  return hash.high == 0 && hash.low <= std::numeric_limits<TokenId>::max();
}

class StateCheck {
 public:
  StateCheck(const SchedulerConfig& config, const KvGroups& groups, const SchedulerState& state)
      : config_(config), groups_(groups), state_(state), slot_taken_(config.running_max, false) {}

  absl::Status Run() {
    WEFT_RETURN_IF_ERROR(CheckFrame());
    WEFT_RETURN_IF_ERROR(CheckInFlight());
    WEFT_RETURN_IF_ERROR(CheckFreeBlocks());
    WEFT_RETURN_IF_ERROR(CheckPublished());
    SequenceId last_id = 0;
    for (const SequenceState& s : state_.sequences) {
      if (s.id <= last_id) return Bad(absl::StrCat("sequence ", s.id, " out of order"));
      last_id = s.id;
      if (absl::Status status = CheckSequence(s); !status.ok()) {
        return Annotate(status, absl::StrCat("sequence ", s.id));
      }
    }
    if (suspects_running_ > 1) return Bad("two sequences that run alone");
    WEFT_RETURN_IF_ERROR(CheckDrops());
    WEFT_RETURN_IF_ERROR(CheckPartition());
    WEFT_RETURN_IF_ERROR(CheckTenants());
    return CheckCost();
  }

 private:
  // Who has a block. Those of sequences also say where it lies in their tables: a prefix is shared
  // at the same place.
  enum class Owner : uint8_t { kNobody, kPlain, kCached, kSequences };
  struct Use {
    Owner owner = Owner::kNobody;
    const PublishedBlock* published = nullptr;
    uint32_t group = 0;
    uint32_t place = 0;
    uint32_t references = 0;
    uint32_t rolling = 0;
  };
  // A sequence's rows in flight, oldest first.
  struct Flight {
    std::vector<StepRow> rows;
    uint32_t samples = 0;
  };

  uint32_t BlocksFor(uint32_t tokens) const {
    return (tokens + config_.block_tokens - 1) / config_.block_tokens;
  }
  uint32_t PlannedLength(const SequenceState& s) const {
    return s.log_tokens + s.samples_in_flight;
  }

  absl::Status CheckFrame() const;
  absl::Status CheckInFlight();
  absl::Status CheckFreeBlocks();
  absl::Status CheckPublished();
  absl::Status CheckSequence(const SequenceState& s);
  absl::Status CheckLog(const SequenceState& s) const;
  absl::Status CheckWaiting(const SequenceState& s) const;
  absl::Status CheckRunning(const SequenceState& s);
  absl::Status CheckProgress(const SequenceState& s) const;
  absl::Status CheckTable(const SequenceState& s, uint32_t group) const;
  absl::Status HoldBlocks(const SequenceState& s, uint32_t group);
  absl::Status CheckDrops() const;
  absl::Status CheckPartition() const;
  absl::Status CheckTenants() const;
  absl::Status CheckCost() const;

  const SchedulerConfig& config_;
  const KvGroups& groups_;
  const SchedulerState& state_;
  absl::flat_hash_map<SequenceId, Flight> flights_;
  std::vector<Use> uses_;
  std::vector<bool> slot_taken_;
  uint32_t suspects_running_ = 0;
};

absl::Status StateCheck::CheckFrame() const {
  if (!config_.label_ids) return Bad("no token ids: it goes on with label ids only");
  if (state_.now_us < -kTimeAbsMaxUs || state_.now_us > kTimeAbsMaxUs) {
    return Bad("a time that no clock shows");
  }
  if (state_.next_step > kStepMax || state_.next_step <= state_.in_flight.size()) {
    return Bad("an impossible number of the next step");
  }
  if (state_.formed) return absl::OkStatus();
  if (state_.kv_blocks > 0 || !state_.in_flight.empty() || !state_.drops.empty()) {
    return Bad("blocks or steps of no group");
  }
  return absl::OkStatus();
}

absl::Status StateCheck::CheckInFlight() {
  if (state_.in_flight.size() > kStepsInFlightMax) return Bad("too many steps in flight");
  for (const StepState& step : state_.in_flight) {
    if (uint64_t{step.rows} + step.prompt_tokens > config_.step_tokens_max ||
        step.step_rows.size() > config_.running_max ||
        step.context_tokens > uint64_t{config_.running_max} * config_.context_tokens_max) {
      return Bad("a step in flight that is too large");
    }
    absl::flat_hash_set<SequenceId> ids;
    for (const StepRow& row : step.step_rows) {
      if (row.slot >= config_.running_max) return Bad("a row of no slot");
      if (row.kv_end == 0 || row.kv_end > config_.context_tokens_max) {
        return Bad("a row beyond the context");
      }
      if (!ids.insert(row.id).second) return Bad("two rows of a sequence in a step");
      Flight& flight = flights_[row.id];
      flight.rows.push_back(row);
      flight.samples += row.samples;
    }
  }
  return absl::OkStatus();
}

// -- Blocks
// ----------------------------------------------------------------------------------------

absl::Status StateCheck::CheckFreeBlocks() {
  uint64_t named = uint64_t{state_.plain.size()} + state_.cached.size();
  for (const SequenceState& s : state_.sequences) {
    for (const TableState& table : s.tables) named += table.blocks.size();
  }
  // So that what follows takes no more memory than the state itself did.
  if (state_.kv_blocks > named) return Bad("blocks that are nowhere");
  uses_.resize(state_.kv_blocks);
  const auto take = [this](const std::vector<BlockId>& blocks, Owner owner) {
    for (const BlockId block : blocks) {
      if (block >= uses_.size() || uses_[block].owner != Owner::kNobody) return false;
      uses_[block].owner = owner;
    }
    return true;
  };
  if (!take(state_.plain, Owner::kPlain)) return Bad("a free block twice or not in the pool");
  if (!take(state_.cached, Owner::kCached)) return Bad("a cached block twice or not in the pool");
  return absl::OkStatus();
}

absl::Status StateCheck::CheckPublished() {
  if (!config_.prefix_cache && !state_.published.empty()) return Bad("prefixes without a cache");
  absl::flat_hash_set<std::pair<uint32_t, uint64_t>> keys;
  for (const PublishedBlock& published : state_.published) {
    if (published.block >= uses_.size() || published.group >= groups_.count() ||
        !IsLabel(published.hash)) {
      return Bad("a foreign prefix");
    }
    Use& use = uses_[published.block];
    if (use.published != nullptr) return Bad("a block with two prefixes");
    if (use.owner == Owner::kPlain) return Bad("a prefix in a free block");
    if (!keys.insert({published.group, published.hash.low}).second) {
      return Bad("a prefix in two blocks");
    }
    use.published = &published;
  }
  const bool all = std::all_of(state_.cached.begin(), state_.cached.end(),
                               [this](BlockId block) { return uses_[block].published != nullptr; });
  return all ? absl::OkStatus() : Bad("a cached block without a prefix");
}

absl::Status StateCheck::CheckPartition() const {
  uint64_t set_aside = 0;
  for (const Use& use : uses_) {
    if (use.owner == Owner::kNobody) return Bad("a block that is nowhere");
    if (use.references > 1) set_aside += std::min(use.rolling, use.references - 1);
  }
  if (set_aside > state_.plain.size() + state_.cached.size()) {
    return Bad("too few free blocks for tables that roll");
  }
  return absl::OkStatus();
}

// -- Sequences
// -------------------------------------------------------------------------------------

absl::Status StateCheck::CheckSequence(const SequenceState& s) {
  WEFT_RETURN_IF_ERROR(CheckLog(s));
  if (s.tables.size() != groups_.count()) return Bad("tables of other KV groups");
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const uint32_t capacity = s.tables[group].capacity;
    // It was made for the limit before any cut.
    if (capacity < groups_.TableMax(group, BlocksFor(s.length_limit)) ||
        capacity > groups_.TableMax(group, BlocksFor(config_.context_tokens_max))) {
      return Bad("a table of another size");
    }
  }
  return s.phase == Phase::kWaiting ? CheckWaiting(s) : CheckRunning(s);
}

absl::Status StateCheck::CheckLog(const SequenceState& s) const {
  if (s.log_tokens == 0 || s.log_tokens >= s.length_limit ||
      s.length_limit > config_.context_tokens_max || s.prompt_length == 0 ||
      s.prompt_length > s.log_tokens || s.prompt_reached > s.prompt_length ||
      s.cached_tokens > s.prompt_reached) {
    return Bad("an impossible length");
  }
  if (state_.formed && groups_.SequenceMax(BlocksFor(s.length_limit - 1)) > state_.kv_blocks) {
    return Bad("a limit that the pool cannot hold");
  }
  const uint32_t full = config_.prefix_cache ? s.log_tokens / config_.block_tokens : 0;
  if (s.block_hashes.size() != full ||
      !std::all_of(s.block_hashes.begin(), s.block_hashes.end(), IsLabel)) {
    return Bad("other hashes than its blocks");
  }
  if (std::abs(int64_t{s.priority}) > kPriorityAbsMax) return Bad("an impossible priority");
  if (s.losses >= kGroupLossesMax) return Bad("too many lost groups");
  const auto flight = flights_.find(s.id);
  const bool flies = flight != flights_.end();
  if (s.steps_in_flight != (flies ? flight->second.rows.size() : 0) ||
      s.samples_in_flight != (flies ? flight->second.samples : 0)) {
    return Bad("other steps in flight than there are");
  }
  if (PlannedLength(s) > s.length_limit) return Bad("tokens in flight beyond its limit");
  return absl::OkStatus();
}

absl::Status StateCheck::CheckWaiting(const SequenceState& s) const {
  const bool empty = std::all_of(s.tables.begin(), s.tables.end(), [](const TableState& table) {
    return table.first == 0 && table.end == 0 && table.untold_left == 0 &&
           table.untold_appended == 0 && table.blocks.empty();
  });
  if (!empty || s.slot != kNoSlot || s.computed != 0 || s.confirmed != 0 || s.reach != 0 ||
      s.next_leave != 0 || s.has_untold || s.published_blocks != 0 || s.kept_until != 0) {
    return Bad("what only running sequences have");
  }
  return absl::OkStatus();
}

absl::Status StateCheck::CheckRunning(const SequenceState& s) {
  if (!state_.formed || !s.was_admitted) return Bad("a place before it was let in");
  if (s.slot >= config_.running_max || slot_taken_[s.slot])
    return Bad("a slot that it cannot have");
  slot_taken_[s.slot] = true;
  suspects_running_ += s.losses > kGroupLossesShared;
  WEFT_RETURN_IF_ERROR(CheckProgress(s));
  bool has_untold = false;
  uint64_t next_leave = std::numeric_limits<uint64_t>::max();
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    WEFT_RETURN_IF_ERROR(CheckTable(s, group));
    WEFT_RETURN_IF_ERROR(HoldBlocks(s, group));
    const TableState& table = s.tables[group];
    has_untold |= table.untold_left > 0 || table.untold_appended > 0;
    if (groups_.has_window(group)) {
      next_leave = std::min(next_leave, groups_.EndOfUse(group, table.first));
    }
  }
  if (has_untold != s.has_untold) return Bad("news for the shards that are none");
  if (next_leave != s.next_leave) return Bad("blocks that leave at another position");
  return absl::OkStatus();
}

absl::Status StateCheck::CheckProgress(const SequenceState& s) const {
  const bool decodes = s.phase == Phase::kDecoding;
  if (s.kept_until > config_.context_tokens_max) return Bad("a place kept beyond the context");
  if (decodes ? uint64_t{s.computed} + 1 != PlannedLength(s)
              : s.computed >= s.log_tokens || s.samples_in_flight > 0) {
    return Bad("another part of its log computed than its phase says");
  }
  // What each answer confirms is in the log by then.
  Position confirmed = s.confirmed;
  uint32_t length = s.log_tokens;
  if (const auto flight = flights_.find(s.id); flight != flights_.end()) {
    for (const StepRow& row : flight->second.rows) {
      if (row.slot != s.slot || row.kv_end <= confirmed || row.kv_end > length) {
        return Bad("a row that is not its own");
      }
      confirmed = row.kv_end;
      length += row.samples;
    }
  }
  if (confirmed != s.computed) return Bad("rows in flight that do not lead to what is computed");
  if (s.published_blocks != (config_.prefix_cache ? s.confirmed / config_.block_tokens : 0)) {
    return Bad("another number of published blocks");
  }
  const uint32_t covered = std::max(decodes ? s.computed : s.log_tokens, s.kept_until);
  return s.reach == BlocksFor(covered) ? absl::OkStatus() : Bad("tables that reach elsewhere");
}

absl::Status StateCheck::CheckTable(const SequenceState& s, uint32_t group) const {
  const TableState& table = s.tables[group];
  const uint32_t size_max = groups_.TableMax(group, s.reach);
  if (table.end < table.first || table.end > s.reach ||
      table.blocks.size() != table.end - table.first || table.blocks.size() > table.capacity ||
      table.blocks.size() > size_max) {
    return Bad("an impossible table");
  }
  const bool rolls = table.end < s.reach;
  if (groups_.has_window(group) ? rolls && table.blocks.size() != size_max
                                : rolls || table.first != 0) {
    return Bad("a table that is not full");
  }
  if (table.untold_left > table.first || table.untold_appended > table.blocks.size()) {
    return Bad("more news of a table than blocks");
  }
  // Rows that were planned have their blocks there, and the shards know of them.
  if (table.first > groups_.FirstNeeded(group, s.computed) ||
      BlocksFor(s.computed) > table.end - table.untold_appended) {
    return Bad("a table that lacks what its rows read");
  }
  return absl::OkStatus();
}

absl::Status StateCheck::HoldBlocks(const SequenceState& s, uint32_t group) {
  const TableState& table = s.tables[group];
  for (uint32_t place = table.first; place < table.end; ++place) {
    const BlockId block = table.blocks[place - table.first];
    if (block >= uses_.size()) return Bad("a block not in the pool");
    Use& use = uses_[block];
    if (use.owner == Owner::kPlain || use.owner == Owner::kCached) {
      return Bad("a block that is free");
    }
    if (use.references++ == 0) {
      use.owner = Owner::kSequences;
      use.group = group;
      use.place = place;
    } else if (use.published == nullptr || use.group != group || use.place != place) {
      return Bad("a block that another place has");
    }
    use.rolling += table.end < s.reach;
    if (use.published == nullptr) continue;
    if (use.published->group != group || place >= s.published_blocks ||
        !(use.published->hash == s.block_hashes[place])) {
      return Bad("a block with another prefix");
    }
  }
  return absl::OkStatus();
}

absl::Status StateCheck::CheckDrops() const {
  std::vector<bool> dropped(config_.running_max, false);
  for (const Slot slot : state_.drops) {
    if (slot >= config_.running_max || slot_taken_[slot] || dropped[slot]) {
      return Bad("a drop of a slot that nobody left");
    }
    dropped[slot] = true;
  }
  return absl::OkStatus();
}

// -- Tenants and costs
// -----------------------------------------------------------------------------

absl::Status StateCheck::CheckTenants() const {
  absl::flat_hash_set<TenantIndex> active;
  for (const SequenceState& s : state_.sequences) active.insert(s.tenant);
  absl::flat_hash_set<TenantIndex> known;
  uint32_t idle = 0;
  double weights = 0;
  int64_t last_idle_us = -kTimeAbsMaxUs;
  for (const TenantState& tenant : state_.tenants) {
    if (!known.insert(tenant.index).second || tenant.idle == active.contains(tenant.index)) {
      return Bad("tenants that are not those of its sequences");
    }
    if (!(tenant.weight >= kTenantWeightMin && tenant.weight <= kTenantWeightMax) ||
        !std::isfinite(tenant.served) || tenant.wait_number > state_.waits) {
      return Bad("a tenant with impossible numbers");
    }
    weights += tenant.weight;
    if (!tenant.idle) continue;
    ++idle;
    if (tenant.idle_since_us < last_idle_us || tenant.idle_since_us > state_.now_us) {
      return Bad("a tenant that left at another time");
    }
    last_idle_us = tenant.idle_since_us;
  }
  if (known.size() < active.size() + idle) return Bad("a sequence without a tenant");
  if (idle > kTenantsIdleMax) return Bad("too many tenants without sequences");
  if (!std::isfinite(state_.turn_served) ||
      !(std::abs(weights - state_.weights) <= kSumTolerance * (1 + weights))) {
    return Bad("sums that are not those of its tenants");
  }
  return absl::OkStatus();
}

absl::Status StateCheck::CheckCost() const {
  double least = 0;
  for (const double knot_us : state_.knots_us) {
    if (!(knot_us >= least && knot_us <= kCostUsMax)) return Bad("an impossible cost of rows");
    least = knot_us;
  }
  if (!(state_.context_token_us >= 0 && state_.context_token_us <= kCostUsMax)) {
    return Bad("an impossible cost of context");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckState(const SchedulerConfig& config, const KvGroups& groups,
                        const SchedulerState& state) {
  return StateCheck(config, groups, state).Run();
}

}  // namespace weft::router
