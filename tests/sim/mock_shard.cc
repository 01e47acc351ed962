#include "tests/sim/mock_shard.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::router {
namespace {

uint64_t Extend(uint64_t history, TokenId token) { return Mix(history ^ Mix(token + 1)); }

}  // namespace

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

TokenId MockShard::TokenAt(uint64_t seed, Position position) {
  // Few tokens, so that generated texts meet; id 0 ends a sequence.
  const uint64_t random = Mix(seed * 1000003 + position);
  return random % 40 == 0 ? 0 : 1 + (random >> 32) % 3;
}

void MockShard::Reset(uint32_t kv_blocks) {
  slots_.assign(slots_.size(), SlotState{});
  kv_.assign(size_t{kv_blocks} * block_tokens_, Kv{});
  holders_.assign(kv_blocks, 0);
}

std::vector<SampledRow> MockShard::Run(const StepPlan& plan, StepNumber confirmed,
                                       const LogOf& log_of, const RequestOf& request_of) {
  for (const Slot slot : plan.drops) Drop(slot);
  for (const PlannedChunk& chunk : plan.chunks) {
    if (chunk.first) Start(chunk, log_of(chunk.id), request_of(chunk.id));
  }
  for (const PlannedBlocks& delta : plan.blocks) {
    SlotState& state = slots_.at(delta.slot);
    WEFT_CHECK_MSG(state.used, absl::StrCat("blocks for the empty slot ", delta.slot));
    for (uint32_t i = 0; i < delta.count; ++i) {
      const BlockId block = plan.block_ids.at(delta.begin + i);
      state.table.push_back(block);
      ++holders_.at(block);
    }
  }
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
    if (chunk.first) CheckReads(state, confirmed);
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

void MockShard::Drop(Slot slot) {
  SlotState& state = slots_.at(slot);
  WEFT_CHECK_MSG(state.used, absl::StrCat("drops the empty slot ", slot));
  for (const BlockId block : state.table) --holders_[block];
  state = SlotState{};
}

void MockShard::Start(const PlannedChunk& chunk, absl::Span<const TokenId> log,
                      const MockRequest& request) {
  SlotState& state = slots_.at(chunk.slot);
  WEFT_CHECK_MSG(!state.used, absl::StrCat("slot ", chunk.slot, " is in use"));
  state.used = true;
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
  WEFT_CHECK_LT(position / block_tokens_, state->table.size());
  const BlockId block = state->table[position / block_tokens_];
  WEFT_CHECK_MSG(holders_[block] == 1, absl::StrCat("writes into the shared block ", block));
  state->history.push_back(Extend(before, token));
  kv_[size_t{block} * block_tokens_ + position % block_tokens_] = {state->history.back(), step};
  CheckReads(*state, step);
}

void MockShard::CheckReads(const SlotState& state, StepNumber written_until) const {
  for (size_t q = 0; q < state.history.size(); ++q) {
    const BlockId block = state.table.at(q / block_tokens_);
    const Kv& kv = kv_[size_t{block} * block_tokens_ + q % block_tokens_];
    WEFT_CHECK_MSG(
        kv.history == state.history[q],
        absl::StrCat("block ", block, " does not hold position ", q, " of sequence ", state.id));
    WEFT_CHECK_MSG(kv.step <= written_until,
                   absl::StrCat("block ", block, " was shared before its step was answered"));
  }
}

SampledRow MockShard::Sample(Slot slot) {
  SlotState& state = slots_[slot];
  state.last_token = TokenAt(state.request.seed, static_cast<Position>(state.history.size()));
  return {slot, state.last_token};
}

}  // namespace weft::router
