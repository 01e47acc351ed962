// Sampling on the device, all rows of a step: logit bias, mask, penalties, temperature, top-k,
// typical-p, top-p, min-p, draw; log-probabilities of the model's own distribution (before bias,
// penalties, temperature and filters). Each is computed only for rows that ask for it. Owned by the
// model runner, called by its device thread; rows are spread over the compute pool.
//
// Every rank has a slice of the vocabulary. Ranks exchange, in one gather a step, what each row's
// parameters say (invariant rank.same): greedy and temperature-only rows their best (score, id),
// rows with top-k <= kTopKExchangeMax their k best, other rows their whole slice; each rank then
// ends with the same token. The token depends on the logits, parameters, seed and position alone
// (invariant rng.key). A row of which any rank has NaN or +infinity, or all have nothing finite,
// gets id 0 and is reported as invalid, by all ranks alike.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "kernels/cpu/kernels.h"
#include "shard/comm/communicator.h"
#include "shard/device/host/compute_pool.h"
#include "shard/sampling/filters.h"
#include "shard/sampling/state.h"
#include "shard/step_batch.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

class Sampler {
 public:
  static constexpr uint32_t kTopKExchangeMax = 1024;

  struct Row {
    Slot slot = 0;
    // Index of the sampled token in its sequence.
    Position position = 0;
    // The ids that it may be; null = all.
    const RowMask* mask = nullptr;
  };

  // `threads`: of the pool that Sample gets. The exchange buffers hold ExchangeBytes and world
  // times that; null in a group of one.
  Sampler(const SlicePlan& slice, uint32_t vocab, uint32_t running_max, int threads,
          uint8_t* exchange_mine, uint8_t* exchange_all);

  // Bytes a rank sends at most in one step.
  static uint64_t ExchangeBytes(uint32_t vocab, uint32_t world, uint32_t running_max);

  // Forgets all slots: a new epoch.
  void Reset();
  // Begins or ends the slot's sequence. INTERNAL for a slot out of range.
  absl::Status Begin(const SequenceStart& start);
  void Drop(Slot slot);
  // kNoToken before the first sample.
  TokenId last_token(Slot slot) const {
    return slot < slots_.size() ? slots_[slot].last_token() : kNoToken;
  }

  // Samples one token for each row from `logits` ([rows, vocabulary slice], overwritten), appends
  // it to its slot and fills slots, ids, logprobs and invalid_rows of `result`.
  absl::Status Sample(absl::Span<const Row> rows, float* logits,
                      const kernels::cpu::Kernels& kernels, HostCommunicator& communicator,
                      ComputePool& pool, StepResult* result);

 private:
  // How the ranks agree on a row's token; from its parameters only.
  enum class Path : uint8_t { kGreedy, kNoise, kTopK, kFull };

  struct RowWork {
    Slot slot = 0;
    Position position = 0;
    Path path = Path::kGreedy;
    const SamplingParams* params = nullptr;
    const RowMask* mask = nullptr;
    // Where the row's record begins in each rank's exchange buffer, in 8-byte words: first the
    // log-probability part, then the choice.
    uint64_t stats_word = 0;
    uint64_t choice_word = 0;
    // Logits that bias and penalties changed, as the model gave them; with log-probabilities only.
    std::vector<Candidate> raw;
    float raw_logit = 0.0f;
    // Of this rank's slice: nothing is NaN or +infinity.
    bool valid = true;
    TokenId id = 0;
  };
  Path PathOf(const SamplingParams& params) const;
  uint32_t TopLogprobs(const SamplingParams& params) const;
  // Lays out the exchange and returns its words per rank.
  absl::StatusOr<uint64_t> Plan(absl::Span<const Row> rows);
  uint64_t* Mine(uint64_t word) const;
  const uint64_t* Theirs(Rank rank, uint64_t word) const;

  // What a row needs of this rank's slice: its record for the exchange.
  void Prepare(RowWork& row, float* logits, const kernels::cpu::Kernels& kernels, int thread);
  void ApplyBiasAndPenalties(RowWork& row, float* logits);
  // The row's token, from all ranks' records; kNoToken when its logits are no distribution.
  TokenId Choose(const RowWork& row, const float* logits, const kernels::cpu::Kernels& kernels,
                 int thread);
  // The same from all scores of the vocabulary.
  TokenId ChooseFull(const RowWork& row, const float* scores, const kernels::cpu::Kernels& kernels,
                     int thread);
  TokenId Draw(const RowWork& row, const std::vector<Candidate>& candidates,
               const kernels::cpu::Kernels& kernels, int thread);
  // The chosen tokens' raw logits, from whichever rank has them; then result->logprobs.
  absl::Status Logprobs(const float* logits, HostCommunicator& communicator, StepResult* result);
  SampledLogprobs LogprobsOf(const RowWork& row) const;

  const SlicePlan& slice_;
  const uint32_t vocab_;
  // Largest vocabulary slice of any rank.
  const uint32_t slice_max_;
  std::vector<SlotState> slots_;

  // Per step and per thread; they keep their memory.
  struct ThreadScratch {
    std::vector<Candidate> candidates;
    std::vector<float> scores;
    std::vector<float> survivors;
    FilterScratch filter;
  };
  std::vector<RowWork> rows_;
  std::vector<ThreadScratch> scratch_;
  std::vector<float> raw_mine_;
  std::vector<float> raw_all_;
  // A group of one exchanges with itself, in local_.
  std::vector<uint64_t> local_;
  uint64_t* mine_ = nullptr;
  uint64_t* all_ = nullptr;
  uint64_t words_ = 0;
};

}  // namespace weft::shard
