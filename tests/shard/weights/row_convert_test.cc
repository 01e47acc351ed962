#include "shard/weights/row_convert.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "shard/weights/tensor_view.h"
#include "tests/kernels/dequant_golden.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/support/seed.h"

namespace weft::shard {
namespace {

using kernels::HalfToFloat;
using kernels::RoundToBf16;

namespace golden = kernels::cpu::testing;

constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBf16,
                                    TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1};

TEST_CASE("All half-precision numbers convert exactly", "[shard][weights]") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = HalfToFloat(static_cast<uint16_t>(bits));
    const bool special = (bits >> 10 & 31) == 31;
    if (special && (bits & 1023) != 0) {
      REQUIRE(std::isnan(got));
    } else if (special) {
      REQUIRE(got == (bits < 32768 ? INFINITY : -INFINITY));
    } else {
      const uint16_t half = static_cast<uint16_t>(bits);
      char bytes[2];
      std::memcpy(bytes, &half, 2);
      const float want = test::Half(bytes);
      REQUIRE(got == want);
      REQUIRE(std::signbit(got) == std::signbit(want));
    }
  }
}

TEST_CASE("Blocks dequantise to the bits that PyPI gguf gives", "[shard][weights]") {
  const struct {
    TensorType type;
    absl::Span<const uint8_t> bytes;
    absl::Span<const uint32_t> bits;
  } cases[] = {
      {TensorType::kQ8_0, golden::kGoldenQ80Bytes, golden::kGoldenQ80Bits},
      {TensorType::kQ4_0, golden::kGoldenQ40Bytes, golden::kGoldenQ40Bits},
      {TensorType::kQ4_1, golden::kGoldenQ41Bytes, golden::kGoldenQ41Bits},
  };
  for (const auto& c : cases) {
    INFO(FormatOf(c.type).name);
    const auto count = static_cast<int64_t>(c.bits.size());
    REQUIRE(BytesOf(c.type, c.bits.size()) == c.bytes.size());
    // One byte further: rows of files are not aligned.
    std::vector<uint8_t> moved(c.bytes.size() + 1);
    std::memcpy(moved.data() + 1, c.bytes.data(), c.bytes.size());
    std::vector<float> floats(c.bits.size());
    std::vector<uint16_t> halves(c.bits.size());
    RowToFloat(c.type, moved.data() + 1, count, floats.data());
    RowToBf16(c.type, moved.data() + 1, count, halves.data());
    for (size_t i = 0; i < c.bits.size(); ++i) {
      REQUIRE(std::bit_cast<uint32_t>(floats[i]) == c.bits[i]);
      REQUIRE(halves[i] == RoundToBf16(std::bit_cast<float>(c.bits[i])));
    }
  }
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

TEST_CASE("Rounding to bfloat16 takes the nearest, the even one of two", "[shard][weights]") {
  // Around every bfloat16 number: itself, just over and under half way to the next, and half way.
  for (uint32_t high = 0; high < 65536; ++high) {
    const float value = FromBf16(static_cast<uint16_t>(high));
    if (std::isnan(value)) {
      // A signalling NaN, and one whose set bits all lie in the part that is cut off.
      for (const uint32_t low : {0u, 1u, 0x8000u, 0xffffu}) {
        const uint16_t got = RoundToBf16(std::bit_cast<float>(high << 16 | low));
        REQUIRE(std::isnan(FromBf16(got)));
        REQUIRE((got & 0x8000u) == (high & 0x8000u));
      }
      continue;
    }
    REQUIRE(RoundToBf16(value) == high);
    if (std::isinf(value)) {
      REQUIRE(std::isnan(FromBf16(RoundToBf16(std::bit_cast<float>(high << 16 | 1u)))));
      continue;
    }
    const auto at = [high](uint32_t low) { return std::bit_cast<float>(high << 16 | low); };
    REQUIRE(RoundToBf16(at(0x7fff)) == high);
    REQUIRE(RoundToBf16(at(0x8001)) == high + 1);
    REQUIRE(RoundToBf16(at(0x8000)) == high + (high & 1));
  }
}

TEST_CASE("Rows of every type hold the values of the format's description", "[shard][weights]") {
  const auto seed = static_cast<uint32_t>(test::Seed(20261120));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const TensorType type : kAllTypes) {
    for (const int64_t count : {32, 96, 1024}) {
      std::string row(BytesOf(type, static_cast<uint64_t>(count)), 0);
      for (char& byte : row) byte = static_cast<char>(random());
      // Infinities and NaN have tests of their own: exponents below all ones.
      if (type == TensorType::kF16) {
        for (size_t i = 1; i < row.size(); i += 2) row[i] = static_cast<char>(row[i] & ~4);
      } else if (FormatOf(type).elements > 1) {
        for (size_t i = 0; i < row.size(); i += FormatOf(type).bytes) {
          row[i + 1] = static_cast<char>(row[i + 1] & ~4);
          if (type == TensorType::kQ4_1) row[i + 3] = static_cast<char>(row[i + 3] & ~4);
        }
      }
      const auto* bytes = reinterpret_cast<const uint8_t*>(row.data());
      const std::vector<float> want = test::DecodeRow(type, row.data(), count);
      std::vector<float> floats(want.size());
      std::vector<uint16_t> halves(want.size());
      RowToFloat(type, bytes, count, floats.data());
      RowToBf16(type, bytes, count, halves.data());
      for (size_t i = 0; i < want.size(); ++i) {
        INFO(FormatOf(type).name << " number " << i);
        if (std::isnan(want[i])) {
          REQUIRE(std::isnan(floats[i]));
          REQUIRE(std::isnan(FromBf16(halves[i])));
          continue;
        }
        REQUIRE(std::bit_cast<uint32_t>(floats[i]) == std::bit_cast<uint32_t>(want[i]));
        REQUIRE(halves[i] == RoundToBf16(want[i]));
      }
    }
  }
}

// Hidden by default: run with "[time]".
TEST_CASE("Rows: time of one thread", "[.][time]") {
  constexpr int64_t kCount = 8192;
  std::vector<uint8_t> row(kCount * 4, 0x3c);
  std::vector<float> floats(kCount);
  std::vector<uint16_t> halves(kCount);
  for (const TensorType type : kAllTypes) {
    const auto gbs = [](size_t bytes, const auto& convert) {
      constexpr int kRepeats = 2000;
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kRepeats; ++i) convert();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      return static_cast<double>(bytes) * kRepeats / took.count() * 1e-9;
    };
    const double to_float =
        gbs(floats.size() * 4, [&] { RowToFloat(type, row.data(), kCount, floats.data()); });
    const double to_bf16 =
        gbs(halves.size() * 2, [&] { RowToBf16(type, row.data(), kCount, halves.data()); });
    WARN(FormatOf(type).name << ": GB/s written, float32 " << to_float << ", bfloat16 " << to_bf16);
  }
}

}  // namespace
}  // namespace weft::shard
