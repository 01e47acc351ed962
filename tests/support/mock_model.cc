#include "tests/support/mock_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/support/splitmix.h"

namespace weft::testing {
namespace {

namespace wire = weft::shard::v1;

constexpr size_t kViolationsMax = 20;

using test::SplitmixFinish;

// Steps whose masks may be here at one time.
constexpr StepNumber kMaskedStepsMax = 2 * kStepsInFlightMax;

bool Allows(const wire::RowMask& mask, TokenId id) {
  switch (mask.allowed_case()) {
    case wire::RowMask::kBits:
      return id / 8 < mask.bits().size() &&
             ((static_cast<uint8_t>(mask.bits()[id / 8]) >> (id % 8)) & 1u) != 0;
    case wire::RowMask::kOnly:
      return std::binary_search(mask.only().ids().begin(), mask.only().ids().end(), id);
    case wire::RowMask::kAllBut:
      return !std::binary_search(mask.all_but().ids().begin(), mask.all_but().ids().end(), id);
    case wire::RowMask::ALLOWED_NOT_SET:
      break;
  }
  return false;
}

// The same, from `id` on and then from 0; kNoToken when none is allowed.
TokenId FirstAllowed(const wire::RowMask& mask, TokenId id, uint32_t vocab_size) {
  for (uint32_t i = 0; i < vocab_size; ++i) {
    const TokenId at = (id + i) % vocab_size;
    if (Allows(mask, at)) return at;
  }
  return kNoToken;
}

bool HasPenalty(const wire::SamplingParams& sampling) {
  return sampling.repetition_penalty() != 1.0f || sampling.presence_penalty() != 0.0f ||
         sampling.frequency_penalty() != 0.0f;
}

}  // namespace

float MockScore(uint64_t chain, TokenId id) {
  return -static_cast<float>(MockChain(chain, id) % 1024) / 64;
}

TokenId MockBest(const MockVocabulary& vocabulary, uint64_t chain, uint32_t rank) {
  return static_cast<TokenId>((chain + rank) % vocabulary.size);
}

uint64_t MockChain(uint64_t chain, TokenId id) { return SplitmixFinish(chain * 31 + id + 1); }

TokenId MockToken(const MockVocabulary& vocabulary, uint64_t seed, Position position,
                  uint64_t chain) {
  const uint64_t draw =
      SplitmixFinish(chain ^ SplitmixFinish(seed + test::kSplitmixStep * position));
  if ((draw >> 32) % 1000 < vocabulary.eos_permille) return vocabulary.eos;
  return vocabulary.first + static_cast<TokenId>(draw & 0xFFFFFFFF) % vocabulary.count;
}

TokenId MockAllowed(const MockVocabulary& vocabulary, const MockRule& rule,
                    absl::Span<const TokenId> answer, TokenId id) {
  if (!rule) return id;
  for (uint32_t i = 0; i < vocabulary.size && !rule(answer, id); ++i) {
    id = (id + 1) % vocabulary.size;
  }
  return id;
}

MockRule MakeMockRule(std::vector<TokenId> allowed, std::vector<std::vector<TokenId>> sequences) {
  if (allowed.empty() && sequences.empty()) return nullptr;
  return [allowed = std::move(allowed), sequences = std::move(sequences)](
             absl::Span<const TokenId> answer, TokenId id) {
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), id) == allowed.end()) {
      return false;
    }
    return std::none_of(sequences.begin(), sequences.end(), [&](const auto& sequence) {
      const size_t before = sequence.size() - 1;
      return sequence.back() == id && before <= answer.size() &&
             std::equal(sequence.begin(), sequence.end() - 1, answer.end() - before);
    });
  };
}

std::vector<TokenId> MockAnswer(const MockVocabulary& vocabulary, absl::Span<const TokenId> prompt,
                                uint64_t seed, uint32_t tokens_max, bool ignore_eos,
                                const MockRule& rule) {
  uint64_t chain = 0;
  for (TokenId id : prompt) chain = MockChain(chain, id);
  std::vector<TokenId> answer;
  while (answer.size() < tokens_max) {
    const Position position = static_cast<Position>(prompt.size() + answer.size());
    const TokenId id =
        MockAllowed(vocabulary, rule, answer, MockToken(vocabulary, seed, position, chain));
    answer.push_back(id);
    chain = MockChain(chain, id);
    if (id == vocabulary.eos && !ignore_eos) break;
  }
  return answer;
}

MockModel::MockModel(const MockShape& shape)
    : shape_(shape),
      tables_of_block_(shape.kv_blocks),
      kv_(size_t{shape.kv_blocks} * shape.block_tokens) {}

void MockModel::Reset() {
  slots_.clear();
  new_tables_.clear();
  masks_.clear();
  step_ = 0;
  std::fill(tables_of_block_.begin(), tables_of_block_.end(), 0);
  std::fill(kv_.begin(), kv_.end(), Entry{});
}

void MockModel::Prefill(const wire::PrefillRequest& request, wire::StepResponse* response) {
  Apply(request.header());
  Expect(request.chunks_size() > 0, "a Prefill without chunks");
  Expect(request.chunks_size() <= static_cast<int>(kChunksPerStepMax), "too many chunks");
  size_t tokens = 0;
  if (request.with_decode()) {
    DecodeRows(request.skip_slots(), response);
    tokens = static_cast<size_t>(response->ids_size());
    if (tokens > 0) ++mixed_steps_;
  }
  for (const wire::Chunk& chunk : request.chunks()) {
    tokens += static_cast<size_t>(chunk.ids_size());
    RunChunk(chunk, response);
  }
  Expect(tokens <= shape_.step_tokens_max,
         [&] { return absl::StrCat(tokens, " tokens in a step"); });
  Expect(slots_.size() <= shape_.running_max, "too many slots are held");
  Expect(new_tables_.empty(), "blocks for a slot that nobody holds");
  EndMasks();
}

void MockModel::Decode(const wire::DecodeRequest& request, wire::StepResponse* response) {
  Apply(request.header());
  Expect(new_tables_.empty(), "blocks for a slot that nobody holds");
  DecodeRows(request.skip_slots(), response);
  Expect(response->ids_size() > 0, "a Decode without rows");
  EndMasks();
}

void MockModel::Filter(const wire::FilterBatchRequest& request) {
  Apply(request.header());
  Expect(request.header().block_deltas_size() == 0, "a FilterBatch with blocks");
  EndMasks();
}

// -- Masks ---------------------------------------------------------------------------------------

void MockModel::AddMasks(const wire::MaskRowsRequest& request) {
  const StepNumber step = request.step();
  Expect(step > step_, [&] { return absl::StrCat("masks of step ", step, ", which has run"); });
  Expect(step <= step_ + kMaskedStepsMax,
         [&] { return absl::StrCat("masks of step ", step, ", which is far ahead"); });
  Expect(request.rows_size() > 0, "a MaskRows without rows");
  if (step <= step_ || step > step_ + kMaskedStepsMax) return;
  for (const wire::RowMask& row : request.rows()) {
    Expect(row.slot() < shape_.running_max,
           [&] { return absl::StrCat("a mask of slot ", row.slot(), ", which is too high"); });
    for (const auto* ids : {&row.only().ids(), &row.all_but().ids()}) {
      Expect(std::adjacent_find(ids->begin(), ids->end(), std::greater_equal<>()) == ids->end() &&
                 (ids->empty() || *ids->rbegin() < shape_.vocabulary.size),
             "a mask's ids do not ascend below the vocabulary");
    }
    Expect(!row.has_bits() || row.bits().size() == (shape_.vocabulary.size + 7) / 8,
           "a mask's bits are not as many as the vocabulary's");
    Expect(FirstAllowed(row, 0, shape_.vocabulary.size) != kNoToken, "a mask that allows nothing");
    Expect(masks_[step].emplace(row.slot(), row).second,
           [&] { return absl::StrCat("slot ", row.slot(), " has two masks for step ", step); });
  }
}

bool MockModel::HasMask(StepNumber step, Slot slot) const {
  const auto masks = masks_.find(step);
  return masks != masks_.end() && masks->second.count(slot) > 0;
}

bool MockModel::RowsReady(const wire::StepHeader& header,
                          const google::protobuf::RepeatedField<uint32_t>& skip) const {
  const auto& drops = header.drop_slots();
  for (const auto& [slot, state] : slots_) {
    if (!state.running || !state.masked || std::binary_search(skip.begin(), skip.end(), slot)) {
      continue;
    }
    if (std::find(drops.begin(), drops.end(), slot) != drops.end()) continue;
    if (!HasMask(header.step(), slot)) return false;
  }
  return true;
}

bool MockModel::MasksReady(const wire::PrefillRequest& request) const {
  if (request.with_decode() && !RowsReady(request.header(), request.skip_slots())) return false;
  for (const wire::Chunk& chunk : request.chunks()) {
    if (!chunk.last()) continue;
    const auto held = slots_.find(chunk.slot());
    const bool masked =
        chunk.first() ? chunk.masked() : held != slots_.end() && held->second.masked;
    if (masked && !HasMask(request.header().step(), chunk.slot())) return false;
  }
  return true;
}

bool MockModel::MasksReady(const wire::DecodeRequest& request) const {
  return RowsReady(request.header(), request.skip_slots());
}

void MockModel::EndMasks() {
  const auto left = masks_.find(step_);
  if (left == masks_.end()) return;
  for (const auto& [slot, mask] : left->second) {
    Expect(false, [&slot = slot] {
      return absl::StrCat("a mask for slot ", slot, ", which samples no masked row");
    });
  }
  masks_.erase(left);
}

// Drops first, then blocks (invariant wire.once).
void MockModel::Apply(const wire::StepHeader& header) {
  step_ = header.step();
  for (Slot slot : header.drop_slots()) {
    const auto held = slots_.find(slot);
    Expect(held != slots_.end(), [&] { return absl::StrCat("drop of free slot ", slot); });
    if (held == slots_.end()) continue;
    Forget(held->second.tables);
    slots_.erase(held);
  }
  for (const auto& [slot, tables] : new_tables_) Forget(tables);
  new_tables_.clear();
  for (const wire::BlockDelta& delta : header.block_deltas()) ApplyDelta(delta);
}

void MockModel::ApplyDelta(const wire::BlockDelta& delta) {
  if (delta.group() >= shape_.kv_windows.size() || delta.slot() >= shape_.running_max) {
    return Expect(false, "a delta for no group or slot");
  }
  const auto held = slots_.find(delta.slot());
  const bool is_new = held == slots_.end();
  Tables& tables = is_new ? new_tables_[delta.slot()] : held->second.tables;
  tables.resize(shape_.kv_windows.size());
  Table& table = tables[delta.group()];
  const uint32_t window = shape_.kv_windows[delta.group()];
  Expect(delta.leave_front() == 0 || window > 0,
         "a block leaves a group that sees the whole context");
  Expect(is_new || delta.leave_front() <= table.ids.size(), "more blocks leave than there are");
  table.first += delta.leave_front();
  for (uint32_t i = 0; i < delta.leave_front() && !table.ids.empty(); ++i) {
    --tables_of_block_[table.ids.front()];
    table.ids.pop_front();
    ++blocks_left_;
  }
  for (BlockId block : delta.blocks()) {
    Expect(block < shape_.kv_blocks,
           [&] { return absl::StrCat("block ", block, " is beyond the pool"); });
    Expect(std::find(table.ids.begin(), table.ids.end(), block) == table.ids.end(),
           [&] { return absl::StrCat("slot ", delta.slot(), " has block ", block, " twice"); });
    table.ids.push_back(std::min(block, shape_.kv_blocks - 1));
    ++tables_of_block_[table.ids.back()];
  }
  Expect(window == 0 ||
             table.ids.size() <= (window + shape_.step_tokens_max) / shape_.block_tokens + 2,
         "a table holds more than its window, a chunk and two blocks");
}

void MockModel::Forget(const Tables& tables) {
  for (const Table& table : tables) {
    for (const BlockId block : table.ids) --tables_of_block_[block];
  }
}

void MockModel::DecodeRows(const google::protobuf::RepeatedField<uint32_t>& skip,
                           wire::StepResponse* response) {
  Expect(std::is_sorted(skip.begin(), skip.end()), "skip_slots are not ascending");
  for (Slot slot : skip) {
    const auto held = slots_.find(slot);
    Expect(held != slots_.end() && held->second.running,
           [&] { return absl::StrCat("skip of slot ", slot, ", which does not run"); });
  }
  for (auto& [slot, state] : slots_) {
    if (!state.running || std::binary_search(skip.begin(), skip.end(), slot)) continue;
    Write(slot, state, state.last);
    Sample(slot, state, response);
  }
}

void MockModel::AddRows(const wire::StepHeader& header,
                        const google::protobuf::RepeatedField<uint32_t>& skip,
                        std::vector<SequenceId>* sequences) const {
  const auto& drops = header.drop_slots();
  for (const auto& [slot, state] : slots_) {
    if (!state.running || std::binary_search(skip.begin(), skip.end(), slot)) continue;
    if (std::find(drops.begin(), drops.end(), slot) == drops.end()) {
      sequences->push_back(state.sequence);
    }
  }
}

void MockModel::RunChunk(const wire::Chunk& chunk, wire::StepResponse* response) {
  ++chunks_;
  Expect(chunk.slot() < shape_.running_max,
         [&] { return absl::StrCat("slot ", chunk.slot(), " is too high"); });
  Expect(chunk.ids_size() > 0, "an empty chunk");
  Expect(chunk.first() || !chunk.masked(), "a later chunk says that it is masked");
  if (chunk.first()) BeginSequence(chunk);
  const auto held = slots_.find(chunk.slot());
  if (held == slots_.end() || held->second.sequence != chunk.sequence()) {
    return Expect(false, [&] {
      return absl::StrCat("chunk for slot ", chunk.slot(), ", which sequence ", chunk.sequence(),
                          " does not hold");
    });
  }
  SlotState& state = held->second;
  Expect(!state.running, [&] { return absl::StrCat("chunk for running slot ", chunk.slot()); });
  Expect(chunk.start() == state.written, [&] {
    return absl::StrCat("slot ", chunk.slot(), ": chunk starts at ", chunk.start(),
                        ", written are ", state.written);
  });
  const uint64_t before = ChainBefore(chunk.slot(), state, state.written);
  if (chunk.first()) CheckPenaltyIds(chunk, before);
  for (TokenId id : chunk.ids()) {
    Expect(id < shape_.vocabulary.size, [&] { return absl::StrCat("token id ", id); });
    Write(chunk.slot(), state, id);
  }
  if (chunk.has_scoring()) Score(chunk, state, response);
  if (!chunk.last()) return;
  state.running = true;
  Sample(chunk.slot(), state, response);
}

void MockModel::Score(const wire::Chunk& chunk, const SlotState& state,
                      wire::StepResponse* response) {
  const wire::PromptScoring& scoring = chunk.scoring();
  const int64_t end = int64_t{scoring.start()} + scoring.targets_size();
  const bool inside = scoring.start() >= chunk.start() && scoring.targets_size() > 0 &&
                      end <= int64_t{chunk.start()} + chunk.ids_size();
  Expect(inside, [&] {
    return absl::StrCat("slot ", chunk.slot(), " scores rows ", scoring.start(), " to ", end);
  });
  if (!inside) return;
  Expect(scoring.top() <= kTopLogprobsMax, "more tokens are wanted than may be");
  wire::PromptScores* out = response->add_scores();
  out->set_slot(chunk.slot());
  out->set_start(scoring.start());
  Position position = scoring.start();
  for (const TokenId target : scoring.targets()) {
    Expect(target < shape_.vocabulary.size, [&] { return absl::StrCat("target ", target); });
    const uint64_t chain = ChainBefore(chunk.slot(), state, ++position);
    out->add_logprobs(MockScore(chain, target));
    out->add_ranks(1 + target);
    for (uint32_t i = 0; i < scoring.top(); ++i) {
      out->add_top_ids(MockBest(shape_.vocabulary, chain, i));
      out->add_top_logprobs(-static_cast<float>(i));
    }
  }
}

void MockModel::BeginSequence(const wire::Chunk& chunk) {
  Expect(slots_.count(chunk.slot()) == 0,
         [&] { return absl::StrCat("slot ", chunk.slot(), " is held"); });
  Expect(chunk.prompt_len() > 0 && chunk.has_sampling(), "a first chunk without its fields");
  SlotState& state = slots_[chunk.slot()];
  state = SlotState();
  state.sequence = chunk.sequence();
  state.written = chunk.start();
  state.sampling = chunk.sampling();
  state.masked = chunk.masked();
  state.tables = std::move(new_tables_[chunk.slot()]);
  state.tables.resize(shape_.kv_windows.size());
  new_tables_.erase(chunk.slot());
  if (chunk.start() > 0) ++prefix_hits_;
  Expect(chunk.start() % shape_.block_tokens == 0, "a prefix hit inside a block");
}

void MockModel::CheckPenaltyIds(const wire::Chunk& chunk, uint64_t chain_before) {
  if (!HasPenalty(chunk.sampling())) {
    return Expect(chunk.penalty_ids_size() == 0, "penalty ids that nobody needs");
  }
  const auto& ids = chunk.penalty_ids();
  const int end = static_cast<int>(chunk.start()) + chunk.ids_size();
  if (ids.size() < end || ids.size() < static_cast<int>(chunk.prompt_len())) {
    return Expect(false, "penalty ids do not cover the sequence");
  }
  uint64_t chain = 0;
  for (uint32_t i = 0; i < chunk.start(); ++i) chain = MockChain(chain, ids[static_cast<int>(i)]);
  Expect(chain == chain_before, "penalty ids are not the prefix in the cache");
  Expect(std::equal(chunk.ids().begin(), chunk.ids().end(),
                    ids.begin() + static_cast<int>(chunk.start())),
         "penalty ids are not the chunk's");
}

void MockModel::Write(Slot slot, SlotState& state, TokenId id) {
  const Position position = state.written;
  Expect(position < shape_.context_tokens, [&] { return absl::StrCat("position ", position); });
  const uint64_t chain = MockChain(ChainBefore(slot, state, position), id);
  for (uint32_t group = 0; group < state.tables.size(); ++group) {
    CheckReads(slot, state, group, position);
    Entry* const entry = Find(slot, state, group, position);
    if (entry == nullptr) continue;
    const auto block = static_cast<BlockId>((entry - kv_.data()) / shape_.block_tokens);
    Expect(tables_of_block_[block] == 1, [&] {
      return absl::StrCat("slot ", slot, " writes block ", block, ", which another table has too");
    });
    *entry = {chain, position, group, true};
  }
  ++state.written;
}

MockModel::Entry* MockModel::Find(Slot slot, const SlotState& state, uint32_t group,
                                  Position position) {
  const Table& table = state.tables[group];
  const uint32_t block = position / shape_.block_tokens;
  if (block < table.first || block - table.first >= table.ids.size()) {
    Expect(false, [&] {
      return absl::StrCat("slot ", slot, " has no block of group ", group, " for position ",
                          position);
    });
    return nullptr;
  }
  return &kv_[size_t{table.ids[block - table.first]} * shape_.block_tokens +
              position % shape_.block_tokens];
}

void MockModel::CheckReads(Slot slot, const SlotState& state, uint32_t group, Position position) {
  const uint32_t window = shape_.kv_windows[group];
  const Position first = window == 0 || position < window ? 0 : position - window + 1;
  // Its two ends; what lies between is in the same table.
  for (const Position read : {first, position - 1}) {
    if (read < first || read >= position) continue;
    const Entry* const entry = Find(slot, state, group, read);
    Expect(entry == nullptr || (entry->valid && entry->group == group && entry->position == read),
           [&] {
             return absl::StrCat("slot ", slot, " reads position ", read, " of group ", group,
                                 ", which was never written");
           });
  }
}

uint64_t MockModel::ChainBefore(Slot slot, const SlotState& state, Position position) {
  if (position == 0) return 0;
  for (uint32_t group = 0; group < state.tables.size(); ++group) {
    if (shape_.kv_windows[group] == 1) continue;
    const Entry* const entry = Find(slot, state, group, position - 1);
    if (entry == nullptr) return 0;
    Expect(entry->valid, [&] {
      return absl::StrCat("slot ", slot, " reads position ", position - 1,
                          ", which was never written");
    });
    return entry->chain;
  }
  Expect(false, "no group shows the position before");
  return 0;
}

void MockModel::Sample(Slot slot, SlotState& state, wire::StepResponse* response) {
  const uint64_t chain = ChainBefore(slot, state, state.written);
  state.last = MockToken(shape_.vocabulary, state.sampling.seed(), state.written, chain);
  if (state.masked) {
    ++masked_rows_;
    const bool has_mask = HasMask(step_, slot);
    Expect(has_mask, [&] { return absl::StrCat("slot ", slot, " has no mask"); });
    if (has_mask) {
      state.last = FirstAllowed(masks_[step_][slot], state.last, shape_.vocabulary.size);
      masks_[step_].erase(slot);
    }
  }
  const uint32_t row = static_cast<uint32_t>(response->ids_size());
  response->add_slots(slot);
  response->add_ids(state.last);
  if (!state.sampling.logprobs()) return;
  wire::RowLogprobs* logprobs = response->add_logprobs();
  logprobs->set_row(row);
  logprobs->set_logprob(-static_cast<float>(state.last) / 64);
  for (uint32_t i = 0; i < state.sampling.top_logprobs(); ++i) {
    auto* top = logprobs->add_top();
    top->set_id(shape_.vocabulary.first + i);
    top->set_logprob(-static_cast<float>(i));
  }
}

void MockModel::Break(const std::string& what) {
  if (violations_.size() >= kViolationsMax) return;
  violations_.push_back(absl::StrCat("step ", step_, ": ", what));
}

}  // namespace weft::testing
