#include "shard/control/step_inputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/control/sampling_fields.h"

namespace weft::shard {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string Indexed(absl::string_view name, int index) {
  return absl::StrCat(name, "[", index, "]");
}

void Clear(StepBatch* batch) {
  batch->drops.clear();
  batch->starts.clear();
  batch->ids.clear();
  batch->sequences.clear();
  batch->tables.clear();
  batch->block_ids.clear();
  batch->scorings.clear();
  batch->targets.clear();
  batch->masks.reset();
}

}  // namespace

StepInputs::StepInputs(const StepLimits& limits)
    : limits_(limits),
      table_limits_{limits_.block_tokens, limits_.kv_blocks,
                    (limits_.context_tokens + limits_.block_tokens - 1) / limits_.block_tokens,
                    limits_.kv_windows},
      slots_(limits_.running_max,
             SlotEntry{.tables = BlockTables(static_cast<uint32_t>(limits_.kv_windows.size()))}) {
  WEFT_CHECK_GT(limits.block_tokens, 0u);
  WEFT_CHECK(!limits.kv_windows.empty());
  WEFT_CHECK_GT(limits.running_max, 0u);
}

absl::Status StepInputs::Prepare(const v1::PrefillRequest& request, StepBatch* batch) {
  if (request.chunks_size() == 0) return Invalid("chunks: a Prefill needs at least one");
  if (static_cast<uint32_t>(request.chunks_size()) > kChunksPerStepMax) {
    return Invalid("chunks: ", request.chunks_size(), ", at most ", kChunksPerStepMax);
  }
  if (!request.with_decode() && request.skip_slots_size() > 0) {
    return Invalid("skip_slots: set without with_decode");
  }
  WEFT_RETURN_IF_ERROR(ApplyHeader(request.header(), batch));
  // Before the chunks, so that a sequence whose last chunk is in this step does not decode in it.
  if (request.with_decode()) WEFT_RETURN_IF_ERROR(AddDecodeRows(request.skip_slots(), batch));
  for (int i = 0; i < request.chunks_size(); ++i) {
    WEFT_RETURN_IF_ERROR(AddChunk(request.chunks(i), Indexed("chunks", i), batch));
  }
  if (opening_ > 0) {
    return Invalid("header.block_deltas: blocks for a free slot without its first chunk");
  }
  return CheckBudget(*batch);
}

absl::Status StepInputs::Prepare(const v1::DecodeRequest& request, StepBatch* batch) {
  WEFT_RETURN_IF_ERROR(ApplyHeader(request.header(), batch));
  if (opening_ > 0) return Invalid("header.block_deltas: blocks for a free slot in a Decode");
  WEFT_RETURN_IF_ERROR(AddDecodeRows(request.skip_slots(), batch));
  return CheckBudget(*batch);
}

absl::Status StepInputs::Prepare(const v1::FilterBatchRequest& request, StepBatch* batch) {
  if (request.header().block_deltas_size() > 0) {
    return Invalid("header.block_deltas: a FilterBatch only drops");
  }
  return ApplyHeader(request.header(), batch);
}

absl::Status StepInputs::ApplyHeader(const v1::StepHeader& header, StepBatch* batch) {
  Clear(batch);
  ++prepared_;
  batch->kv_groups = static_cast<uint32_t>(limits_.kv_windows.size());
  batch->epoch = header.epoch();
  batch->step = header.step();
  WEFT_RETURN_IF_ERROR(ApplyDrops(header, batch));
  return ApplyBlockDeltas(header);
}

absl::Status StepInputs::ApplyDrops(const v1::StepHeader& header, StepBatch* batch) {
  for (int i = 0; i < header.drop_slots_size(); ++i) {
    const Slot slot = header.drop_slots(i);
    if (slot >= limits_.running_max) {
      return Invalid(Indexed("header.drop_slots", i), ": slot ", slot, " is not below ",
                     limits_.running_max);
    }
    SlotEntry& entry = slots_[slot];
    if (entry.state == SlotState::kFree) {
      return Invalid(Indexed("header.drop_slots", i), ": slot ", slot, " holds no sequence");
    }
    if (entry.state == SlotState::kRunning) --running_;
    --held_;
    entry.state = SlotState::kFree;
    entry.tables.Clear();
    batch->drops.push_back(slot);
  }
  return absl::OkStatus();
}

absl::Status StepInputs::ApplyBlockDeltas(const v1::StepHeader& header) {
  for (int i = 0; i < header.block_deltas_size(); ++i) {
    const v1::BlockDelta& delta = header.block_deltas(i);
    const auto field = [i] { return Indexed("header.block_deltas", i); };
    if (delta.slot() >= limits_.running_max) {
      return Invalid(field(), ".slot: ", delta.slot(), " is not below ", limits_.running_max);
    }
    if (delta.group() >= limits_.kv_windows.size()) {
      return Invalid(field(), ".group: ", delta.group(), " is not below ",
                     limits_.kv_windows.size());
    }
    SlotEntry& entry = slots_[delta.slot()];
    const bool opens = entry.state == SlotState::kFree || entry.state == SlotState::kOpening;
    WEFT_RETURN_IF_ERROR(entry.tables.Apply(delta, table_limits_, prepared_, opens, field()));
    if (entry.state == SlotState::kFree) {
      entry.state = SlotState::kOpening;
      ++opening_;
    }
  }
  return absl::OkStatus();
}

absl::Status StepInputs::AddDecodeRows(const google::protobuf::RepeatedField<uint32_t>& skip_slots,
                                       StepBatch* batch) {
  for (int i = 0; i < skip_slots.size(); ++i) {
    const Slot slot = skip_slots[i];
    if (slot >= limits_.running_max || slots_[slot].state != SlotState::kRunning) {
      return Invalid(Indexed("skip_slots", i), ": slot ", slot, " is not running");
    }
    if (i > 0 && slot <= skip_slots[i - 1]) {
      return Invalid(Indexed("skip_slots", i), ": slots must ascend");
    }
  }
  int skip = 0;
  for (Slot slot = 0; slot < limits_.running_max; ++slot) {
    if (slots_[slot].state != SlotState::kRunning) continue;
    if (skip < skip_slots.size() && skip_slots[skip] == slot) {
      ++skip;
      continue;
    }
    if (slots_[slot].next >= limits_.context_tokens) {
      return Invalid("decode of slot ", slot, ": its context of ", limits_.context_tokens,
                     " tokens is full");
    }
    WEFT_RETURN_IF_ERROR(AddRows(slot, 1, "decode", batch));
    batch->sequences.back().from_last_sample = true;
    batch->sequences.back().sample = true;
    batch->sequences.back().masked = slots_[slot].masked;
    batch->ids.push_back(kNoToken);
  }
  return absl::OkStatus();
}

absl::Status StepInputs::AddChunk(const v1::Chunk& chunk, const std::string& field,
                                  StepBatch* batch) {
  const Slot slot = chunk.slot();
  if (slot >= limits_.running_max) {
    return Invalid(field, ".slot: ", slot, " is not below ", limits_.running_max);
  }
  WEFT_RETURN_IF_ERROR(CheckChunkIds(chunk, field));
  for (const StepSequence& earlier : batch->sequences) {
    if (earlier.slot == slot && !earlier.from_last_sample) {
      return Invalid(field, ".slot: ", slot, " has another chunk in this step");
    }
  }
  SlotEntry& entry = slots_[slot];
  WEFT_RETURN_IF_ERROR(chunk.first() ? StartSequence(chunk, field, &entry, batch)
                                     : CheckContinues(chunk, field, entry));
  const uint32_t end = chunk.start() + static_cast<uint32_t>(chunk.ids_size());
  if (entry.known_len > 0 && (chunk.last() ? end != entry.known_len : end >= entry.known_len)) {
    return Invalid(field, ".ids: they end at ", end, ", penalty_ids has ", entry.known_len,
                   " ids, last is ", chunk.last() ? "set" : "not set");
  }
  if (chunk.last() && entry.prompt_len > end) {
    return Invalid(field, ".last: the sequence ends at ", end, ", before its prompt of ",
                   entry.prompt_len, " ids");
  }
  WEFT_RETURN_IF_ERROR(AddRows(slot, static_cast<uint32_t>(chunk.ids_size()), field, batch));
  batch->sequences.back().sample = chunk.last();
  batch->sequences.back().masked = chunk.last() && entry.masked;
  batch->ids.insert(batch->ids.end(), chunk.ids().begin(), chunk.ids().end());
  if (chunk.has_scoring()) WEFT_RETURN_IF_ERROR(AddScoring(chunk, field, batch));
  if (chunk.last()) {
    entry.state = SlotState::kRunning;
    ++running_;
  }
  return absl::OkStatus();
}

absl::Status StepInputs::AddScoring(const v1::Chunk& chunk, const std::string& field,
                                    StepBatch* batch) const {
  const v1::PromptScoring& scoring = chunk.scoring();
  if (scoring.targets_size() == 0) return Invalid(field, ".scoring.targets: empty");
  // In 64 bits: start comes from the wire.
  const uint64_t end = uint64_t{scoring.start()} + static_cast<uint64_t>(scoring.targets_size());
  const uint64_t chunk_end = uint64_t{chunk.start()} + static_cast<uint64_t>(chunk.ids_size());
  if (scoring.start() < chunk.start() || end > chunk_end) {
    return Invalid(field, ".scoring.start: rows ", scoring.start(), " to ", end,
                   " are not in the chunk's ", chunk.start(), " to ", chunk_end);
  }
  if (scoring.top() > kTopLogprobsMax) {
    return Invalid(field, ".scoring.top: ", scoring.top(), " is not in [0, ", kTopLogprobsMax, "]");
  }
  for (const TokenId id : scoring.targets()) {
    if (id >= limits_.vocab_size) {
      return Invalid(field, ".scoring.targets: ", id, " is not below the vocabulary's ",
                     limits_.vocab_size);
    }
  }
  StepScoring scored;
  scored.sequence = static_cast<uint32_t>(batch->sequences.size() - 1);
  scored.first = scoring.start() - chunk.start();
  scored.begin = static_cast<uint32_t>(batch->targets.size());
  scored.count = static_cast<uint32_t>(scoring.targets_size());
  scored.top = std::min(scoring.top(), limits_.vocab_size);
  batch->scorings.push_back(scored);
  batch->targets.insert(batch->targets.end(), scoring.targets().begin(), scoring.targets().end());
  return absl::OkStatus();
}

absl::Status StepInputs::CheckChunkIds(const v1::Chunk& chunk, const std::string& field) const {
  if (chunk.ids_size() == 0) return Invalid(field, ".ids: empty");
  if (static_cast<uint32_t>(chunk.ids_size()) > limits_.step_tokens_max) {
    return Invalid(field, ".ids: ", chunk.ids_size(), " ids, a step has at most ",
                   limits_.step_tokens_max);
  }
  // In 64 bits: start comes from the wire.
  if (uint64_t{chunk.start()} + static_cast<uint64_t>(chunk.ids_size()) > limits_.context_tokens) {
    return Invalid(field, ".start: ", chunk.start(), " + ", chunk.ids_size(),
                   " ids do not fit a context of ", limits_.context_tokens);
  }
  for (const TokenId id : chunk.ids()) {
    if (id >= limits_.vocab_size) {
      return Invalid(field, ".ids: ", id, " is not below the vocabulary's ", limits_.vocab_size);
    }
  }
  return absl::OkStatus();
}

absl::Status StepInputs::StartSequence(const v1::Chunk& chunk, const std::string& field,
                                       SlotEntry* slot, StepBatch* batch) {
  if (slot->state != SlotState::kFree && slot->state != SlotState::kOpening) {
    return Invalid(field, ".first: slot ", chunk.slot(), " holds sequence ", slot->sequence);
  }
  for (const SlotEntry& other : slots_) {
    if (other.sequence == chunk.sequence() &&
        (other.state == SlotState::kPrefilling || other.state == SlotState::kRunning)) {
      return Invalid(field, ".sequence: ", chunk.sequence(), " holds another slot");
    }
  }
  if (chunk.prompt_len() == 0 || chunk.prompt_len() > limits_.context_tokens) {
    return Invalid(field, ".prompt_len: ", chunk.prompt_len(), " is not in [1, ",
                   limits_.context_tokens, "]");
  }
  SequenceStart start;
  start.slot = chunk.slot();
  start.sequence = chunk.sequence();
  start.prompt_len = chunk.prompt_len();
  WEFT_RETURN_IF_ERROR(ParseSampling(chunk.sampling(), absl::StrCat(field, ".sampling"),
                                     limits_.vocab_size, &start.sampling));
  const uint32_t known = static_cast<uint32_t>(chunk.penalty_ids_size());
  if (start.sampling.has_penalties() != (known > 0)) {
    return Invalid(field, ".penalty_ids: ", known, " ids ",
                   known > 0 ? "without a penalty" : "but a penalty needs them");
  }
  if (known > 0) {
    const uint32_t end = chunk.start() + static_cast<uint32_t>(chunk.ids_size());
    if (known < end || known > limits_.context_tokens || known < chunk.prompt_len()) {
      return Invalid(field, ".penalty_ids: ", known, " ids do not cover the sequence");
    }
    for (const TokenId id : chunk.penalty_ids()) {
      if (id >= limits_.vocab_size) {
        return Invalid(field, ".penalty_ids: ", id, " is not below the vocabulary's ",
                       limits_.vocab_size);
      }
    }
    if (!std::equal(chunk.ids().begin(), chunk.ids().end(),
                    chunk.penalty_ids().begin() + chunk.start())) {
      return Invalid(field, ".penalty_ids: they differ from ids");
    }
    start.penalty_ids.assign(chunk.penalty_ids().begin(), chunk.penalty_ids().end());
  }
  if (slot->state == SlotState::kOpening) --opening_;
  ++held_;
  slot->state = SlotState::kPrefilling;
  slot->sequence = chunk.sequence();
  slot->next = chunk.start();
  slot->prompt_len = chunk.prompt_len();
  slot->known_len = known;
  slot->masked = chunk.masked();
  batch->starts.push_back(std::move(start));
  return absl::OkStatus();
}

absl::Status StepInputs::CheckContinues(const v1::Chunk& chunk, const std::string& field,
                                        const SlotEntry& slot) const {
  if (slot.state != SlotState::kPrefilling || slot.sequence != chunk.sequence()) {
    return Invalid(field, ".slot: ", chunk.slot(), " is not being filled by sequence ",
                   chunk.sequence());
  }
  if (chunk.start() != slot.next) {
    return Invalid(field, ".start: ", chunk.start(), ", the next position is ", slot.next);
  }
  if (chunk.prompt_len() != 0 || chunk.has_sampling() || chunk.penalty_ids_size() > 0 ||
      chunk.masked()) {
    return Invalid(field,
                   ": prompt_len, sampling, penalty_ids and masked come with the first chunk only");
  }
  return absl::OkStatus();
}

absl::Status StepInputs::AddRows(Slot slot, uint32_t token_count, const std::string& field,
                                 StepBatch* batch) {
  SlotEntry& entry = slots_[slot];
  const uint32_t context = entry.next + token_count;
  WEFT_RETURN_IF_ERROR(entry.tables.CheckCover(entry.next, context, table_limits_, field, slot));
  StepSequence rows;
  rows.slot = slot;
  rows.sequence = entry.sequence;
  rows.token_begin = static_cast<uint32_t>(batch->ids.size());
  rows.token_count = token_count;
  rows.start = entry.next;
  batch->sequences.push_back(rows);
  entry.tables.AddTo(batch, context, limits_.block_tokens);
  entry.next = context;
  return absl::OkStatus();
}

absl::Status StepInputs::CheckBudget(const StepBatch& batch) const {
  if (batch.ids.size() > limits_.step_tokens_max) {
    return Invalid("step: ", batch.ids.size(), " tokens, at most ", limits_.step_tokens_max);
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
