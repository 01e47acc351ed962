// Windows, soft caps, ALiBi and sinks of paged attention against double precision over odd shapes,
// and what num.row asks of them: a row's bits do not depend on how its sequence was cut, nor on
// anything in front of its window.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/attention_rig.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kF16};

// One number a query head, between `low` and `high`.
std::vector<float> PerHead(const Case& shape, float low, float high) {
  std::vector<float> out(static_cast<size_t>(shape.heads));
  Random random(77);
  for (float& x : out) x = random.Uniform(low, high);
  return out;
}

// Each alone, then all together, with windows around the sizes of blocks and tiles.
std::vector<Shaping> Shapings(const Case& shape) {
  std::vector<Shaping> all;
  for (const int64_t window : {1, 16, 17, 63, 65, 100}) all.push_back({window});
  all.push_back({0, 2.0f});
  all.push_back({0, 0.0f, PerHead(shape, 0.004f, 0.7f)});
  all.push_back({0, 0.0f, {}, PerHead(shape, -3.0f, 12.0f)});
  all.push_back({37, 5.0f, PerHead(shape, 0.004f, 0.7f), PerHead(shape, -3.0f, 6.0f)});
  return all;
}

std::vector<float> AttendAll(const Sequence& s, const Kernels& kernels, const Shaping& shaping) {
  const int64_t width = s.shape.heads * s.shape.head_dim;
  std::vector<float> out(static_cast<size_t>(s.positions * width), NAN);
  s.Append(kernels, 0, s.positions);
  s.Attend(kernels, 0, s.positions, out.data(), shaping);
  return out;
}

TEST_CASE("Attention of every kind agrees with double precision", "[kernels][attention][long]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        for (const int64_t positions : {17, 65, 135}) {
          for (const Shaping& shaping : Shapings(shape)) {
            const Sequence s(shape, type, positions);
            const std::vector<float> out = AttendAll(s, KernelsFor(isa), shaping);
            double worst = 0.0;
            for (int64_t r = 0; r < positions; ++r) {
              const float* const row = out.data() + r * shape.heads * shape.head_dim;
              worst = std::max(worst, RowError(s, r, row, shaping));
            }
            INFO(IsaName(isa) << " head_dim " << shape.head_dim << " positions " << positions
                              << " type " << static_cast<int>(type) << " window " << shaping.window
                              << " cap " << shaping.soft_cap << " ALiBi " << !shaping.slopes.empty()
                              << " sinks " << !shaping.sinks.empty());
            // Scores reach 15, whose own rounding to float32 is 1e-6.
            REQUIRE(worst < 3e-5);
          }
        }
      }
    }
  }
}

TEST_CASE("A row of any kind of attention is bit-identical one by one, in chunks, and whole",
          "[kernels][attention][num.row][long]") {
  constexpr int64_t kPositions = 140;
  for (const Isa isa : test::RunnableIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        const int64_t width = shape.heads * shape.head_dim;
        for (const Shaping& shaping : Shapings(shape)) {
          const Sequence at_once(shape, type, kPositions);
          const std::vector<float> whole = AttendAll(at_once, kernels, shaping);
          for (const int64_t chunk : {1, 37, 70}) {
            const Sequence s(shape, type, kPositions);
            std::vector<float> out(whole.size(), NAN);
            for (int64_t start = 0; start < kPositions; start += chunk) {
              const int64_t rows = std::min(chunk, kPositions - start);
              s.Append(kernels, start, rows);
              s.Attend(kernels, start, rows, out.data() + start * width, shaping);
            }
            INFO(IsaName(isa) << " head_dim " << shape.head_dim << " chunk " << chunk << " window "
                              << shaping.window);
            REQUIRE(out == whole);
          }
        }
      }
    }
  }
}

TEST_CASE("Blocks in front of a window are not read", "[kernels][attention]") {
  constexpr int64_t kPositions = 210;
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : kTypes) {
        for (const int64_t window : {1, 20, 64, 100}) {
          for (const int64_t rows : {1, 9}) {
            const Shaping shaping = {window, 0.0f, PerHead(shape, 0.004f, 0.7f)};
            Sequence s(shape, type, kPositions);
            const std::vector<float> whole = AttendAll(s, KernelsFor(isa), shaping);
            const int64_t start = kPositions - rows;
            const int64_t kept = (start + 1 - window) / kKvBlockTokens;
            // Given to somebody else, who wrote NaN; and their ids are outside of the pool.
            for (int64_t block = 0; block < kept; ++block) {
              const int64_t at = s.block_ids[block] * s.BlockBytes();
              std::memset(s.k_pool.bytes() + at, 0xFF, static_cast<size_t>(s.BlockBytes()));
              std::memset(s.v_pool.bytes() + at, 0xFF, static_cast<size_t>(s.BlockBytes()));
              s.block_ids[block] = UINT32_MAX;
            }
            const int64_t width = shape.heads * shape.head_dim;
            std::vector<float> out(static_cast<size_t>(rows * width), NAN);
            s.Attend(KernelsFor(isa), start, rows, out.data(), shaping);
            INFO(IsaName(isa) << " head_dim " << shape.head_dim << " window " << window);
            REQUIRE(std::equal(out.begin(), out.end(), whole.begin() + start * width));
          }
        }
      }
    }
  }
}

TEST_CASE("A window of the whole context, no slope and a sink of nothing change no bit",
          "[kernels][attention]") {
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      const Sequence s(shape, KvType::kBf16, 150);
      const std::vector<float> plain = AttendAll(s, KernelsFor(isa), {});
      const Shaping neutral = {150, 0.0f, PerHead(shape, 0.0f, 0.0f),
                               PerHead(shape, -200.0f, -199.0f)};
      INFO(IsaName(isa) << " head_dim " << shape.head_dim);
      CHECK(AttendAll(s, KernelsFor(isa), neutral) == plain);
    }
  }
}

TEST_CASE("ALiBi stays exact far into a context, and a far window costs nothing before it",
          "[kernels][attention]") {
  for (const Isa isa : test::RunnableIsas()) {
    const Sequence s({64, 3, 1}, KvType::kBf16, 8200);
    s.Append(KernelsFor(isa), 0, s.positions);
    for (const Shaping& shaping :
         {Shaping{0, 0.0f, {0.5f, 0.004f, 0.25f}}, Shaping{4096, 0.0f}, Shaping{100, 30.0f}}) {
      std::vector<float> out(3 * 64, NAN);
      s.Attend(KernelsFor(isa), 8199, 1, out.data(), shaping);
      INFO(IsaName(isa) << " window " << shaping.window);
      CHECK(RowError(s, 8199, out.data(), shaping) < 3e-5);
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu::testing
