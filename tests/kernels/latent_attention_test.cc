// Attention over latents against double precision, and what num.row asks of it. The pool is
// poisoned wherever no position has been written.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/support.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

struct Case {
  int64_t head_dim;
  int64_t latent_dim;
  int64_t heads;
};

constexpr Case kCases[] = {{48, 40, 5}, {576, 512, 3}, {6, 2, 7}, {40, 24, 1}};
constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kF16};
constexpr float kScale = 0.2f;

struct Sequence {
  Case shape;
  KvType type;
  std::vector<float> rows, query;
  std::vector<uint32_t> block_ids;
  Aligned pool;

  Sequence(const Case& c, KvType t, int64_t positions)
      : shape(c),
        type(t),
        rows(RandomFloats(positions * c.head_dim, 61)),
        query(RandomFloats(positions * c.heads * c.head_dim, 62)),
        block_ids(static_cast<size_t>((positions + 15) / 16)),
        pool((positions / 16 + 3) * KvHeadBlockBytes(t, c.head_dim), 0xFF) {
    std::iota(block_ids.begin(), block_ids.end(), 1u);
    std::reverse(block_ids.begin(), block_ids.end());
  }
  KvBlocks View() const {
    KvBlocks kv;
    kv.type = type;
    kv.head_dim = shape.head_dim;
    kv.kv_heads = 1;
    kv.k_pool = pool.bytes();
    kv.block_stride_bytes = KvHeadBlockBytes(type, shape.head_dim);
    kv.block_ids = block_ids.data();
    return kv;
  }
  int64_t Append(const Kernels& kernels, int64_t start, int64_t count) const {
    return kernels.kv_append(View(), start, count, rows.data() + start * shape.head_dim,
                             shape.head_dim, nullptr, 0);
  }
  void Attend(const Kernels& kernels, int64_t start, int64_t count, float* out) const {
    std::vector<uint32_t> heads(static_cast<size_t>(shape.heads));
    std::iota(heads.begin(), heads.end(), 0u);
    const Aligned scratch(LatentScratchBytes(shape.latent_dim), 0xFF);
    AttentionWork work;
    work.kv = View();
    work.latent_dim = shape.latent_dim;
    work.heads = heads.data();
    work.head_count = shape.heads;
    work.query_stride = shape.heads * shape.head_dim;
    work.query = query.data() + start * work.query_stride;
    work.out = out;
    work.out_stride = shape.heads * shape.latent_dim;
    work.rows = count;
    work.start = start;
    work.scale = kScale;
    kernels.attention(work, scratch.bytes());
  }
  double Stored(int64_t position, int64_t d) const {
    const float x = rows[static_cast<size_t>(position * shape.head_dim + d)];
    if (type == KvType::kF16) return static_cast<double>(static_cast<_Float16>(x));
    return type == KvType::kBf16 ? FloatOfBf16(Bf16Of(x)) : x;
  }
  // The largest error of one row against double precision.
  double RowError(int64_t row, const float* out) const {
    double worst = 0.0;
    for (int64_t h = 0; h < shape.heads; ++h) {
      const float* const q = query.data() + (row * shape.heads + h) * shape.head_dim;
      std::vector<double> p;
      for (int64_t j = 0; j <= row; ++j) {
        double score = 0.0;
        for (int64_t d = 0; d < shape.head_dim; ++d) score += q[d] * Stored(j, d);
        p.push_back(score * double{kScale});
      }
      const double max = *std::max_element(p.begin(), p.end());
      double sum = 0.0;
      for (double& x : p) sum += x = std::exp(x - max);
      for (int64_t d = 0; d < shape.latent_dim; ++d) {
        double expected = 0.0;
        for (int64_t j = 0; j <= row; ++j)
          expected += p[static_cast<size_t>(j)] / sum * Stored(j, d);
        const double error = std::fabs(out[h * shape.latent_dim + d] - expected);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
    }
    return worst;
  }
};

TEST_CASE("Attention over latents agrees with double precision", "[kernels][attention][long]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        for (const int64_t positions : {1, 17, 64, 135}) {
          const Sequence s(shape, type, positions);
          const int64_t width = shape.heads * shape.latent_dim;
          std::vector<float> out(static_cast<size_t>(positions * width), NAN);
          s.Append(KernelsFor(isa), 0, positions);
          s.Attend(KernelsFor(isa), 0, positions, out.data());
          double worst = 0.0;
          for (int64_t r = 0; r < positions; ++r) {
            worst = std::max(worst, s.RowError(r, out.data() + r * width));
          }
          INFO(IsaName(isa) << " latents of " << shape.latent_dim << " positions " << positions
                            << " type " << static_cast<int>(type));
          REQUIRE(worst < 3e-5);
        }
      }
    }
  }
}

TEST_CASE("A row over latents is bit-identical one by one, in chunks, and whole",
          "[kernels][attention][num.row]") {
  constexpr int64_t kPositions = 140;
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        const int64_t width = shape.heads * shape.latent_dim;
        const Sequence at_once(shape, type, kPositions);
        std::vector<float> whole(static_cast<size_t>(kPositions * width), NAN);
        at_once.Append(kernels, 0, kPositions);
        at_once.Attend(kernels, 0, kPositions, whole.data());
        for (const int64_t chunk : {1, 37, 70}) {
          const Sequence s(shape, type, kPositions);
          std::vector<float> out(whole.size(), NAN);
          for (int64_t start = 0; start < kPositions; start += chunk) {
            const int64_t rows = std::min(chunk, kPositions - start);
            s.Append(kernels, start, rows);
            s.Attend(kernels, start, rows, out.data() + start * width);
          }
          INFO(IsaName(isa) << " latents of " << shape.latent_dim << " chunk " << chunk);
          REQUIRE(out == whole);
        }
      }
    }
  }
}

TEST_CASE("Latents that halfs cannot hold are counted", "[kernels][attention]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        Sequence s(shape, type, 20);
        CHECK(s.Append(KernelsFor(isa), 0, 20) == 0);
        s.rows.front() = 1e6f;
        s.rows.back() = -1e6f;
        CHECK(s.Append(KernelsFor(isa), 0, 20) == (type == KvType::kF16 ? 2 : 0));
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu::testing
