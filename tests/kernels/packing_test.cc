// Packing and exact dequantisation, against values made by PyPI gguf and the tests' own decoder.

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/dequant_golden.h"
#include "tests/kernels/support.h"

namespace weft::kernels::cpu::testing {
namespace {

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

void CheckGolden(WeightType type, const uint8_t* source, int64_t bytes, const uint32_t* expected) {
  TestMatrix matrix = RandomMatrix(type, kGoldenRows, kGoldenInputs, 1);
  REQUIRE(static_cast<int64_t>(matrix.source.size()) == bytes);
  std::memcpy(matrix.source.data(), source, matrix.source.size());
  Pack(matrix);
  for (int64_t row = 0; row < kGoldenRows; ++row) {
    std::vector<float> out(kGoldenInputs);
    UnpackRow(matrix.view(), row, out.data());
    for (int64_t k = 0; k < kGoldenInputs; ++k) {
      INFO(TypeName(type) << " row " << row << " input " << k);
      // Bits, but for the sign of zero: numpy's q * d and ours agree on it, so compare it too.
      CHECK(BitsOf(out[k]) == expected[row * kGoldenInputs + k]);
    }
  }
}

TEST_CASE("UnpackRow gives the bits that gguf dequantises to", "[kernels][packing]") {
  CheckGolden(WeightType::kQ4_0, kGoldenQ40Bytes, sizeof(kGoldenQ40Bytes), kGoldenQ40Bits);
  CheckGolden(WeightType::kQ4_1, kGoldenQ41Bytes, sizeof(kGoldenQ41Bytes), kGoldenQ41Bits);
  CheckGolden(WeightType::kQ8_0, kGoldenQ80Bytes, sizeof(kGoldenQ80Bytes), kGoldenQ80Bits);
}

uint64_t HashOf(const std::vector<float>& values, uint64_t hash) {
  for (const float value : values) {
    const uint32_t bits = BitsOf(value);
    for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 255u)) * 0x100000001B3ull;
  }
  return hash;
}

TEST_CASE("Random blocks dequantise to the bits that gguf gives, from files and packed",
          "[kernels][packing]") {
  for (const HashedGolden& golden : kHashedGoldens) {
    INFO(golden.name);
    WeightType type = WeightType::kF32;
    for (const WeightFormat& format : kWeightFormats) {
      if (std::strcmp(format.name, golden.name) == 0) type = format.type;
    }
    REQUIRE(type != WeightType::kF32);
    const int64_t inputs = kHashedBlocks * FormatOf(type).elements;
    TestMatrix matrix = RandomMatrix(type, kHashedRows, inputs, 1);
    Random random(static_cast<uint64_t>(golden.seed));
    for (uint8_t& byte : matrix.source) byte = static_cast<uint8_t>(random.Next());
    for (int block = 0; block < kHashedRows * kHashedBlocks; ++block) {
      uint8_t* at = matrix.source.data() + block * FormatOf(type).bytes;
      for (const int half : golden.halves) {
        if (half >= 0) at[half + 1] &= 0xFB;
      }
    }
    Pack(matrix);
    uint64_t file_hash = 0xCBF29CE484222325ull;
    uint64_t packed_hash = file_hash;
    std::vector<float> row(static_cast<size_t>(inputs));
    for (int64_t n = 0; n < kHashedRows; ++n) {
      const uint8_t* source = matrix.source.data() + n * SourceRowBytes(type, inputs);
      UnpackToFloat(type, source, inputs, row.data());
      for (int i = 0; i < 4 && n == 0; ++i) CHECK(BitsOf(row[i]) == golden.first[i]);
      file_hash = HashOf(row, file_hash);
      UnpackRow(matrix.view(), n, row.data());
      packed_hash = HashOf(row, packed_hash);
    }
    CHECK(file_hash == golden.hash);
    CHECK(packed_hash == golden.hash);
  }
}

TEST_CASE("UnpackRow returns every packed weight in every type", "[kernels][packing]") {
  for (const WeightType type : AllWeightTypes()) {
    for (int64_t inputs : {32, 64, 288, 576}) {
      inputs *= FormatOf(type).elements == 256 ? 8 : 1;
      for (const int64_t outputs : {1, 16, 35}) {
        const TestMatrix matrix = RandomMatrix(type, outputs, inputs, 13);
        std::vector<float> row(static_cast<size_t>(inputs));
        for (int64_t n = 0; n < outputs; ++n) {
          UnpackRow(matrix.view(), n, row.data());
          for (int64_t k = 0; k < inputs; ++k) REQUIRE(row[k] == matrix.At(n, k));
        }
      }
    }
  }
}

TEST_CASE("A packed matrix has the bytes of its source, rounded up to whole tiles",
          "[kernels][packing]") {
  for (const WeightType type : AllWeightTypes()) {
    for (const int64_t inputs : {256, 768, 1536}) {
      const int64_t source = 48 * SourceRowBytes(type, inputs);
      CHECK(PackedBytes(type, 48, inputs) - source < 3 * kPackedAlignment);
      CHECK(PackedBytes(type, 48, inputs) >= source);
      CHECK(PackedTileBytes(type, inputs) % kPackedAlignment == 0);
    }
  }
  CHECK(PackedBytes(WeightType::kF16, 1, 33) == 16 * 64 * 2);
}

}  // namespace
}  // namespace weft::kernels::cpu::testing
