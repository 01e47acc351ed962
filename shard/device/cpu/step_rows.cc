#include "shard/device/cpu/step_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

bool LongerContext(const StepRows::Run& a, const StepRows::Run& b) {
  return a.start + a.rows > b.start + b.rows;
}

}  // namespace

StepRows::StepRows(const StepRowsLimits& limits) : limits_(limits) {
  ids_.reserve(limits.step_tokens_max);
  positions_.reserve(limits.step_tokens_max);
  // Every sequence adds at most one short run.
  runs_.reserve(limits.step_tokens_max / kRunRows + limits.running_max + 1);
  sampled_.reserve(limits.running_max);
  scored_.reserve(limits.step_tokens_max);
  tables_.reserve(uint64_t{limits.running_max} * limits.kv_groups);
}

absl::Status StepRows::Build(const StepBatch& batch, absl::FunctionRef<TokenId(Slot)> last_token) {
  rows_ = 0;
  positions_end_ = 0;
  ids_.clear();
  positions_.clear();
  runs_.clear();
  sampled_.clear();
  scored_.clear();
  tables_.clear();
  if (batch.ids.size() > limits_.step_tokens_max || batch.sequences.size() > limits_.running_max) {
    return absl::InternalError(absl::StrCat("step of ", batch.ids.size(), " tokens and ",
                                            batch.sequences.size(), " sequences; at most ",
                                            limits_.step_tokens_max, " and ", limits_.running_max));
  }
  if (batch.kv_groups != limits_.kv_groups ||
      batch.tables.size() != batch.sequences.size() * batch.kv_groups) {
    return absl::InternalError(absl::StrCat("step with ", batch.tables.size(), " block tables of ",
                                            batch.kv_groups, " KV groups; expected ",
                                            limits_.kv_groups, " for each sequence"));
  }
  for (uint32_t i = 0; i < batch.sequences.size(); ++i) {
    WEFT_RETURN_IF_ERROR(AddSequence(batch, i, last_token));
    WEFT_RETURN_IF_ERROR(AddTables(batch, i));
  }
  WEFT_RETURN_IF_ERROR(AddScorings(batch));
  // Costly items first, so that the last one taken is a short one.
  std::sort(runs_.begin(), runs_.end(), LongerContext);
  return absl::OkStatus();
}

absl::Status StepRows::AddTables(const StepBatch& batch, uint32_t index) {
  const StepSequence& sequence = batch.sequences[index];
  const uint64_t end = uint64_t{sequence.start} + sequence.token_count;
  for (uint32_t group = 0; group < limits_.kv_groups; ++group) {
    const StepTable& table = batch.table(index, group);
    if (uint64_t{table.begin} + table.count > batch.block_ids.size() ||
        (uint64_t{table.first} + table.count) * kKvBlockTokensCpu < end) {
      return absl::InternalError(
          absl::StrCat("sequence ", sequence.sequence, ": block table too short"));
    }
    const BlockId* const blocks = batch.block_ids.data() + table.begin;
    for (uint32_t i = 0; i < table.count; ++i) {
      if (blocks[i] >= limits_.kv_blocks) {
        return absl::InternalError(
            absl::StrCat("sequence ", sequence.sequence, ": block id outside the pool"));
      }
    }
    tables_.push_back(Table{table.first, blocks});
  }
  return absl::OkStatus();
}

absl::Status StepRows::AddSequence(const StepBatch& batch, uint32_t index,
                                   absl::FunctionRef<TokenId(Slot)> last_token) {
  const StepSequence& sequence = batch.sequences[index];
  auto error = [&sequence](absl::string_view what) {
    return absl::InternalError(absl::StrCat("sequence ", sequence.sequence, ": ", what));
  };
  const uint64_t end = uint64_t{sequence.start} + sequence.token_count;
  if (sequence.token_count == 0 ||
      uint64_t{sequence.token_begin} + sequence.token_count > batch.ids.size()) {
    return error("token range outside the step");
  }
  if (end > limits_.context_tokens) return error("position outside the context");
  if (sequence.slot >= limits_.running_max) return error("slot out of range");
  for (uint32_t i = 0; i < sequence.token_count; ++i) {
    TokenId id = batch.ids[sequence.token_begin + i];
    if (sequence.from_last_sample) id = last_token(sequence.slot);
    if (id >= limits_.vocab) return error("token id outside the vocabulary");
    ids_.push_back(id);
    positions_.push_back(sequence.start + i);
  }
  for (uint32_t i = 0; i < sequence.token_count; i += kRunRows) {
    runs_.push_back(
        Run{rows_ + i, std::min(kRunRows, sequence.token_count - i), sequence.start + i, index});
  }
  rows_ += sequence.token_count;
  positions_end_ = std::max(positions_end_, static_cast<uint32_t>(end));
  if (sequence.sample) {
    sampled_.push_back(
        SampledRow{rows_ - 1, sequence.slot, static_cast<Position>(end), index, sequence.masked});
  }
  return absl::OkStatus();
}

absl::Status StepRows::AddScorings(const StepBatch& batch) {
  for (const StepScoring& scoring : batch.scorings) {
    if (scoring.sequence >= batch.sequences.size() ||
        uint64_t{scoring.begin} + scoring.count > batch.targets.size() ||
        uint64_t{scoring.first} + scoring.count > batch.sequences[scoring.sequence].token_count) {
      return absl::InternalError("scored rows outside the step");
    }
    const StepSequence& sequence = batch.sequences[scoring.sequence];
    const uint32_t first_row = sequence.token_begin + scoring.first;
    if (!scored_.empty() && scored_.back().row >= first_row) {
      return absl::InternalError("scored rows do not ascend");
    }
    for (uint32_t i = 0; i < scoring.count; ++i) {
      const TokenId target = batch.targets[scoring.begin + i];
      if (target >= limits_.vocab) return absl::InternalError("target outside the vocabulary");
      scored_.push_back(ScoredRow{first_row + i, sequence.start + scoring.first + i,
                                  scoring.sequence, target, scoring.top});
    }
  }
  return absl::OkStatus();
}

void StepRows::Keep(uint32_t row, Position position, uint32_t sequence) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    if (last.sequence == sequence && last.start + last.rows == position && last.rows < kRunRows) {
      ++last.rows;
      return;
    }
  }
  runs_.push_back(Run{row, 1, position, sequence});
}

void StepRows::KeepSampled() {
  rows_ = static_cast<uint32_t>(sampled_.size());
  runs_.clear();
  for (uint32_t i = 0; i < rows_; ++i) {
    Keep(i, sampled_[i].position - 1, sampled_[i].sequence);
  }
  std::sort(runs_.begin(), runs_.end(), LongerContext);
}

void StepRows::KeepScored(uint32_t begin, uint32_t end) {
  rows_ = end - begin;
  runs_.clear();
  for (uint32_t i = begin; i < end; ++i) {
    Keep(i - begin, scored_[i].position, scored_[i].sequence);
  }
  std::sort(runs_.begin(), runs_.end(), LongerContext);
}

}  // namespace weft::shard
