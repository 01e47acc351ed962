// Sampling rows against plain loops over kernels/philox.h, on every instruction set; ties, slices
// of the vocabulary, infinities and NaN.

#include "kernels/cpu/sampling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/philox.h"
#include "tests/kernels/support.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

std::vector<float> Logits(int64_t count, uint64_t seed) {
  std::vector<float> logits = RandomFloats(count, seed);
  // Few distinct values, so that ties are common, also at the top.
  for (float& x : logits) x = std::clamp(std::round(x * 8.0f) / 8.0f, -1.0f, 1.0f);
  return logits;
}

TEST_CASE("ArgMax takes the largest logit, the lowest id of a tie, and never NaN",
          "[kernels][sampling]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t count : {1, 5, 16, 17, 100, 49152}) {
      std::vector<float> logits = Logits(count, 40);
      if (count > 5) logits[3] = NAN;
      if (count > 5) logits[2] = -INFINITY;
      int64_t best = 0;
      for (int64_t i = 1; i < count; ++i) {
        if (logits[i] > logits[best]) best = i;
      }
      const TokenScore token = KernelsFor(isa).arg_max(logits.data(), count, 1000);
      CHECK(token.id == 1000 + best);
      CHECK(token.score == logits[best]);
      CHECK(KernelsFor(isa).max(logits.data(), count) == logits[best]);
    }
    const std::vector<float> hidden(20, -INFINITY);
    CHECK(KernelsFor(isa).arg_max(hidden.data(), 20, 7).id == 7);
    // The lower id of a tie is not the one in the lower lane of a vector.
    std::vector<float> tie(64, 0.0f);
    tie[5] = tie[16] = 1.0f;
    CHECK(KernelsFor(isa).arg_max(tie.data(), 64, 0).id == 5);
  }
}

TEST_CASE("AllBelowInfinity sees NaN and infinity at every place, and nothing else",
          "[kernels][sampling]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t count : {1, 15, 16, 17, 100}) {
      std::vector<float> logits = Logits(count, 45);
      logits[count / 2] = -INFINITY;
      // Behind the end.
      logits.push_back(NAN);
      CHECK(KernelsFor(isa).all_below_infinity(logits.data(), count));
      for (const float bad : {NAN, -NAN, INFINITY}) {
        for (int64_t i = 0; i < count; ++i) {
          const float good = std::exchange(logits[i], bad);
          CHECK_FALSE(KernelsFor(isa).all_below_infinity(logits.data(), count));
          logits[i] = good;
        }
      }
    }
  }
}

TEST_CASE("GumbelArgMax draws the token of the scalar formula, also over vocabulary slices",
          "[kernels][sampling]") {
  const int64_t count = 1003;
  std::vector<float> logits = Logits(count, 41);
  logits[17] = -INFINITY;
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (uint64_t position = 0; position < 40; ++position) {
      const float temperature = 0.5f + 0.05f * static_cast<float>(position);
      TokenScore expected;
      std::vector<TokenScore> candidates;
      for (uint32_t i = 0; i < count; ++i) {
        const TokenScore token{i, logits[i] / temperature + TokenNoise(42, position, i)};
        if (i == 0 || Precedes(token, expected)) expected = token;
        candidates.push_back({i, logits[i]});
      }
      const TokenScore token =
          kernels.gumbel_arg_max(logits.data(), count, 0, temperature, 42, position);
      CHECK(token.id == expected.id);
      CHECK(token.score == expected.score);
      // Three ranks of uneven slices, none starting at a multiple of four.
      TokenScore best{0, -INFINITY};
      for (const auto& [begin, end] : {std::pair{0, 333}, {333, 670}, {670, 1003}}) {
        const TokenScore part = kernels.gumbel_arg_max(logits.data() + begin, end - begin, begin,
                                                       temperature, 42, position);
        if (Precedes(part, best)) best = part;
      }
      CHECK(best.id == expected.id);
      CHECK(best.score == expected.score);
      const TokenScore listed =
          GumbelArgMaxOfCandidates(candidates.data(), count, temperature, 42, position);
      CHECK(listed.id == expected.id);
      CHECK(listed.score == expected.score);
    }
  }
}

TEST_CASE("ExpSum agrees with double precision, stores its terms, and is the same on all sets",
          "[kernels][sampling]") {
  for (const int64_t count : {1, 16, 37, 4096, 49152}) {
    const std::vector<float> logits = Logits(count, 43);
    const float max = *std::max_element(logits.begin(), logits.end());
    float first = 0.0f;
    for (const Isa isa : test::RunnableIsas()) {
      std::vector<float> terms(static_cast<size_t>(count) + 1, 5.0f);
      const float sum = KernelsFor(isa).exp_sum(logits.data(), count, max, 0.7f, terms.data());
      double expected = 0.0;
      for (int64_t i = 0; i < count; ++i) {
        const double term = std::exp((static_cast<double>(logits[i]) - max) / 0.7f);
        expected += term;
        REQUIRE(terms[i] == Approx(term).epsilon(1e-5).margin(1e-30));
      }
      CHECK(terms[count] == 5.0f);
      CHECK(sum == Approx(expected).epsilon(1e-5));
      CHECK(KernelsFor(isa).exp_sum(logits.data(), count, max, 0.7f, nullptr) == sum);
      if (isa == Isa::kPortable) first = sum;
      CHECK(sum == first);
    }
  }
}

TEST_CASE("TopN returns the best in order, lowest id first in ties, without hidden tokens",
          "[kernels][sampling]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const int64_t count : {1, 16, 50, 3000}) {
      std::vector<float> logits = Logits(count, 44);
      if (count > 10) logits[4] = NAN;
      if (count > 10) logits[5] = -INFINITY;
      std::vector<TokenScore> sorted;
      for (uint32_t i = 0; i < count; ++i) {
        if (logits[i] > -INFINITY) sorted.push_back({200 + i, logits[i]});
      }
      std::sort(sorted.begin(), sorted.end(), Precedes);
      for (const int64_t n : {1, 2, 7, 20, 1024, 4000}) {
        std::vector<TokenScore> top(static_cast<size_t>(n));
        const int64_t found = KernelsFor(isa).top_n(logits.data(), count, 200, n, top.data());
        REQUIRE(found == std::min<int64_t>(n, static_cast<int64_t>(sorted.size())));
        for (int64_t i = 0; i < found; ++i) {
          REQUIRE(top[i].id == sorted[i].id);
          REQUIRE(top[i].score == sorted[i].score);
        }
      }
    }
    CHECK(KernelsFor(isa).top_n(nullptr, 0, 0, 0, nullptr) == 0);
  }
}

TEST_CASE("ApplyBias changes only the ids of the slice", "[kernels][sampling]") {
  std::vector<float> logits(10, 1.0f);
  const uint32_t ids[] = {99, 100, 109, 110, 0xFFFFFFFFu};
  const float biases[] = {1.0f, 2.0f, -INFINITY, 4.0f, 5.0f};
  ApplyBias(ids, biases, 5, 100, logits.data(), 10);
  CHECK(logits[0] == 3.0f);
  CHECK(logits[9] == -INFINITY);
  for (int i = 1; i < 9; ++i) CHECK(logits[i] == 1.0f);
}

}  // namespace
}  // namespace weft::kernels::cpu::testing
