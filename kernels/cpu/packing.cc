#include "kernels/cpu/packing.h"

#include <cstring>

#include "kernels/half.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kOutputs = kTileOutputs;

uint64_t Load64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// [unit][n], where a unit is one element or a pair of bf16; a last odd bf16 is paired with zero.
template <typename T>
void PackPlain(const uint8_t* const rows[kOutputs], int64_t row_bytes, int64_t units_padded,
               uint8_t* packed) {
  constexpr int64_t kBytes = sizeof(T);
  const int64_t units = row_bytes / kBytes;
  static const uint8_t kZeros[kBytes] = {};
  const uint8_t* source[kOutputs];
  int64_t step[kOutputs];
  for (int64_t n = 0; n < kOutputs; ++n) {
    source[n] = rows[n] != nullptr ? rows[n] : kZeros;
    step[n] = rows[n] != nullptr ? kBytes : 0;
  }
  for (int64_t k = 0; k < units; ++k) {
    T line[kOutputs];
    for (int64_t n = 0; n < kOutputs; ++n) std::memcpy(&line[n], source[n] + k * step[n], kBytes);
    std::memcpy(packed + k * kOutputs * kBytes, line, sizeof(line));
  }
  std::memset(packed + units * kOutputs * kBytes, 0,
              static_cast<size_t>((units_padded - units) * kOutputs * kBytes));
  for (int64_t n = 0; n < kOutputs && units * kBytes < row_bytes; ++n) {
    if (rows[n] == nullptr) continue;
    std::memcpy(packed + (units * kOutputs + n) * kBytes, rows[n] + units * kBytes,
                static_cast<size_t>(row_bytes - units * kBytes));
  }
}

// Eight consecutive weights in the low nibbles of eight bytes -> two words (p = 0 low, p = 1 high)
// of four nibbles: byte 2s + p becomes nibble s of word p.
uint32_t GatherNibbles(uint64_t bytes) {
  const auto word = [](uint64_t even) {
    even |= even >> 12;
    even &= 0x000000FF000000FFull;
    return static_cast<uint32_t>(even | even >> 24) & 0xFFFFu;
  };
  return word(bytes & 0x000F000F000F000Full) | word(bytes >> 8 & 0x000F000F000F000Full) << 16;
}

// kQ4_0 and kQ4_1: `scale_count` f16 numbers, then 16 bytes of nibbles.
void PackNibbles(const uint8_t* const rows[kOutputs], int64_t blocks, int scale_count,
                 uint8_t* packed) {
  const int64_t source_bytes = 16 + 2 * scale_count;
  const int64_t block_bytes = 256 + 32 * scale_count;
  for (int64_t n = 0; n < kOutputs; ++n) {
    if (rows[n] == nullptr) continue;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* source = rows[n] + b * source_bytes;
      uint8_t* out = packed + b * block_bytes;
      for (int s = 0; s < scale_count; ++s) {
        std::memcpy(out + 256 + 32 * s + 2 * n, source + 2 * s, 2);
      }
      const uint64_t low = Load64(source + 2 * scale_count);
      const uint64_t high = Load64(source + 2 * scale_count + 8);
      const uint32_t words[4] = {GatherNibbles(low), GatherNibbles(high), GatherNibbles(low >> 4),
                                 GatherNibbles(high >> 4)};
      for (int j = 0; j < 4; ++j) std::memcpy(out + 64 * j + 4 * n, &words[j], 4);
    }
  }
}

void PackBytes(const uint8_t* const rows[kOutputs], int64_t blocks, uint8_t* packed) {
  for (int64_t n = 0; n < kOutputs; ++n) {
    if (rows[n] == nullptr) continue;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* source = rows[n] + b * 34;
      uint8_t* out = packed + b * 544;
      std::memcpy(out + 512 + 2 * n, source, 2);
      uint8_t* lane = out + 16 * (n / 4) + 2 * (n % 4);
      for (int j = 0; j < 8; j += 2) {
        const uint64_t q = Load64(source + 2 + 4 * j);
        for (int h = 0; h < 4; ++h) {
          const uint16_t pair = static_cast<uint16_t>(q >> (16 * h));
          std::memcpy(lane + 64 * (j + h / 2) + 8 * (h % 2), &pair, 2);
        }
      }
    }
  }
}

float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint16_t Load16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Nibble of input k (0..31) of output n in a packed 4-bit block.
int NibbleAt(const uint8_t* block, int64_t n, int64_t k) {
  const int64_t j = k / 8;
  const int64_t s = k % 8 / 2;
  const uint16_t word = Load16(block + 64 * j + 4 * n + 2 * (k % 2));
  return word >> (4 * s) & 15;
}

int ByteAt(const uint8_t* block, int64_t n, int64_t k) {
  const int64_t at = 64 * (k / 4) + 16 * (n / 4) + 8 * (k % 4 / 2) + 2 * (n % 4) + k % 2;
  return static_cast<int8_t>(block[at]);
}

}  // namespace

void PackTile(WeightType type, const uint8_t* const rows[kTileOutputs], int64_t inputs,
              uint8_t* packed_tile) {
  const int64_t blocks = inputs / kBlockInputs;
  const int64_t padded = PaddedInputs(inputs);
  for (int64_t n = 0; n < kOutputs && IsQuantised(type); ++n) {
    if (rows[n] != nullptr) continue;
    std::memset(packed_tile, 0, static_cast<size_t>(PackedTileBytes(type, inputs)));
    break;
  }
  switch (type) {
    case WeightType::kF32:
      return PackPlain<uint32_t>(rows, 4 * inputs, padded, packed_tile);
    case WeightType::kF16:
      return PackPlain<uint16_t>(rows, 2 * inputs, padded, packed_tile);
    case WeightType::kBf16:
      return PackPlain<uint32_t>(rows, 2 * inputs, padded / 2, packed_tile);
    case WeightType::kQ8_0:
      return PackBytes(rows, blocks, packed_tile);
    case WeightType::kQ4_0:
      return PackNibbles(rows, blocks, 1, packed_tile);
    case WeightType::kQ4_1:
      return PackNibbles(rows, blocks, 2, packed_tile);
  }
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const uint8_t* tile = matrix.data + row / kOutputs * PackedTileBytes(matrix.type, matrix.inputs);
  const int64_t n = row % kOutputs;
  for (int64_t k = 0; k < matrix.inputs; ++k) {
    const int64_t b = k / kBlockInputs;
    const int64_t i = k % kBlockInputs;
    switch (matrix.type) {
      case WeightType::kF32:
        std::memcpy(&out[k], tile + (k * kOutputs + n) * 4, 4);
        break;
      case WeightType::kF16:
        out[k] = HalfToFloat(Load16(tile + (k * kOutputs + n) * 2));
        break;
      case WeightType::kBf16: {
        const uint8_t* at = tile + (k / 2 * kOutputs + n) * 4 + k % 2 * 2;
        out[k] = FloatOfBits(static_cast<uint32_t>(Load16(at)) << 16);
        break;
      }
      case WeightType::kQ8_0: {
        const uint8_t* block = tile + b * 544;
        const float d = HalfToFloat(Load16(block + 512 + 2 * n));
        out[k] = static_cast<float>(ByteAt(block, n, i)) * d;
        break;
      }
      case WeightType::kQ4_0: {
        const uint8_t* block = tile + b * 288;
        const float d = HalfToFloat(Load16(block + 256 + 2 * n));
        out[k] = static_cast<float>(NibbleAt(block, n, i) - 8) * d;
        break;
      }
      case WeightType::kQ4_1: {
        const uint8_t* block = tile + b * 320;
        const float d = HalfToFloat(Load16(block + 256 + 2 * n));
        const float m = HalfToFloat(Load16(block + 288 + 2 * n));
        const float scaled = static_cast<float>(NibbleAt(block, n, i)) * d;
        out[k] = scaled + m;
        break;
      }
    }
  }
}

}  // namespace weft::kernels::cpu
