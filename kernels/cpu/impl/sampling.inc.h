// Sampling over whole rows of logits (contracts: kernels.h). Ids ascend with the index, so "lowest
// id wins a tie" is "strictly greater replaces".

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// The best of 16 lanes, each of which kept the first of its own largest scores. A lane that saw
// nothing above -infinity holds index 0.
struct Best {
  Floats score = Set(-kInfinity);
  Ints index = SetInts(0);

  void Take(const Floats& x, const Ints& at) {
    const Mask better = Greater(x, score);
    score = Select(better, x, score);
    index = SelectInts(better, at, index);
  }

  TokenScore Winner(uint32_t first_id) const {
    alignas(64) float scores[kLanes];
    alignas(64) uint32_t indexes[kLanes];
    Store(scores, score);
    StoreInts(indexes, index);
    int best = 0;
    for (int i = 1; i < kLanes; ++i) {
      const bool tie = scores[i] == scores[best];
      if (scores[i] > scores[best] || (tie && indexes[i] < indexes[best])) best = i;
    }
    return TokenScore{first_id + indexes[best], scores[best]};
  }
};

TokenScore ArgMax(const float* logits, int64_t count, uint32_t first_id) {
  Best best;
  Ints at = Iota();
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Floats x = n >= kLanes ? Load(logits + i)
                                 : Select(FirstLanes(n), LoadN(logits + i, n), Set(-kInfinity));
    best.Take(x, at);
    at = AddInts(at, SetInts(kLanes));
  }
  return best.Winner(first_id);
}

bool AllBelowInfinity(const float* logits, int64_t count) {
  const uint32_t all = MaskBits(FirstLanes(kLanes));
  uint32_t below = all;
  for (int64_t i = 0; i < count; i += kLanes) {
    // Lanes behind the end are 0.
    const Floats x = count - i >= kLanes ? Load(logits + i) : LoadN(logits + i, count - i);
    below &= MaskBits(Greater(Set(kInfinity), x));
  }
  return below == all;
}

float MaxRow(const float* logits, int64_t count) {
  Floats top = Set(-kInfinity);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Floats x = n >= kLanes ? Load(logits + i)
                                 : Select(FirstLanes(n), LoadN(logits + i, n), Set(-kInfinity));
    // Max takes its second argument when one is NaN.
    top = Max(x, top);
  }
  return MaxLanes(top);
}

float ExpSum(const float* logits, int64_t count, float max, float temperature, float* out) {
  Floats sum = Zero();
  const Floats top = Set(max);
  const Floats divisor = Set(temperature);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i;
    const Floats x = n >= kLanes ? Load(logits + i) : LoadN(logits + i, n);
    Floats term = Exp(Div(Sub(x, top), divisor));
    if (n < kLanes) term = Select(FirstLanes(n), term, Zero());
    sum = Add(sum, term);
    if (out != nullptr) StoreN(out + i, term, n);
  }
  return SumLanes(sum);
}

// --- top n: a heap in `out` whose root is the worst one kept ---

inline bool Before(const TokenScore& a, const TokenScore& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

inline void SiftDown(TokenScore* heap, int64_t size, int64_t at) {
  const TokenScore moved = heap[at];
  for (int64_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && Before(heap[child], heap[child + 1])) ++child;
    if (!Before(moved, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

int64_t TopN(const float* logits, int64_t count, uint32_t first_id, int64_t n, TokenScore* out) {
  if (n <= 0) return 0;
  int64_t size = 0;
  float threshold = -kInfinity;
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t left = count - i;
    const Mask candidates = Greater(LoadN(logits + i, left), Set(threshold));
    uint32_t bits = MaskBits(candidates) & MaskBits(FirstLanes(left));
    for (; bits != 0; bits &= bits - 1) {
      const int64_t index = i + __builtin_ctz(bits);
      if (!(logits[index] > threshold)) continue;
      const TokenScore token{first_id + static_cast<uint32_t>(index), logits[index]};
      if (size < n) {
        out[size++] = token;
        if (size < n) continue;
        for (int64_t k = n / 2 - 1; k >= 0; --k) SiftDown(out, n, k);
      } else {
        out[0] = token;
        SiftDown(out, n, 0);
      }
      threshold = out[0].score;
    }
  }
  if (size < n) {
    for (int64_t k = size / 2 - 1; k >= 0; --k) SiftDown(out, size, k);
  }
  // The worst goes last, again and again.
  for (int64_t end = size - 1; end > 0; --end) {
    const TokenScore worst = out[0];
    out[0] = out[end];
    out[end] = worst;
    SiftDown(out, end, 0);
  }
  return size;
}

}  // namespace
}  // namespace weft::kernels::cpu
