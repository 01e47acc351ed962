// Scores of rows of which the next token is known: its log-probability in the model's own
// distribution (before bias, penalties, temperature and filters), its rank, and the most likely
// tokens. Owned by the model runner, called by its device thread; rows are spread over the compute
// pool. It samples nothing and knows no slots.
//
// Every rank has a slice of the vocabulary. Ranks exchange twice a call (invariant rank.same): what
// each says of its slice and of the target, if it has it; then how many of its tokens go before the
// target. Each rank ends with the same scores.

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
#include "shard/step_batch.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

class Scorer {
 public:
  struct Row {
    // Below the vocabulary's size.
    TokenId target = 0;
    // At most kTopLogprobsMax and the vocabulary's size.
    uint32_t top = 0;
  };

  // `slice` outlives the scorer. At most `rows_max` rows a call, by a pool of `threads` threads.
  // The exchange buffers may be the sampler's (Sampler::ExchangeBytes); null in a group of one.
  Scorer(const SlicePlan& slice, uint32_t rows_max, int threads, uint8_t* exchange_mine,
         uint8_t* exchange_all);

  // Appends the scores of `rows`, whose logits are [rows, vocabulary slice], to `scores`.
  absl::Status Score(absl::Span<const Row> rows, const float* logits,
                     const kernels::cpu::Kernels& kernels, HostCommunicator& communicator,
                     ComputePool& pool, StepScores* scores);

 private:
  // Words of a row's record: its statistics, the target's logit, and the best tokens.
  static constexpr uint32_t kTargetWord = 1;
  static constexpr uint32_t kTopWord = 2;

  const uint64_t* Theirs(Rank rank, uint64_t word) const { return all_ + rank * words_ + word; }
  absl::Status Exchange(HostCommunicator& communicator);
  // What this rank says of a row's slice.
  void Describe(const Row& row, const float* logits, const kernels::cpu::Kernels& kernels,
                int thread, uint64_t* record);
  // How many tokens of the slice go before the target, whose logit is `score`.
  uint32_t CountBefore(const Row& row, float score, const float* logits) const;
  // The target's logit, from the rank that has it.
  float TargetLogit(uint64_t record) const;
  void AddRow(const Row& row, uint64_t record, StepScores* scores);

  const SlicePlan& slice_;
  // Where each row's record begins, in words.
  std::vector<uint64_t> records_;
  std::vector<float> target_logits_;
  // Per thread, and for the tokens that all ranks have named.
  std::vector<std::vector<Candidate>> scratch_;
  std::vector<Candidate> best_;
  // A group of one exchanges with itself.
  std::vector<uint64_t> local_;
  uint64_t* mine_;
  uint64_t* all_;
  uint64_t words_ = 0;
};

}  // namespace weft::shard
