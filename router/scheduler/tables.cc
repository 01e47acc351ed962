// The KV blocks of a sequence, in one table for each KV group: which it finds in the prefix cache
// when it comes in, which it takes as it goes on, and which it leaves behind its windows.
//
// A prompt gets the blocks of all its positions when it comes in. Where a window lets it do with
// fewer, its table is as long as a table may be and rolls: for every block that leaves the front
// one is taken at the end, in the same plan, until the prompt's last block is there. The pool never
// refuses that block (block_pool.h), so a prompt that came in always gets on.

#include <algorithm>
#include <array>
#include <limits>

#include "common/check.h"
#include "router/scheduler/scheduler_impl.h"

namespace weft::router {

// -- What is there
// ---------------------------------------------------------------------------------

BlockId Scheduler::Impl::FindBlock(const Sequence& s, uint32_t group, uint32_t block) const {
  const auto ids = absl::MakeConstSpan(s.log).subspan(size_t{block} * config_.block_tokens,
                                                      config_.block_tokens);
  return cache_.Find(group, s.block_hashes[block], ids);
}

uint32_t Scheduler::Impl::LookUpPrefix(Sequence* s) const {
  if (!config_.prefix_cache || s->bypass_prefix_cache) return 0;
  // The last token is always computed: its row samples.
  const uint32_t hits_max = static_cast<uint32_t>(s->log.size() - 1) / config_.block_tokens;
  const uint32_t hits = HitsOfWindows(s, HitsOfWholeContexts(s, hits_max));
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    s->tables[group].SetRange(groups_.FirstNeeded(group, hits * config_.block_tokens), hits);
  }
  return hits;
}

uint32_t Scheduler::Impl::HitsOfWholeContexts(Sequence* s, uint32_t hits_max) const {
  for (uint32_t block = 0; block < hits_max; ++block) {
    bool any = false;
    for (uint32_t group = 0; group < groups_.count(); ++group) {
      if (groups_.has_window(group)) continue;
      any = true;
      const BlockId found = FindBlock(*s, group, block);
      if (found == kNoBlock) return block;
      s->tables[group].Note(block, found);
    }
    if (!any) break;
  }
  return hits_max;
}

uint32_t Scheduler::Impl::HitsOfWindows(Sequence* s, uint32_t hits) const {
  // From the longest prefix downwards: a block that is missing ends all prefixes whose windows
  // reach back to it. What was found for a longer one is not looked up again, so each block is
  // looked up once at most.
  std::array<uint32_t, kKvGroupsMax> found_from;
  found_from.fill(hits);
  uint32_t group = 0;
  while (group < groups_.count() && hits > 0) {
    const uint32_t first = groups_.FirstNeeded(group, hits * config_.block_tokens);
    uint32_t& from = found_from[group];
    from = groups_.has_window(group) ? std::min(from, hits) : first;
    BlockId found = kNoBlock;
    while (from > first && (found = FindBlock(*s, group, from - 1)) != kNoBlock) {
      s->tables[group].Note(--from, found);
    }
    if (from > first) {
      // The prefix ends before the block that is missing: all groups are asked again.
      hits = from - 1;
      group = 0;
    } else {
      ++group;
    }
  }
  return hits;
}

// -- Coming in
// -------------------------------------------------------------------------------------

uint32_t Scheduler::Impl::EndAtAdmission(uint32_t group, uint32_t hits, uint32_t reach) const {
  const uint32_t first = groups_.FirstNeeded(group, hits * config_.block_tokens);
  return first + groups_.TableMax(group, reach - first);
}

uint32_t Scheduler::Impl::CostOfTables(const Sequence& s, uint32_t hits, uint32_t reach) const {
  uint32_t cost = 0;
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const BlockTable& table = s.tables[group];
    const uint32_t end = EndAtAdmission(group, hits, reach);
    for (uint32_t block = table.first(); block < hits; ++block) {
      cost += pool_.CostOfShare(table[block], end < reach);
    }
    cost += end - hits;
  }
  return cost;
}

void Scheduler::Impl::TakeTables(Sequence* s, uint32_t hits, uint32_t reach) {
  s->reach = reach;
  // First the hits of all groups, so that none is evicted for the rest.
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const bool rolls = EndAtAdmission(group, hits, reach) < reach;
    const BlockTable& table = s->tables[group];
    for (uint32_t block = table.first(); block < hits; ++block) pool_.Share(table[block], rolls);
  }
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    const uint32_t end = EndAtAdmission(group, hits, reach);
    BlockTable& table = s->tables[group];
    while (table.end() < end) table.Append(pool_.Allocate(group, end < reach));
  }
  FindNextLeave(s);
  NoteUntold(s);
}

// -- Going on
// --------------------------------------------------------------------------------------

void Scheduler::Impl::TakeBlocks(Sequence* s) {
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    WEFT_CHECK_EQ(s->tables[group].end(), s->reach);
    s->tables[group].Append(pool_.Allocate(group, /*rolls=*/false));
  }
  ++s->reach;
  NoteUntold(s);
}

void Scheduler::Impl::LeaveFronts(Sequence* s, Position start, Position end, bool all) {
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    if (!groups_.has_window(group)) continue;
    const BlockTable& table = s->tables[group];
    uint32_t first = groups_.FirstNeeded(group, start);
    if (config_.prefix_cache && !all) {
      // Steps in flight may be writing what lies behind already.
      const uint32_t table_end = std::max(table.end(), BlocksFor(end));
      const uint32_t room_first = table_end - groups_.TableMax(group, table_end);
      first = std::min(first, std::max(s->published_blocks, room_first));
    }
    while (table.first() < first) LeaveOne(s, group);
  }
  FindNextLeave(s);
}

void Scheduler::Impl::LeaveOne(Sequence* s, uint32_t group) {
  BlockTable& table = s->tables[group];
  const bool rolls = s->rolls(table);
  // It may be given to somebody else in this plan: the shards let it go before anything runs, and
  // the steps in flight, which still read it, run before (invariant wire.once).
  pool_.Release(table.Leave(), rolls);
  NoteUntold(s);
  if (!rolls) return;
  table.Append(pool_.Allocate(group, /*rolls=*/true));
  if (s->rolls(table)) return;
  for (uint32_t i = table.first(); i < table.end(); ++i) pool_.StopRolling(table[i]);
}

void Scheduler::Impl::FindNextLeave(Sequence* s) const {
  s->next_leave = std::numeric_limits<uint64_t>::max();
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    if (!groups_.has_window(group)) continue;
    s->next_leave = std::min(s->next_leave, groups_.EndOfUse(group, s->tables[group].first()));
  }
}

// -- Telling and giving back
// -----------------------------------------------------------------------

void Scheduler::Impl::NoteUntold(Sequence* s) {
  untold_ += s->has_untold ? 0 : 1;
  s->has_untold = true;
}

void Scheduler::Impl::TellTables(Sequence* s) {
  s->has_untold = false;
  --untold_;
  for (uint32_t group = 0; group < groups_.count(); ++group) {
    BlockTable& table = s->tables[group];
    const uint32_t appended = table.untold_appended();
    if (table.untold_left() + appended == 0) continue;
    plan_.blocks.push_back({s->slot, group, table.untold_left(),
                            static_cast<uint32_t>(plan_.block_ids.size()), appended});
    for (uint32_t i = table.end() - appended; i < table.end(); ++i) {
      plan_.block_ids.push_back(table[i]);
    }
    table.Told();
  }
}

void Scheduler::Impl::ReleaseTables(Sequence* s) {
  uint32_t first = s->reach;
  for (const BlockTable& table : s->tables) first = std::min(first, table.first());
  for (uint32_t block = s->reach; block-- > first;) {
    for (const BlockTable& table : s->tables) {
      if (table.Covers(block)) pool_.Release(table[block], s->rolls(table));
    }
  }
  for (BlockTable& table : s->tables) table.Clear();
  s->reach = 0;
  s->next_leave = 0;
  if (s->has_untold) --untold_;
  s->has_untold = false;
}

}  // namespace weft::router
