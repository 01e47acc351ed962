// The sampler of 1 .. N ranks on given logits, for tests: one Sampler per rank with its slice, met
// through shared memory, all in one process.

#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/check.h"
#include "shard/comm/local_communicator.h"
#include "shard/comm/shm_communicator.h"
#include "shard/sampling/sampler.h"

namespace weft::shard {

// A sequence in `slot`, with nothing known of its prompt.
inline SequenceStart StartOf(Slot slot, const SamplingParams& params) {
  SequenceStart start;
  start.slot = slot;
  start.sampling = params;
  return start;
}

// Normally distributed; the same for the same seed.
inline std::vector<float> RandomLogits(uint32_t vocab, uint32_t seed, float spread = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

class SamplerRig {
 public:
  // One row: the sequence's slot and the index of its next token, and the model's logits.
  struct Row {
    Slot slot;
    Position position;
    std::vector<float> logits;
    const RowMask* mask = nullptr;
  };

  SamplerRig(uint32_t vocab, uint32_t world, uint32_t rows_max = 16,
             kernels::cpu::Isa isa = kernels::cpu::BestIsa())
      : vocab_(vocab), kernels_(kernels::cpu::KernelsFor(isa)), ranks_(world) {
    const ShmShape shape{world, 1, 4096};
    std::vector<ShmSegment> segment;
    if (world > 1) segment.push_back(std::move(*ShmSegment::Create(shape)));
    const uint64_t bytes = Sampler::ExchangeBytes(vocab, world, rows_max);
    for (uint32_t i = 0; i < world; ++i) {
      RankState& rank = ranks_[i];
      rank.slice.rank = i;
      rank.slice.world = world;
      rank.slice.vocab = Range{vocab * i / world, vocab * (i + 1) / world};
      rank.mine.resize(bytes / 8);
      rank.all.resize(bytes / 8 * world);
      rank.pool = std::make_unique<ComputePool>(1);
      rank.sampler = std::make_unique<Sampler>(rank.slice, vocab, rows_max, 1,
                                               reinterpret_cast<uint8_t*>(rank.mine.data()),
                                               reinterpret_cast<uint8_t*>(rank.all.data()));
      if (world == 1) {
        rank.communicator = MakeLocalCommunicator(4096);
      } else {
        rank.communicator = std::move(
            *ShmCommunicator::Open(segment[0].token(), shape, i, absl::Seconds(30), nullptr));
      }
    }
  }

  void Begin(const SequenceStart& start) {
    for (RankState& rank : ranks_) WEFT_CHECK(rank.sampler->Begin(start).ok());
  }

  // Samples all rows on all ranks; throws when ranks differ.
  StepResult Sample(const std::vector<Row>& rows) {
    std::vector<StepResult> results(ranks_.size());
    std::vector<absl::Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] { statuses[i] = SampleOn(ranks_[i], rows, &results[i]); });
    }
    statuses[0] = SampleOn(ranks_[0], rows, &results[0]);
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!statuses[i].ok()) throw std::runtime_error(statuses[i].ToString());
      if (results[i].ids != results[0].ids || results[i].invalid_rows != results[0].invalid_rows) {
        throw std::runtime_error("ranks differ");
      }
    }
    return results[0];
  }

  TokenId last_token(Slot slot) const { return ranks_[0].sampler->last_token(slot); }

 private:
  struct RankState {
    SlicePlan slice;
    std::vector<uint64_t> mine;
    std::vector<uint64_t> all;
    std::unique_ptr<ComputePool> pool;
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<HostCommunicator> communicator;
  };

  absl::Status SampleOn(RankState& rank, const std::vector<Row>& rows, StepResult* result) {
    std::vector<Sampler::Row> sampled;
    std::vector<float> logits;
    for (const Row& row : rows) {
      WEFT_CHECK_EQ(row.logits.size(), size_t{vocab_});
      sampled.push_back(Sampler::Row{row.slot, row.position, row.mask});
      logits.insert(logits.end(), row.logits.begin() + rank.slice.vocab.begin,
                    row.logits.begin() + rank.slice.vocab.end);
    }
    return rank.sampler->Sample(sampled, logits.data(), kernels_, *rank.communicator, *rank.pool,
                                result);
  }

  const uint32_t vocab_;
  const kernels::cpu::Kernels& kernels_;
  std::vector<RankState> ranks_;
};

}  // namespace weft::shard
