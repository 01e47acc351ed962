#include "tests/sim/mock_shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/support/splitmix.h"

namespace weft::router {
namespace {

uint64_t Extend(uint64_t history, TokenId token) { return Mix(history ^ Mix(token + 1)); }

}  // namespace

uint64_t Mix(uint64_t x) { return test::Splitmix(x); }

TokenId MockShard::TokenAt(uint64_t seed, Position position) {
  // Few tokens, so that generated texts meet; id 0 ends a sequence.
  const uint64_t random = Mix(seed * 1000003 + position);
  return random % 40 == 0 ? 0 : 1 + (random >> 32) % 3;
}

void MockShard::Reset(uint32_t kv_blocks) {
  slots_.assign(slots_.size(), SlotState{});
  kv_.assign(size_t{kv_blocks} * block_tokens_, Kv{});
  holders_.assign(kv_blocks, Holders{});
}

std::vector<SampledRow> MockShard::Run(const StepPlan& plan, StepNumber confirmed,
                                       const LogOf& log_of, const RequestOf& request_of) {
  for (const Slot slot : plan.drops) Drop(slot);
  for (const PlannedChunk& chunk : plan.chunks) {
    if (chunk.first) Start(chunk, log_of(chunk.id), request_of(chunk.id));
  }
  ApplyDeltas(plan);
  std::vector<SampledRow> rows;
  std::vector<Slot> decode_slots;
  if (plan.with_decode) {
    size_t skipped = 0;
    for (Slot slot = 0; slot < slots_.size(); ++slot) {
      SlotState& state = slots_[slot];
      const bool skip = skipped < plan.skip_slots.size() && plan.skip_slots[skipped] == slot;
      skipped += skip;
      WEFT_CHECK_MSG(!skip || state.running, absl::StrCat("skips slot ", slot));
      if (!state.running || skip) continue;
      decode_slots.push_back(slot);
      Compute(&state, state.last_token, plan.step);
      rows.push_back(Sample(slot));
    }
    WEFT_CHECK_EQ(skipped, plan.skip_slots.size());
  }
  WEFT_CHECK_MSG(decode_slots == plan.decode_slots, "the running batch is not the planned one");
  for (const PlannedChunk& chunk : plan.chunks) {
    SlotState& state = slots_.at(chunk.slot);
    WEFT_CHECK_MSG(state.used && state.id == chunk.id && !state.running,
                   absl::StrCat("a chunk for somebody else in slot ", chunk.slot));
    WEFT_CHECK_EQ(chunk.start, state.history.size());
    // What a shared prefix holds was written by steps that were answered.
    if (chunk.first) CheckReads(state, chunk.start, confirmed);
    const absl::Span<const TokenId> log = log_of(chunk.id);
    for (const TokenId token : log.subspan(chunk.start, chunk.count)) {
      Compute(&state, token, plan.step);
    }
    WEFT_CHECK_EQ(chunk.last, state.history.size() == log.size());
    if (!chunk.last) continue;
    state.running = true;
    rows.push_back(Sample(chunk.slot));
  }
  return rows;
}

void MockShard::ApplyDeltas(const StepPlan& plan) {
  WEFT_CHECK(plan.blocks.empty() || plan.kind != StepKind::kFilter);
  std::set<std::pair<Slot, uint32_t>> seen;
  std::set<BlockId> left;
  // All fronts go before any block comes.
  for (const PlannedBlocks& delta : plan.blocks) {
    WEFT_CHECK_MSG(seen.insert({delta.slot, delta.group}).second, "two deltas for one table");
    ApplyDelta(plan, delta, &left);
  }
  for (const PlannedBlocks& delta : plan.blocks) {
    Table& table = slots_.at(delta.slot).tables.at(delta.group);
    for (uint32_t i = 0; i < delta.count; ++i) {
      const BlockId block = plan.block_ids.at(delta.begin + i);
      Holders& holders = holders_.at(block);
      WEFT_CHECK_MSG(holders.count == 0 || holders.group == delta.group,
                     absl::StrCat("block ", block, " is in tables of two groups"));
      ++holders.count;
      holders.group = delta.group;
      table.ids.push_back(block);
      window_report_.came_back += left.count(block);
    }
    const uint32_t window = config_.kv_windows.at(delta.group);
    WEFT_CHECK_MSG(
        window == 0 || table.ids.size() <= (window + config_.step_tokens_max) / block_tokens_ + 2,
        absl::StrCat("slot ", delta.slot, " holds ", table.ids.size(), " blocks"));
  }
}

void MockShard::ApplyDelta(const StepPlan& plan, const PlannedBlocks& delta,
                           std::set<BlockId>* left) {
  SlotState& state = slots_.at(delta.slot);
  WEFT_CHECK_MSG(state.used, absl::StrCat("blocks for the empty slot ", delta.slot));
  Table& table = state.tables.at(delta.group);
  WEFT_CHECK(delta.leave_front == 0 || config_.kv_windows.at(delta.group) > 0);
  table.first += delta.leave_front;
  const bool is_new = std::any_of(
      plan.chunks.begin(), plan.chunks.end(),
      [&](const PlannedChunk& chunk) { return chunk.first && chunk.slot == delta.slot; });
  if (is_new) {
    window_report_.hits += delta.leave_front > 0;
    return;
  }
  WEFT_CHECK_LE(delta.leave_front, table.ids.size());
  window_report_.left += delta.leave_front;
  window_report_.rolled += !state.running && delta.leave_front > 0 && delta.count > 0;
  for (uint32_t i = 0; i < delta.leave_front; ++i) {
    left->insert(table.ids.front());
    Let(table.ids.front());
    table.ids.pop_front();
  }
}

void MockShard::Let(BlockId block) {
  WEFT_CHECK_GT(holders_.at(block).count, 0u);
  --holders_[block].count;
}

void MockShard::Drop(Slot slot) {
  SlotState& state = slots_.at(slot);
  WEFT_CHECK_MSG(state.used, absl::StrCat("drops the empty slot ", slot));
  for (const Table& table : state.tables) {
    for (const BlockId block : table.ids) Let(block);
  }
  state = SlotState{};
}

void MockShard::Start(const PlannedChunk& chunk, absl::Span<const TokenId> log,
                      const MockRequest& request) {
  SlotState& state = slots_.at(chunk.slot);
  WEFT_CHECK_MSG(!state.used, absl::StrCat("slot ", chunk.slot, " is in use"));
  state.used = true;
  state.tables.resize(config_.kv_windows.size());
  state.id = chunk.id;
  state.request = request;
  uint64_t history = Mix(request.cache_salt);
  for (const TokenId token : log.first(chunk.start)) {
    history = Extend(history, token);
    state.history.push_back(history);
  }
}

void MockShard::Compute(SlotState* state, TokenId token, StepNumber step) {
  const size_t position = state->history.size();
  const uint64_t before = position == 0 ? Mix(state->request.cache_salt) : state->history.back();
  state->history.push_back(Extend(before, token));
  for (uint32_t group = 0; group < state->tables.size(); ++group) {
    const size_t place = PlaceOf(*state, group, position);
    const size_t block = place / block_tokens_;
    WEFT_CHECK_MSG(holders_[block].count == 1,
                   absl::StrCat("writes into the shared block ", block));
    kv_[place] = {Mix(state->history.back() + group), step};
  }
  CheckReads(*state, position, step);
}

size_t MockShard::PlaceOf(const SlotState& state, uint32_t group, size_t position) const {
  const Table& table = state.tables[group];
  const size_t block = position / block_tokens_;
  WEFT_CHECK_MSG(block >= table.first && block - table.first < table.ids.size(),
                 absl::StrCat("no block of group ", group, " for position ", position,
                              " of sequence ", state.id));
  return size_t{table.ids[block - table.first]} * block_tokens_ + position % block_tokens_;
}

void MockShard::CheckReads(const SlotState& state, size_t position,
                           StepNumber written_until) const {
  for (uint32_t group = 0; group < state.tables.size(); ++group) {
    const size_t window = config_.kv_windows[group];
    const size_t first = window == 0 || position < window ? 0 : position - window + 1;
    for (size_t q = first; q <= position && q < state.history.size(); ++q) {
      const Kv& kv = kv_[PlaceOf(state, group, q)];
      WEFT_CHECK_MSG(kv.history == Mix(state.history[q] + group),
                     absl::StrCat("the block of group ", group, " does not hold position ", q,
                                  " of sequence ", state.id));
      WEFT_CHECK_MSG(kv.step <= written_until, "a block was shared before its step was answered");
    }
  }
}

SampledRow MockShard::Sample(Slot slot) {
  SlotState& state = slots_[slot];
  state.last_token = TokenAt(state.request.seed, static_cast<Position>(state.history.size()));
  return {slot, state.last_token};
}

}  // namespace weft::router
