// Scores of known tokens against sums in double precision: on one rank and several, with ties, and
// in rows that are no distribution.

#include "shard/sampling/scorer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "shard/comm/local_communicator.h"
#include "shard/comm/shm_communicator.h"
#include "shard/sampling/sampler.h"

namespace weft::shard {
namespace {

constexpr uint32_t kRowsMax = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Logits = std::vector<std::vector<float>>;

// Scores on `world` ranks in one process; all of them must say the same.
StepScores ScoreOn(uint32_t world, const Logits& logits, const std::vector<Scorer::Row>& rows) {
  const auto vocab = static_cast<uint32_t>(logits[0].size());
  const ShmShape shape{world, 1, 4096};
  std::vector<ShmSegment> segment;
  if (world > 1) segment.push_back(std::move(*ShmSegment::Create(shape)));
  std::vector<StepScores> scores(world);
  const auto run = [&](Rank rank) {
    SlicePlan slice;
    slice.rank = rank;
    slice.world = world;
    slice.vocab = Range{vocab * rank / world, vocab * (rank + 1) / world};
    const uint64_t bytes = Sampler::ExchangeBytes(vocab, world, kRowsMax);
    std::vector<uint64_t> mine(bytes / 8);
    std::vector<uint64_t> all(bytes / 8 * world);
    std::unique_ptr<HostCommunicator> communicator =
        world == 1 ? MakeLocalCommunicator(4096)
                   : std::move(*ShmCommunicator::Open(segment[0].token(), shape, rank,
                                                      absl::Seconds(30), nullptr));
    ComputePool pool(1);
    Scorer scorer(slice, kRowsMax, 1, reinterpret_cast<uint8_t*>(mine.data()),
                  reinterpret_cast<uint8_t*>(all.data()));
    std::vector<float> part;
    for (const std::vector<float>& row : logits) {
      part.insert(part.end(), row.begin() + slice.vocab.begin, row.begin() + slice.vocab.end);
    }
    const auto& kernels = kernels::cpu::KernelsFor(kernels::cpu::BestIsa());
    WEFT_CHECK(scorer.Score(rows, part.data(), kernels, *communicator, pool, &scores[rank]).ok());
  };
  std::vector<std::thread> threads;
  for (Rank rank = 1; rank < world; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const StepScores& other : scores) {
    CHECK(other.ranks == scores[0].ranks);
    CHECK(other.top == scores[0].top);
  }
  return scores[0];
}

TEST_CASE("A token's score is its log-probability, its rank and the tokens before it",
          "[shard][sampling][scores]") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const uint32_t vocab : {1u, 2u, 33u, 1000u}) {
    Logits logits(kRowsMax, std::vector<float>(vocab));
    std::vector<Scorer::Row> rows(kRowsMax);
    for (uint32_t r = 0; r < kRowsMax; ++r) {
      // Some equal ones.
      for (float& logit : logits[r]) logit = std::round(normal(random) * 8) / 8;
      rows[r] = {static_cast<TokenId>(random() % vocab), std::min(r % 4 * 7, vocab)};
    }
    for (uint32_t world = 1; world <= std::min(vocab, 3u); ++world) {
      INFO("vocabulary of " << vocab << " on " << world << " ranks");
      const StepScores scores = ScoreOn(world, logits, rows);
      REQUIRE(scores.logprobs.size() == kRowsMax);
      auto top = scores.top.begin();
      for (uint32_t r = 0; r < kRowsMax; ++r) {
        double sum = 0;
        for (const float logit : logits[r]) sum += std::exp(static_cast<double>(logit));
        std::vector<TokenId> order(vocab);
        for (TokenId id = 0; id < vocab; ++id) order[id] = id;
        std::stable_sort(order.begin(), order.end(),
                         [&](TokenId a, TokenId b) { return logits[r][a] > logits[r][b]; });
        const TokenId target = rows[r].target;
        CHECK(std::abs(scores.logprobs[r] - (logits[r][target] - std::log(sum))) < 1e-4);
        const auto place = std::find(order.begin(), order.end(), target) - order.begin();
        CHECK(scores.ranks[r] == static_cast<uint32_t>(place + 1));
        for (uint32_t i = 0; i < rows[r].top; ++i, ++top) {
          CHECK(top->first == order[i]);
          CHECK(std::abs(top->second - (logits[r][order[i]] - std::log(sum))) < 1e-4);
        }
      }
      CHECK(top == scores.top.end());
    }
  }
}

TEST_CASE("A row that is no distribution gives no number, and spares its neighbours",
          "[shard][sampling][scores]") {
  Logits logits(4, std::vector<float>{0, 0, 0, 0, 0, 0});
  logits[1][4] = std::numeric_limits<float>::quiet_NaN();
  logits[2][0] = kInfinity;
  // A token that cannot be is one all the same.
  logits[3] = {-kInfinity, -kInfinity, 0, 0, -kInfinity, -kInfinity};
  const std::vector<Scorer::Row> rows = {{1, 0}, {1, 0}, {1, 0}, {0, 4}};
  for (const uint32_t world : {1u, 2u}) {
    INFO(world << " ranks");
    const StepScores scores = ScoreOn(world, logits, rows);
    CHECK(scores.logprobs[0] == Approx(-std::log(6.0)));
    CHECK(scores.ranks[0] == 2);
    CHECK(std::isnan(scores.logprobs[1]));
    CHECK(std::isnan(scores.logprobs[2]));
    CHECK(scores.logprobs[3] == -kInfinity);
    REQUIRE(scores.top.size() == 4);
    CHECK(scores.top[0].first == 2);
    CHECK(scores.top[1].first == 3);
    // No token stands there.
    CHECK(scores.top[2].second == -kInfinity);
    CHECK(scores.top[3].second == -kInfinity);
  }
}

}  // namespace
}  // namespace weft::shard
