#include "shard/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/sampling/row_logprobs.h"

namespace weft::shard {
namespace {

using kernels::cpu::Kernels;
using kernels::cpu::Precedes;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Candidate lists up to this are drawn from one by one.
constexpr size_t kScalarDrawMax = 512;
static_assert(sizeof(Range) == sizeof(uint64_t), "a range is one word of the exchange");
static_assert(sizeof(Candidate) == sizeof(uint64_t), "a candidate is one word of the exchange");

// Says in the exchange that the row's logits are no distribution: NaN or +infinity is among those
// of this rank.
constexpr Candidate kInvalidCandidate = {kNoToken, std::numeric_limits<float>::infinity()};
constexpr Range kInvalidRange = {1, 0};

bool IsInvalid(const Candidate& candidate) {
  return candidate.id == kInvalidCandidate.id && candidate.score == kInvalidCandidate.score;
}

uint32_t SliceMax(uint32_t vocab, uint32_t world) { return (vocab + world - 1) / world; }

void PutCandidate(uint64_t* word, const Candidate& candidate) {
  *word = std::bit_cast<uint64_t>(candidate);
}

Candidate GetCandidate(const uint64_t* word) { return std::bit_cast<Candidate>(*word); }

// The logit of an id after penalties: repetition as transformers, presence and frequency as OpenAI.
float Penalised(float logit, const SlotState::Count& count, const SamplingParams& params) {
  const float repetition = params.repetition_penalty;
  if (repetition != 1.0f) logit = logit > 0 ? logit / repetition : logit * repetition;
  if (count.output > 0) {
    logit -= params.frequency_penalty * static_cast<float>(count.output);
    logit -= params.presence_penalty;
  }
  return logit;
}

// Takes every id of the slice that is not allowed out of the row. Its logit is not remembered: it
// cannot be the one that is chosen.
void ApplyMask(const RowMask& mask, const Range& slice, float* logits) {
  for (uint32_t id = slice.begin; id < slice.end;) {
    const uint32_t word = mask.words[id / 32];
    const uint32_t end = std::min<uint32_t>(slice.end, (id / 32 + 1) * 32);
    float* const row = logits + (id - slice.begin);
    if (word == 0) {
      std::fill_n(row, end - id, kMinusInfinity);
    } else if (word != ~0u) {
      for (uint32_t i = 0; id + i < end; ++i) {
        if (((word >> ((id + i) % 32)) & 1u) == 0) row[i] = kMinusInfinity;
      }
    }
    id = end;
  }
}

// Makes every id of the slice that the mask lacks less likely; calls change(id) for its logit.
template <typename Change>
void ApplyPenaltyMask(const RowMask& mask, const Range& slice, float penalty, Change change) {
  for (TokenId id = slice.begin; id < slice.end; ++id) {
    if (((mask.words[id / 32] >> (id % 32)) & 1u) == 0) *change(id) -= penalty;
  }
}

}  // namespace

Sampler::Sampler(const SlicePlan& slice, uint32_t vocab, uint32_t running_max, int threads,
                 uint8_t* exchange_mine, uint8_t* exchange_all)
    : slice_(slice),
      vocab_(vocab),
      slice_max_(SliceMax(vocab, slice.world)),
      slots_(running_max),
      rows_(running_max),
      scratch_(static_cast<size_t>(threads)),
      mine_(reinterpret_cast<uint64_t*>(exchange_mine)),
      all_(reinterpret_cast<uint64_t*>(exchange_all)) {
  raw_mine_.reserve(running_max);
  raw_all_.reserve(uint64_t{running_max} * slice.world);
}

uint64_t Sampler::ExchangeBytes(uint32_t vocab, uint32_t world, uint32_t running_max) {
  const uint64_t slice_words = (uint64_t{SliceMax(vocab, world)} + 1) / 2;
  const uint64_t choice_words = std::max<uint64_t>(1 + slice_words, kTopKExchangeMax);
  return uint64_t{running_max} * (choice_words + 1 + kTopLogprobsMax) * sizeof(uint64_t);
}

void Sampler::Reset() {
  for (SlotState& slot : slots_) slot.End();
}

absl::Status Sampler::Begin(const SequenceStart& start) {
  if (start.slot >= slots_.size()) {
    return absl::InternalError(absl::StrCat("slot ", start.slot, " of ", slots_.size()));
  }
  slots_[start.slot].Begin(start);
  return absl::OkStatus();
}

void Sampler::Drop(Slot slot) {
  if (slot < slots_.size()) slots_[slot].End();
}

Sampler::Path Sampler::PathOf(const SamplingParams& params) const {
  if (params.temperature <= 0) return Path::kGreedy;
  const bool top_k = params.top_k > 0 && params.top_k < vocab_;
  if (top_k && params.top_k <= kTopKExchangeMax) return Path::kTopK;
  const bool filters = params.typical_p < 1 || params.top_p < 1 || params.min_p > 0;
  return top_k || filters ? Path::kFull : Path::kNoise;
}

uint32_t Sampler::TopLogprobs(const SamplingParams& params) const {
  return std::min({params.top_logprobs, kTopLogprobsMax, vocab_});
}

absl::StatusOr<uint64_t> Sampler::Plan(absl::Span<const Row> rows) {
  if (rows.size() > rows_.size()) {
    return absl::InternalError(absl::StrCat(rows.size(), " sampled rows of ", rows_.size()));
  }
  uint64_t words = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].slot >= slots_.size() || !slots_[rows[i].slot].active()) {
      return absl::InternalError(absl::StrCat("slot ", rows[i].slot, " holds no sequence"));
    }
    RowWork& row = rows_[i];
    row.slot = rows[i].slot;
    row.position = rows[i].position;
    row.params = &slots_[row.slot].params();
    row.mask = rows[i].mask;
    row.path = PathOf(*row.params);
    row.stats_word = words;
    if (row.params->logprobs) words += 1 + TopLogprobs(*row.params);
    row.choice_word = words;
    switch (row.path) {
      case Path::kGreedy:
      case Path::kNoise:
        words += 1;
        break;
      case Path::kTopK:
        words += row.params->top_k;
        break;
      case Path::kFull:
        // A group of one has the whole row at hand.
        if (slice_.world > 1) words += 1 + (uint64_t{slice_max_} + 1) / 2;
        break;
    }
  }
  return words;
}

uint64_t* Sampler::Mine(uint64_t word) const { return mine_ + word; }

const uint64_t* Sampler::Theirs(Rank rank, uint64_t word) const {
  return all_ + uint64_t{rank} * words_ + word;
}

absl::Status Sampler::Sample(absl::Span<const Row> rows, float* logits, const Kernels& kernels,
                             HostCommunicator& communicator, ComputePool& pool,
                             StepResult* result) {
  WEFT_ASSIGN_OR_RETURN(words_, Plan(rows));
  if (slice_.world == 1) {
    if (local_.size() < words_) local_.resize(words_);
    mine_ = all_ = local_.data();
  }
  const uint64_t columns = slice_.vocab.size();
  pool.Run(static_cast<uint32_t>(rows.size()), [&](uint32_t i, int thread) {
    Prepare(rows_[i], logits + i * columns, kernels, thread);
  });
  if (slice_.world > 1) {
    WEFT_RETURN_IF_ERROR(communicator.AllGather(mine_, words_ * sizeof(uint64_t), all_));
  }
  pool.Run(static_cast<uint32_t>(rows.size()), [&](uint32_t i, int thread) {
    rows_[i].id = Choose(rows_[i], logits + i * columns, kernels, thread);
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows_[i].id == kNoToken) {
      result->invalid_rows.push_back(static_cast<uint32_t>(i));
      // An id that every table knows: the row may be in the next step already.
      rows_[i].id = 0;
    }
    slots_[rows[i].slot].Append(rows_[i].id);
    result->slots.push_back(rows[i].slot);
    result->ids.push_back(rows_[i].id);
  }
  return Logprobs(logits, communicator, result);
}

void Sampler::Prepare(RowWork& row, float* logits, const Kernels& kernels, int thread) {
  const SamplingParams& params = *row.params;
  const int64_t columns = slice_.vocab.size();
  const TokenId first_id = slice_.vocab.begin;
  auto put_top = [&](uint64_t word, uint32_t n) {
    std::vector<Candidate>& top = scratch_[static_cast<size_t>(thread)].candidates;
    top.resize(n);
    const int64_t found = kernels.top_n(logits, columns, first_id, n, top.data());
    for (int64_t i = found; i < n; ++i) top[static_cast<size_t>(i)] = {kNoToken, kMinusInfinity};
    for (uint32_t i = 0; i < n; ++i) PutCandidate(Mine(word + i), top[i]);
  };
  if (params.logprobs) {
    *Mine(row.stats_word) = std::bit_cast<uint64_t>(StatsOf(kernels, logits, columns));
    put_top(row.stats_word + 1, TopLogprobs(params));
  }
  ApplyBiasAndPenalties(row, logits);
  row.valid = kernels.all_below_infinity(logits, columns);
  switch (row.path) {
    case Path::kGreedy:
      PutCandidate(Mine(row.choice_word),
                   row.valid ? kernels.arg_max(logits, columns, first_id) : kInvalidCandidate);
      break;
    case Path::kNoise:
      PutCandidate(Mine(row.choice_word),
                   row.valid ? kernels.gumbel_arg_max(logits, columns, first_id, params.temperature,
                                                      params.seed, row.position)
                             : kInvalidCandidate);
      break;
    case Path::kTopK:
      put_top(row.choice_word, params.top_k);
      if (!row.valid) PutCandidate(Mine(row.choice_word), kInvalidCandidate);
      break;
    case Path::kFull:
      if (slice_.world > 1 && !row.valid) {
        *Mine(row.choice_word) = std::bit_cast<uint64_t>(kInvalidRange);
      } else if (slice_.world > 1) {
        *Mine(row.choice_word) = std::bit_cast<uint64_t>(slice_.vocab);
        std::memcpy(Mine(row.choice_word + 1), logits,
                    static_cast<size_t>(columns) * sizeof(float));
      }
      break;
  }
}

void Sampler::ApplyBiasAndPenalties(RowWork& row, float* logits) {
  row.raw.clear();
  const SamplingParams& params = *row.params;
  // The id's logit, remembered as the model gave it; null outside this rank's slice.
  auto change = [&](TokenId id) -> float* {
    if (id < slice_.vocab.begin || id >= slice_.vocab.end) return nullptr;
    float* const logit = logits + (id - slice_.vocab.begin);
    if (params.logprobs) row.raw.push_back(Candidate{id, *logit});
    return logit;
  };
  for (const auto& [id, bias] : params.logit_bias) {
    if (float* const logit = change(id)) *logit += bias;
  }
  if (params.holds(slots_[row.slot].prompt_len(), row.position)) {
    for (const TokenId id : params.held_ids) {
      if (float* const logit = change(id)) *logit = kMinusInfinity;
    }
  }
  if (row.mask != nullptr && !row.mask->words.empty()) {
    if (params.mask_penalty > 0) {
      ApplyPenaltyMask(*row.mask, slice_.vocab, params.mask_penalty, change);
    } else {
      ApplyMask(*row.mask, slice_.vocab, logits);
    }
  }
  if (!params.has_penalties()) return;
  for (const SlotState::Count& count : slots_[row.slot].counts()) {
    if (float* const logit = change(count.id)) *logit = Penalised(*logit, count, params);
  }
}

TokenId Sampler::Choose(const RowWork& row, const float* logits, const Kernels& kernels,
                        int thread) {
  ThreadScratch& scratch = scratch_[static_cast<size_t>(thread)];
  switch (row.path) {
    case Path::kGreedy:
    case Path::kNoise: {
      Candidate best = {kNoToken, kMinusInfinity};
      for (Rank rank = 0; rank < slice_.world; ++rank) {
        const Candidate other = GetCandidate(Theirs(rank, row.choice_word));
        if (IsInvalid(other)) return kNoToken;
        // Not one of nothing but -infinity.
        if (other.score > kMinusInfinity && Precedes(other, best)) best = other;
      }
      return best.id;
    }
    case Path::kTopK: {
      scratch.candidates.clear();
      for (Rank rank = 0; rank < slice_.world; ++rank) {
        for (uint32_t i = 0; i < row.params->top_k; ++i) {
          const Candidate candidate = GetCandidate(Theirs(rank, row.choice_word + i));
          if (IsInvalid(candidate)) return kNoToken;
          if (candidate.id != kNoToken) scratch.candidates.push_back(candidate);
        }
      }
      // Sorted, so that sums over them round alike for every world size.
      std::sort(scratch.candidates.begin(), scratch.candidates.end(), Precedes);
      if (scratch.candidates.size() > row.params->top_k) {
        scratch.candidates.resize(row.params->top_k);
      }
      FilterCandidates(kernels, *row.params, 0, &scratch.filter, &scratch.candidates);
      return Draw(row, scratch.candidates, kernels, thread);
    }
    case Path::kFull:
      break;
  }
  if (slice_.world == 1) {
    return row.valid ? ChooseFull(row, logits, kernels, thread) : kNoToken;
  }
  scratch.scores.resize(vocab_);
  for (Rank rank = 0; rank < slice_.world; ++rank) {
    // The range comes first: slices may differ by one.
    const Range range = std::bit_cast<Range>(*Theirs(rank, row.choice_word));
    if (range.begin > range.end) return kNoToken;
    std::memcpy(scratch.scores.data() + range.begin, Theirs(rank, row.choice_word + 1),
                range.size() * sizeof(float));
  }
  return ChooseFull(row, scratch.scores.data(), kernels, thread);
}

TokenId Sampler::ChooseFull(const RowWork& row, const float* scores, const Kernels& kernels,
                            int thread) {
  ThreadScratch& scratch = scratch_[static_cast<size_t>(thread)];
  FilterScores(kernels, *row.params, scores, vocab_, &scratch.filter, &scratch.candidates);
  return Draw(row, scratch.candidates, kernels, thread);
}

TokenId Sampler::Draw(const RowWork& row, const std::vector<Candidate>& candidates,
                      const Kernels& kernels, int thread) {
  // Only a model that gives no number at all leaves nothing to choose from.
  if (candidates.empty()) return kNoToken;
  const SamplingParams& params = *row.params;
  if (candidates.size() <= kScalarDrawMax) {
    return kernels::cpu::GumbelArgMaxOfCandidates(candidates.data(),
                                                  static_cast<int64_t>(candidates.size()),
                                                  params.temperature, params.seed, row.position)
        .id;
  }
  // The vector kernel over the whole row gives the same bits, and is faster for many.
  std::vector<float>& scores = scratch_[static_cast<size_t>(thread)].survivors;
  scores.assign(vocab_, kMinusInfinity);
  for (const Candidate& candidate : candidates) scores[candidate.id] = candidate.score;
  return kernels
      .gumbel_arg_max(scores.data(), vocab_, 0, params.temperature, params.seed, row.position)
      .id;
}

absl::Status Sampler::Logprobs(const float* logits, HostCommunicator& communicator,
                               StepResult* result) {
  raw_mine_.clear();
  for (size_t i = 0; i < result->ids.size(); ++i) {
    const RowWork& row = rows_[i];
    if (!row.params->logprobs) continue;
    // Minus infinity on the ranks that do not have the token.
    float raw = kMinusInfinity;
    if (row.id >= slice_.vocab.begin && row.id < slice_.vocab.end) {
      raw = logits[i * slice_.vocab.size() + (row.id - slice_.vocab.begin)];
      // The first entry of an id is the oldest.
      for (size_t k = row.raw.size(); k-- > 0;) {
        if (row.raw[k].id == row.id) raw = row.raw[k].score;
      }
    }
    raw_mine_.push_back(raw);
  }
  const size_t count = raw_mine_.size();
  if (count == 0) return absl::OkStatus();
  raw_all_.assign(raw_mine_.begin(), raw_mine_.end());
  if (slice_.world > 1) {
    raw_all_.resize(count * slice_.world);
    WEFT_RETURN_IF_ERROR(
        communicator.AllGather(raw_mine_.data(), count * sizeof(float), raw_all_.data()));
  }
  size_t next = 0;
  for (size_t i = 0; i < result->ids.size(); ++i) {
    RowWork& row = rows_[i];
    if (!row.params->logprobs) continue;
    row.raw_logit = raw_all_[next];
    for (Rank rank = 1; rank < slice_.world; ++rank) {
      row.raw_logit = std::max(row.raw_logit, raw_all_[rank * count + next]);
    }
    ++next;
    SampledLogprobs logprobs = LogprobsOf(row);
    logprobs.row = static_cast<uint32_t>(i);
    result->logprobs.push_back(std::move(logprobs));
  }
  return absl::OkStatus();
}

SampledLogprobs Sampler::LogprobsOf(const RowWork& row) const {
  const uint32_t n = TopLogprobs(*row.params);
  std::vector<Candidate> top;
  for (Rank rank = 0; rank < slice_.world; ++rank) {
    for (uint32_t i = 0; i < n; ++i) {
      top.push_back(GetCandidate(Theirs(rank, row.stats_word + 1 + i)));
    }
  }
  KeepBest(n, &top);
  const double log_sum_exp = LogSumExp(slice_.world, [&](Rank rank) {
    return std::bit_cast<RowStats>(*Theirs(rank, row.stats_word));
  });
  SampledLogprobs result;
  result.logprob = static_cast<float>(row.raw_logit - log_sum_exp);
  for (const Candidate& candidate : top) {
    result.top.emplace_back(candidate.id, static_cast<float>(candidate.score - log_sum_exp));
  }
  return result;
}

}  // namespace weft::shard
