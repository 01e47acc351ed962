// Paged attention as its tests call it: one sequence in a pool of scrambled blocks, poisoned
// wherever no position has been written, and the same sums in double precision.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/support.h"

namespace weft::kernels::cpu::testing {

struct Case {
  int64_t head_dim;
  int64_t heads;
  int64_t kv_heads;
};

// Grouped, multi-head, multi-query and uneven (5 query heads on 2 KV heads) attention.
inline const Case kCases[] = {{64, 9, 3},  {20, 3, 3}, {24, 4, 1},
                              {128, 2, 2}, {80, 5, 2}, {2, 7, 1}};

// What scores go through besides the scale, which is 0.3.
struct Shaping {
  int64_t window = 0;
  float soft_cap = 0.0f;
  // By query head; empty = none.
  std::vector<float> slopes = {};
  std::vector<float> sinks = {};
};

// A sequence's keys, values and queries, and a pool in which its blocks lie in scrambled order,
// filled with NaN before anything is stored.
struct Sequence {
  Case shape;
  KvType type;
  int64_t positions;
  std::vector<float> k, v, q;
  std::vector<uint32_t> block_ids;
  Aligned k_pool, v_pool;

  Sequence(const Case& c, KvType t, int64_t n)
      : shape(c), type(t), positions(n), k_pool(PoolBytes(), 0xFF), v_pool(PoolBytes(), 0xFF) {
    k = RandomFloats(n * c.kv_heads * c.head_dim, 51);
    v = RandomFloats(n * c.kv_heads * c.head_dim, 52);
    q = RandomFloats(n * c.heads * c.head_dim, 53);
    block_ids.resize(static_cast<size_t>(Blocks()));
    std::iota(block_ids.begin(), block_ids.end(), 1u);
    std::reverse(block_ids.begin(), block_ids.end());
  }
  int64_t Blocks() const { return (positions + 15) / 16; }
  int64_t BlockBytes() const { return shape.kv_heads * KvHeadBlockBytes(type, shape.head_dim); }
  int64_t PoolBytes() const { return (Blocks() + 2) * BlockBytes(); }
  KvBlocks View() const {
    return KvBlocks{type,           shape.head_dim, shape.kv_heads,  k_pool.bytes(),
                    v_pool.bytes(), BlockBytes(),   block_ids.data()};
  }
  int64_t KvHeadOf(int64_t head) const { return head * shape.kv_heads / shape.heads; }
  int64_t Append(const Kernels& kernels, int64_t start, int64_t rows) const {
    const int64_t stride = shape.kv_heads * shape.head_dim;
    return kernels.kv_append(View(), start, rows, k.data() + start * stride, stride,
                             v.data() + start * stride, stride);
  }
  // Attention of rows [start, start + rows) into out, all heads.
  void Attend(const Kernels& kernels, int64_t start, int64_t rows, float* out,
              const Shaping& shaping = {}) const {
    const int64_t stride = shape.heads * shape.head_dim;
    const Aligned scratch(AttentionScratchBytes(shape.head_dim), 0xFF);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<uint32_t> heads;
      for (int64_t i = 0; i < shape.heads; ++i) {
        if (KvHeadOf(i) == h) heads.push_back(static_cast<uint32_t>(i));
      }
      AttentionWork work;
      work.kv = View();
      work.kv_head = h;
      work.heads = heads.data();
      work.head_count = static_cast<int64_t>(heads.size());
      work.query = q.data() + start * stride;
      work.query_stride = stride;
      work.out = out;
      work.out_stride = stride;
      work.rows = rows;
      work.start = start;
      work.scale = 0.3f;
      work.window = shaping.window;
      work.soft_cap = shaping.soft_cap;
      if (!shaping.slopes.empty()) work.slopes = shaping.slopes.data();
      if (!shaping.sinks.empty()) work.sinks = shaping.sinks.data();
      kernels.attention(work, scratch.bytes());
    }
  }
  double Stored(const std::vector<float>& values, int64_t position, int64_t head, int64_t d) const {
    const float x = values[(position * shape.kv_heads + head) * shape.head_dim + d];
    if (type == KvType::kF16) return static_cast<double>(static_cast<_Float16>(x));
    return type == KvType::kBf16 ? FloatOfBf16(Bf16Of(x)) : x;
  }
};

// The largest error of one row against double precision.
inline double RowError(const Sequence& s, int64_t row, const float* out,
                       const Shaping& shaping = {}) {
  double worst = 0.0;
  const int64_t dim = s.shape.head_dim;
  for (int64_t h = 0; h < s.shape.heads; ++h) {
    const int64_t kv = s.KvHeadOf(h);
    const float* q = s.q.data() + (row * s.shape.heads + h) * dim;
    const int64_t first = shaping.window > 0 ? std::max<int64_t>(0, row + 1 - shaping.window) : 0;
    std::vector<double> p;
    for (int64_t j = first; j <= row; ++j) {
      double score = 0.0;
      for (int64_t d = 0; d < dim; ++d) score += q[d] * s.Stored(s.k, j, kv, d);
      score *= 0.3f;
      const double cap = shaping.soft_cap;
      if (cap > 0) score = cap * std::tanh(score / cap);
      if (!shaping.slopes.empty()) score += shaping.slopes[h] * static_cast<double>(j - row);
      p.push_back(score);
    }
    double max = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    if (!shaping.sinks.empty()) {
      const double sink = shaping.sinks[h];
      max = std::max(max, sink);
      sum = std::exp(sink - max);
    }
    for (double& x : p) sum += x = std::exp(x - max);
    for (int64_t d = 0; d < dim; ++d) {
      double expected = 0.0;
      for (int64_t j = first; j <= row; ++j) {
        expected += p[j - first] / sum * s.Stored(s.v, j, kv, d);
      }
      const double error = std::fabs(out[h * dim + d] - expected);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace weft::kernels::cpu::testing
