// The model inside a mock shard: it keeps slots, block tables and a KV pool like a real one, but
// its KV is a hash chain over the tokens and its sampled token a hash of (seed, position, chain).
// So one wrong, lost, doubled or misplaced token, block or position changes every later token, and
// a test that knows prompt and seed knows the whole answer. A masked row says the first allowed id
// at or cyclically after the one that it would have said. Every rule of the protocol that a step
// can break is checked and reported. Used by one thread; no I/O.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::testing {

// Which tokens the model says.
struct MockVocabulary {
  uint32_t size = 257;
  // Tokens are first .. first + count - 1 ...
  TokenId first = 97;
  uint32_t count = 26;
  // ... or, in so many of a thousand cases, this one.
  TokenId eos = 256;
  uint32_t eos_permille = 0;
};

// What the model says after a log with this hash chain.
TokenId MockToken(const MockVocabulary& vocabulary, uint64_t seed, Position position,
                  uint64_t chain);
uint64_t MockChain(uint64_t chain, TokenId id);

// What the model says of a prompt's token `id` behind a log with this hash chain: the
// log-probability, and of `rank` counted from 0 the most likely token and what it says of that.
float MockScore(uint64_t chain, TokenId id);
TokenId MockBest(const MockVocabulary& vocabulary, uint64_t chain, uint32_t rank);

// Whether an answer may go on with an id.
using MockRule = std::function<bool(absl::Span<const TokenId> answer, TokenId id)>;
// The first id that may follow `answer`, from `id` on and then from 0. Without a rule `id` itself.
TokenId MockAllowed(const MockVocabulary& vocabulary, const MockRule& rule,
                    absl::Span<const TokenId> answer, TokenId id);
// Only `allowed`, where there are any; and no id with which the answer would end in one of
// `sequences`. Null where it says nothing.
MockRule MakeMockRule(std::vector<TokenId> allowed, std::vector<std::vector<TokenId>> sequences);

// The answer to a prompt, as an undisturbed group gives it: up to `tokens_max` tokens, the last one
// may be EOS.
std::vector<TokenId> MockAnswer(const MockVocabulary& vocabulary, absl::Span<const TokenId> prompt,
                                uint64_t seed, uint32_t tokens_max, bool ignore_eos = false,
                                const MockRule& rule = nullptr);

struct MockShape {
  uint32_t kv_blocks = 256;
  uint32_t block_tokens = 16;
  // By KV group; 0: the whole context.
  std::vector<uint32_t> kv_windows = {0};
  uint32_t context_tokens = 1024;
  uint32_t running_max = 64;
  uint32_t step_tokens_max = 512;
  MockVocabulary vocabulary;
};

class MockModel {
 public:
  explicit MockModel(const MockShape& shape);

  // Begins an epoch: no slots, KV worth nothing.
  void Reset();
  // Runs one step and fills rows, ids, hash and log-probabilities of `response`.
  void Prefill(const weft::shard::v1::PrefillRequest& request,
               weft::shard::v1::StepResponse* response);
  void Decode(const weft::shard::v1::DecodeRequest& request,
              weft::shard::v1::StepResponse* response);
  void Filter(const weft::shard::v1::FilterBatchRequest& request);

  // Masks of a step that has not run; a step's may come in parts, before it or after it.
  void AddMasks(const weft::shard::v1::MaskRowsRequest& request);
  // Each masked row of the next step has its mask.
  bool MasksReady(const weft::shard::v1::PrefillRequest& request) const;
  bool MasksReady(const weft::shard::v1::DecodeRequest& request) const;

  // Appends the sequences that decode in a step that has not run.
  void AddRows(const weft::shard::v1::StepHeader& header,
               const google::protobuf::RepeatedField<uint32_t>& skip,
               std::vector<SequenceId>* sequences) const;

  // Rules broken so far, in words.
  const std::vector<std::string>& violations() const { return violations_; }
  size_t held_slots() const { return slots_.size(); }
  // Totals, to prove that a test met what it means to meet.
  uint64_t chunks() const { return chunks_; }
  uint64_t mixed_steps() const { return mixed_steps_; }
  uint64_t prefix_hits() const { return prefix_hits_; }
  uint64_t masked_rows() const { return masked_rows_; }
  // Blocks that left the front of a table.
  uint64_t blocks_left() const { return blocks_left_; }

 private:
  struct Entry {
    uint64_t chain = 0;
    Position position = 0;
    uint32_t group = 0;
    bool valid = false;
  };
  struct Table {
    uint32_t first = 0;
    std::deque<BlockId> ids;
  };
  // By KV group.
  using Tables = std::vector<Table>;
  struct SlotState {
    SequenceId sequence = 0;
    bool running = false;
    Position written = 0;
    Tables tables;
    TokenId last = 0;
    bool masked = false;
    weft::shard::v1::SamplingParams sampling;
  };

  // Its running rows have theirs.
  bool RowsReady(const weft::shard::v1::StepHeader& header,
                 const google::protobuf::RepeatedField<uint32_t>& skip) const;
  bool HasMask(StepNumber step, Slot slot) const;
  // The step has run: none of its masks is left.
  void EndMasks();
  void Apply(const weft::shard::v1::StepHeader& header);
  void DecodeRows(const google::protobuf::RepeatedField<uint32_t>& skip,
                  weft::shard::v1::StepResponse* response);
  void RunChunk(const weft::shard::v1::Chunk& chunk, weft::shard::v1::StepResponse* response);
  void BeginSequence(const weft::shard::v1::Chunk& chunk);
  void Score(const weft::shard::v1::Chunk& chunk, const SlotState& state,
             weft::shard::v1::StepResponse* response);
  void CheckPenaltyIds(const weft::shard::v1::Chunk& chunk, uint64_t chain_before);
  void Write(Slot slot, SlotState& state, TokenId id);
  void ApplyDelta(const weft::shard::v1::BlockDelta& delta);
  // The entry of a position in a group; null, and a broken rule, when the table does not cover it.
  Entry* Find(Slot slot, const SlotState& state, uint32_t group, Position position);
  // The table covers all that a row at `position` reads before itself, and holds it.
  void CheckReads(Slot slot, const SlotState& state, uint32_t group, Position position);
  // The chain up to `position`, from the first group whose window shows it.
  uint64_t ChainBefore(Slot slot, const SlotState& state, Position position);
  void Sample(Slot slot, SlotState& state, weft::shard::v1::StepResponse* response);
  // The tables are no more.
  void Forget(const Tables& tables);
  // `what` is a text, or makes one: nearly all conditions hold, and a text costs more than a check.
  template <typename What>
  void Expect(bool condition, const What& what) {
    if (condition) return;
    if constexpr (std::is_invocable_v<What>) {
      Break(what());
    } else {
      Break(what);
    }
  }
  void Break(const std::string& what);

  const MockShape shape_;
  std::map<Slot, SlotState> slots_;
  // Tables of slots whose first chunk is in this step.
  std::map<Slot, Tables> new_tables_;
  // How many tables have each block.
  std::vector<uint32_t> tables_of_block_;
  std::vector<Entry> kv_;
  // By step and slot, those that are not used yet.
  std::map<StepNumber, std::map<Slot, weft::shard::v1::RowMask>> masks_;
  std::vector<std::string> violations_;
  StepNumber step_ = 0;
  uint64_t chunks_ = 0;
  uint64_t mixed_steps_ = 0;
  uint64_t prefix_hits_ = 0;
  uint64_t masked_rows_ = 0;
  uint64_t blocks_left_ = 0;
};

}  // namespace weft::testing
