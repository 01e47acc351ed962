#include "tests/shard/control/batch_fault.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace weft::shard {
namespace {

std::string TableFault(const StepLimits& limits, const StepBatch& batch, size_t sequence,
                       uint64_t* blocks) {
  const StepSequence& rows = batch.sequences[sequence];
  for (uint32_t group = 0; group < limits.kv_windows.size(); ++group) {
    const StepTable& table = batch.table(sequence, group);
    const uint32_t window = limits.kv_windows[group];
    const uint32_t seen = window == 0 || window > rows.start ? 0 : rows.start + 1 - window;
    const uint64_t first = table.first;
    if (table.begin != *blocks) return "where its table begins";
    if (first * limits.block_tokens > seen) return "a table that lacks what its rows read";
    if ((first + table.count) * limits.block_tokens < rows.start + rows.token_count) {
      return "a table that ends before its rows";
    }
    *blocks += table.count;
  }
  return "";
}

std::string RowsFault(const StepLimits& limits, const StepBatch& batch, const StepSequence& rows,
                      uint64_t tokens) {
  if (rows.slot >= limits.running_max) return "its slot";
  if (rows.token_count == 0 || rows.token_begin != tokens) return "its range of ids";
  if (uint64_t{rows.start} + rows.token_count > limits.context_tokens) return "its context";
  if (tokens + rows.token_count > batch.ids.size()) return "more rows than ids";
  for (uint32_t i = 0; i < rows.token_count; ++i) {
    const TokenId id = batch.ids[rows.token_begin + i];
    if (rows.from_last_sample ? id != kNoToken : id >= limits.vocab_size) return "an id";
  }
  return "";
}

std::string StartFault(const StepLimits& limits, const SequenceStart& start) {
  if (start.slot >= limits.running_max) return "its slot";
  if (start.prompt_len == 0 || start.prompt_len > limits.context_tokens) return "its prompt_len";
  if (start.sampling.has_penalties() == start.penalty_ids.empty()) return "its penalty_ids";
  if (start.penalty_ids.size() > limits.context_tokens) return "too many penalty_ids";
  for (const TokenId id : start.penalty_ids) {
    if (id >= limits.vocab_size) return "a penalty id";
  }
  for (const auto& [id, bias] : start.sampling.logit_bias) {
    if (id >= limits.vocab_size || !(bias >= -100 && bias <= 100)) return "a logit bias";
  }
  return "";
}

std::string ScoringFault(const StepLimits& limits, const StepBatch& batch) {
  uint64_t targets = 0;
  for (const StepScoring& scoring : batch.scorings) {
    if (scoring.sequence >= batch.sequences.size()) return "a scoring of no sequence";
    if (scoring.begin != targets || scoring.count == 0) return "where its targets begin";
    const StepSequence& rows = batch.sequences[scoring.sequence];
    if (rows.from_last_sample) return "a decode row that is scored";
    if (uint64_t{scoring.first} + scoring.count > rows.token_count) return "more rows than it has";
    if (scoring.top > kTopLogprobsMax || scoring.top > limits.vocab_size) return "its top";
    targets += scoring.count;
  }
  if (targets != batch.targets.size()) return "targets of no row";
  for (const TokenId id : batch.targets) {
    if (id >= limits.vocab_size) return "a target";
  }
  return "";
}

}  // namespace

std::string BatchFault(const StepLimits& limits, const StepBatch& batch) {
  if (batch.ids.size() > limits.step_tokens_max) return "more ids than a step may have";
  if (batch.kv_groups != limits.kv_windows.size() ||
      batch.tables.size() != batch.sequences.size() * batch.kv_groups) {
    return "the number of tables";
  }
  uint64_t tokens = 0;
  uint64_t blocks = 0;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    std::string fault = RowsFault(limits, batch, batch.sequences[i], tokens);
    if (fault.empty()) fault = TableFault(limits, batch, i, &blocks);
    if (!fault.empty()) return absl::StrCat("sequence ", i, ": ", fault);
    tokens += batch.sequences[i].token_count;
  }
  if (tokens != batch.ids.size()) return "ids of no sequence";
  if (blocks != batch.block_ids.size()) return "blocks of no table";
  for (const BlockId block : batch.block_ids) {
    if (block >= limits.kv_blocks) return "a block outside the pool";
  }
  if (std::string fault = ScoringFault(limits, batch); !fault.empty()) return fault;
  for (const SequenceStart& start : batch.starts) {
    const std::string fault = StartFault(limits, start);
    if (!fault.empty()) return absl::StrCat("start of slot ", start.slot, ": ", fault);
  }
  for (const Slot slot : batch.drops) {
    if (slot >= limits.running_max) return "a dropped slot";
  }
  return "";
}

}  // namespace weft::shard
