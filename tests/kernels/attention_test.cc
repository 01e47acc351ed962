// Paged attention against double precision over odd shapes, with poison wherever no position has
// been written, and exact equality of a row however its sequence was cut (invariant num.row).

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/kernels/support.h"

namespace weft::kernels::cpu::testing {
namespace {

struct Case {
  int64_t head_dim;
  int64_t heads;
  int64_t kv_heads;
};

// Grouped, multi-head, multi-query and uneven (5 query heads on 2 KV heads) attention.
const Case kCases[] = {{64, 9, 3}, {20, 3, 3}, {24, 4, 1}, {128, 2, 2}, {80, 5, 2}, {2, 7, 1}};

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
  void Append(const Kernels& kernels, int64_t start, int64_t rows) const {
    const int64_t stride = shape.kv_heads * shape.head_dim;
    kernels.kv_append(View(), start, rows, k.data() + start * stride, stride,
                      v.data() + start * stride, stride);
  }
  // Attention of rows [start, start + rows) into out, all heads.
  void Attend(const Kernels& kernels, int64_t start, int64_t rows, float* out) const {
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
double RowError(const Sequence& s, int64_t row, const float* out) {
  double worst = 0.0;
  const int64_t dim = s.shape.head_dim;
  for (int64_t h = 0; h < s.shape.heads; ++h) {
    const int64_t kv = s.KvHeadOf(h);
    const float* q = s.q.data() + (row * s.shape.heads + h) * dim;
    std::vector<double> p;
    for (int64_t j = 0; j <= row; ++j) {
      double score = 0.0;
      for (int64_t d = 0; d < dim; ++d) score += q[d] * s.Stored(s.k, j, kv, d);
      p.push_back(score * 0.3f);
    }
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0.0;
    for (double& x : p) sum += x = std::exp(x - max);
    for (int64_t d = 0; d < dim; ++d) {
      double expected = 0.0;
      for (int64_t j = 0; j <= row; ++j) expected += p[j] / sum * s.Stored(s.v, j, kv, d);
      const double error = std::fabs(out[h * dim + d] - expected);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return worst;
}

TEST_CASE("Attention agrees with double precision and never reads unwritten positions",
          "[kernels][attention]") {
  for (const Isa isa : SupportedIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kF16}) {
        for (const int64_t positions : {1, 2, 15, 16, 17, 63, 64, 65, 131}) {
          const Sequence s(shape, type, positions);
          s.Append(KernelsFor(isa), 0, positions);
          const int64_t width = shape.heads * shape.head_dim;
          std::vector<float> out(static_cast<size_t>(positions * width), NAN);
          s.Attend(KernelsFor(isa), 0, positions, out.data());
          INFO(IsaName(isa) << " head_dim " << shape.head_dim << " heads " << shape.heads << " kv "
                            << shape.kv_heads << " positions " << positions << " type "
                            << static_cast<int>(type));
          double worst = 0.0;
          for (int64_t r = 0; r < positions; ++r) {
            worst = std::max(worst, RowError(s, r, out.data() + r * width));
          }
          // Scores reach 15, whose own rounding to float32 is 1e-6.
          CHECK(worst < 3e-5);
        }
      }
    }
  }
}

TEST_CASE("A row of attention is bit-identical one by one, in chunks of any size, and whole",
          "[kernels][attention][num.row]") {
  constexpr int64_t kPositions = 150;
  for (const Isa isa : SupportedIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const Case& shape : kCases) {
      for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kF16}) {
        const int64_t width = shape.heads * shape.head_dim;
        std::vector<float> whole(static_cast<size_t>(kPositions * width), NAN);
        const Sequence at_once(shape, type, kPositions);
        at_once.Append(kernels, 0, kPositions);
        at_once.Attend(kernels, 0, kPositions, whole.data());
        for (const int64_t chunk : {1, 3, 16, 37, 70}) {
          // Stored chunk by chunk: what lies behind each chunk is still NaN when it is computed.
          const Sequence s(shape, type, kPositions);
          std::vector<float> out(whole.size(), NAN);
          for (int64_t start = 0; start < kPositions; start += chunk) {
            const int64_t rows = std::min(chunk, kPositions - start);
            s.Append(kernels, start, rows);
            s.Attend(kernels, start, rows, out.data() + start * width);
          }
          INFO(IsaName(isa) << " head_dim " << shape.head_dim << " chunk " << chunk);
          CHECK(out == whole);
        }
      }
    }
  }
}

TEST_CASE("Halfs in the KV pool are rounded to nearest even, and kept finite",
          "[kernels][attention]") {
  // One KV head of 16 elements: subnormals, ties, the largest, and beyond it.
  const std::vector<float> given = {
      0.0f,          -0.0f, 1.0f,    65504.0f,        65520.0f,       1e30f,     -1e30f,    6e-8f,
      2.9802322e-8f, 3e-8f, 6.1e-5f, -1.00048828125f, 1.00146484375f, 0.333333f, -6.09e-5f, 1e-9f};
  for (const Isa isa : SupportedIsas()) {
    Sequence s({16, 1, 1}, KvType::kF16, 1);
    s.k = given;
    s.v = given;
    s.Append(KernelsFor(isa), 0, 1);
    const auto* keys = reinterpret_cast<const uint16_t*>(s.k_pool.bytes() + s.BlockBytes());
    const auto* values = reinterpret_cast<const uint16_t*>(s.v_pool.bytes() + s.BlockBytes());
    for (size_t d = 0; d < given.size(); ++d) {
      const float clamped = std::min(std::max(given[d], -65504.0f), 65504.0f);
      const auto expected = static_cast<_Float16>(clamped);
      uint16_t bits;
      std::memcpy(&bits, &expected, sizeof(bits));
      INFO(IsaName(isa) << " element " << d << " = " << given[d]);
      CHECK(keys[d * 16] == bits);
      CHECK(values[d] == bits);
    }
  }
}

TEST_CASE("NaN in a key or a value is NaN in the KV pool and in what attends to it",
          "[kernels][attention]") {
  for (const Isa isa : SupportedIsas()) {
    for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kF16}) {
      for (const bool in_key : {false, true}) {
        Sequence s({16, 1, 1}, type, 3);
        (in_key ? s.k : s.v)[16 + 5] = NAN;
        s.Append(KernelsFor(isa), 0, 3);
        std::vector<float> out(16, 0.0f);
        // The row in front of it does not see it.
        s.Attend(KernelsFor(isa), 0, 1, out.data());
        CHECK(std::none_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
        s.Attend(KernelsFor(isa), 2, 1, out.data());
        INFO(IsaName(isa) << " type " << static_cast<int>(type) << " key " << in_key);
        CHECK(std::any_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
      }
    }
  }
}

TEST_CASE("Attention survives large scores and a long context", "[kernels][attention]") {
  for (const Isa isa : SupportedIsas()) {
    Sequence s({64, 3, 1}, KvType::kBf16, 8200);
    for (float& x : s.q) x *= 30.0f;
    s.Append(KernelsFor(isa), 0, s.positions);
    std::vector<float> out(3 * 64, NAN);
    s.Attend(KernelsFor(isa), 8199, 1, out.data());
    // Scores reach 400, whose own rounding to float32 is 3e-5.
    CHECK(RowError(s, 8199, out.data()) < 1e-3);
  }
}

}  // namespace
}  // namespace weft::kernels::cpu::testing
