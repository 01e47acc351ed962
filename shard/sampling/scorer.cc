#include "shard/sampling/scorer.h"

#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/sampling/row_logprobs.h"

namespace weft::shard {
namespace {

using kernels::cpu::Kernels;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

Scorer::Scorer(const SlicePlan& slice, uint32_t rows_max, int threads, uint8_t* exchange_mine,
               uint8_t* exchange_all)
    : slice_(slice),
      records_(rows_max),
      target_logits_(rows_max),
      scratch_(static_cast<size_t>(threads)),
      mine_(reinterpret_cast<uint64_t*>(exchange_mine)),
      all_(reinterpret_cast<uint64_t*>(exchange_all)) {}

absl::Status Scorer::Score(absl::Span<const Row> rows, const float* logits, const Kernels& kernels,
                           HostCommunicator& communicator, ComputePool& pool, StepScores* scores) {
  if (rows.size() > records_.size()) {
    return absl::InternalError(absl::StrCat(rows.size(), " scored rows of ", records_.size()));
  }
  words_ = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    records_[i] = words_;
    words_ += kTopWord + rows[i].top;
  }
  if (slice_.world == 1) {
    if (local_.size() < words_) local_.resize(words_);
    mine_ = all_ = local_.data();
  }
  const auto count = static_cast<uint32_t>(rows.size());
  const uint64_t columns = slice_.vocab.size();
  pool.Run(count, [&](uint32_t i, int thread) {
    Describe(rows[i], logits + i * columns, kernels, thread, mine_ + records_[i]);
  });
  WEFT_RETURN_IF_ERROR(Exchange(communicator));
  for (size_t i = 0; i < rows.size(); ++i) {
    AddRow(rows[i], records_[i], scores);
    target_logits_[i] = TargetLogit(records_[i]);
  }
  // The second exchange has one word a row.
  words_ = rows.size();
  pool.Run(count, [&](uint32_t i, int) {
    mine_[i] = CountBefore(rows[i], target_logits_[i], logits + i * columns);
  });
  WEFT_RETURN_IF_ERROR(Exchange(communicator));
  for (size_t i = 0; i < rows.size(); ++i) {
    uint64_t before = 0;
    for (Rank rank = 0; rank < slice_.world; ++rank) before += *Theirs(rank, i);
    scores->ranks.push_back(static_cast<uint32_t>(before + 1));
  }
  return absl::OkStatus();
}

absl::Status Scorer::Exchange(HostCommunicator& communicator) {
  if (slice_.world == 1) return absl::OkStatus();
  return communicator.AllGather(mine_, words_ * sizeof(uint64_t), all_);
}

void Scorer::Describe(const Row& row, const float* logits, const Kernels& kernels, int thread,
                      uint64_t* record) {
  const int64_t columns = slice_.vocab.size();
  *record = std::bit_cast<uint64_t>(StatsOf(kernels, logits, columns));
  const bool own = row.target >= slice_.vocab.begin && row.target < slice_.vocab.end;
  const Candidate target = {own ? row.target : kNoToken,
                            own ? logits[row.target - slice_.vocab.begin] : kMinusInfinity};
  record[kTargetWord] = std::bit_cast<uint64_t>(target);
  std::vector<Candidate>& top = scratch_[static_cast<size_t>(thread)];
  top.assign(row.top, Candidate{kNoToken, kMinusInfinity});
  if (row.top > 0) kernels.top_n(logits, columns, slice_.vocab.begin, row.top, top.data());
  for (uint32_t i = 0; i < row.top; ++i) {
    record[kTopWord + i] = std::bit_cast<uint64_t>(top[i]);
  }
}

float Scorer::TargetLogit(uint64_t record) const {
  for (Rank rank = 0; rank < slice_.world; ++rank) {
    const auto target = std::bit_cast<Candidate>(*Theirs(rank, record + kTargetWord));
    if (target.id != kNoToken) return target.score;
  }
  return kMinusInfinity;
}

uint32_t Scorer::CountBefore(const Row& row, float score, const float* logits) const {
  const uint32_t columns = slice_.vocab.size();
  uint32_t count = 0;
  for (uint32_t i = 0; i < columns; ++i) count += logits[i] > score ? 1 : 0;
  for (uint32_t i = 0; i < columns && slice_.vocab.begin + i < row.target; ++i) {
    count += logits[i] == score ? 1 : 0;
  }
  return count;
}

void Scorer::AddRow(const Row& row, uint64_t record, StepScores* scores) {
  best_.clear();
  for (Rank rank = 0; rank < slice_.world; ++rank) {
    for (uint32_t i = 0; i < row.top; ++i) {
      best_.push_back(std::bit_cast<Candidate>(*Theirs(rank, record + kTopWord + i)));
    }
  }
  KeepBest(row.top, &best_);
  const double log_sum_exp = LogSumExp(
      slice_.world, [&](Rank rank) { return std::bit_cast<RowStats>(*Theirs(rank, record)); });
  scores->logprobs.push_back(static_cast<float>(TargetLogit(record) - log_sum_exp));
  for (const Candidate& one : best_) {
    scores->top.emplace_back(one.id, static_cast<float>(one.score - log_sum_exp));
  }
  // Tokens at -infinity are none: whoever reads the scores leaves them out.
  for (size_t i = best_.size(); i < row.top; ++i) scores->top.emplace_back(0, kMinusInfinity);
}

}  // namespace weft::shard
