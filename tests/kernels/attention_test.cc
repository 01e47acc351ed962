// Paged attention against double precision over odd shapes, with poison wherever no position has
// been written, and exact equality of a row however its sequence was cut (invariant num.row).

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/attention_rig.h"
#include "tests/support/runnable_isas.h"

namespace weft::kernels::cpu::testing {
namespace {

TEST_CASE("Attention agrees with double precision and never reads unwritten positions",
          "[kernels][attention][long]") {
  for (const Isa isa : test::RunnableIsas()) {
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
  for (const Isa isa : test::RunnableIsas()) {
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
  for (const Isa isa : test::RunnableIsas()) {
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

TEST_CASE("Keys and values that halfs cannot hold are counted, wherever they stand",
          "[kernels][attention]") {
  // Head sizes with a last part of fewer lanes, and rows in several blocks.
  for (const Isa isa : test::RunnableIsas()) {
    for (const Case& shape : kCases) {
      for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kF16}) {
        constexpr int64_t kPositions = 35;
        Sequence s(shape, type, kPositions);
        INFO(IsaName(isa) << " head_dim " << shape.head_dim << " type " << static_cast<int>(type));
        CHECK(s.Append(KernelsFor(isa), 0, kPositions) == 0);
        const size_t count = s.k.size();
        s.k[count / 2] = 65504.0f;
        s.v[count / 2] = NAN;
        CHECK(s.Append(KernelsFor(isa), 0, kPositions) == 0);
        s.k[0] = 65505.0f;
        s.k[count - 1] = -1e30f;
        s.v[count - 1] = INFINITY;
        s.v[count / 3] = -65505.0f;
        CHECK(s.Append(KernelsFor(isa), 0, kPositions) == (type == KvType::kF16 ? 4 : 0));
      }
    }
  }
}

TEST_CASE("NaN in a key or a value is NaN in the KV pool and in what attends to it",
          "[kernels][attention]") {
  for (const Isa isa : test::RunnableIsas()) {
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
  for (const Isa isa : test::RunnableIsas()) {
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
