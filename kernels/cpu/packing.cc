#include "kernels/cpu/packing.h"

#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/packed_format.h"
#include "kernels/cpu/packed_scales.h"
#include "kernels/half.h"
#include "kernels/weight_super_blocks.h"

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

// One plane of a group of 32 codes of output n: 16-bit words (n, p) hold the codes of inputs
// k = 2t + p, t from 0, the lowest bits first; a 64-byte line of 16 outputs holds 16 / kBits of
// them.
template <int kBits>
void PackPlane(const uint8_t* codes, int64_t n, uint8_t* plane) {
  constexpr int kInputs = 32 / kBits;
  for (int line = 0; line < kBits; ++line) {
    uint32_t words = 0;
    if constexpr (kBits == 4) {
      words = GatherNibbles(Load64(codes + kInputs * line));
    } else {
      for (int i = 0; i < kInputs; ++i) {
        const uint32_t code = codes[kInputs * line + i] & ((1u << kBits) - 1);
        words |= code << (i / 2 * kBits + i % 2 * 16);
      }
    }
    std::memcpy(plane + 64 * line + 4 * n, &words, 4);
  }
}

template <int kBits>
int CodeAt(const uint8_t* plane, int64_t n, int64_t k) {
  constexpr int64_t kInputs = 32 / kBits;
  const uint16_t word = Load16(plane + 64 * (k / kInputs) + 4 * n + 2 * (k % 2));
  return word >> (k % kInputs / 2 * kBits) & ((1 << kBits) - 1);
}

// Bytes have a plane of their own form: eight lines of four inputs each, two of them in a word.
template <>
void PackPlane<8>(const uint8_t* codes, int64_t n, uint8_t* plane) {
  uint8_t* lane = plane + 16 * (n / 4) + 2 * (n % 4);
  for (int j = 0; j < 8; j += 2) {
    const uint64_t q = Load64(codes + 4 * j);
    for (int h = 0; h < 4; ++h) {
      const uint16_t pair = static_cast<uint16_t>(q >> (16 * h));
      std::memcpy(lane + 64 * (j + h / 2) + 8 * (h % 2), &pair, 2);
    }
  }
}

template <>
int CodeAt<8>(const uint8_t* plane, int64_t n, int64_t k) {
  return plane[64 * (k / 4) + 16 * (n / 4) + 8 * (k % 4 / 2) + 2 * (n % 4) + k % 2];
}

template <WeightType kType>
void PackBlocks(const uint8_t* const rows[kOutputs], int64_t blocks, uint8_t* packed) {
  constexpr PackedFormat kFormat = PackedFormatOf(kType);
  constexpr int64_t kGroups = PackedBlockInputs(kType) / kCodeGroup;
  for (int64_t n = 0; n < kOutputs; ++n) {
    if (rows[n] == nullptr) continue;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* source = rows[n] + b * FormatOf(kType).bytes;
      uint8_t* out = packed + b * PackedBlockBytes(kType);
      for (int g = 0; g < kGroups; ++g, out += PackedGroupBytes(kType)) {
        uint8_t codes[kCodeGroup];
        Block<kType>::Codes(source, g, codes);
        PackPlane<kFormat.low_bits>(codes, n, out);
        if constexpr (kFormat.high_bits > 0) {
          for (uint8_t& code : codes) code = static_cast<uint8_t>(code >> kFormat.low_bits);
          PackPlane<kFormat.high_bits>(codes, n, out + 64 * kFormat.low_bits);
        }
      }
      PackScales<kFormat.scales>(Block<kType>::Scales(source), n, out);
    }
  }
}

template <WeightType kType>
void UnpackBlocks(const uint8_t* tile, int64_t n, int64_t inputs, float* out) {
  constexpr PackedFormat kFormat = PackedFormatOf(kType);
  constexpr WeightFormat kBlock = FormatOf(kType);
  for (int64_t k = 0; k < inputs; k += kBlock.elements, tile += PackedBlockBytes(kType)) {
    constexpr int64_t kGroups = kBlock.elements / kCodeGroup;
    const auto scales = ScalesAt<kFormat.scales>(tile + kGroups * PackedGroupBytes(kType), n);
    for (int unit = 0; unit < kBlock.elements / kBlock.unit; ++unit) {
      const float d = Block<kType>::D(scales, unit);
      const float m = Block<kType>::M(scales, unit);
      for (int i = unit * kBlock.unit; i < (unit + 1) * kBlock.unit; ++i) {
        const uint8_t* group = tile + i / kCodeGroup * PackedGroupBytes(kType);
        int code = CodeAt<kFormat.low_bits>(group, n, i % kCodeGroup);
        if constexpr (kFormat.high_bits > 0) {
          const uint8_t* high = group + 64 * kFormat.low_bits;
          code |= CodeAt<kFormat.high_bits>(high, n, i % kCodeGroup) << kFormat.low_bits;
        }
        const float scaled =
            static_cast<float>(Block<kType>::Value(static_cast<uint8_t>(code))) * d;
        out[k + i] = kBlock.has_minimum ? scaled + m : scaled;
      }
    }
  }
}

template <WeightType kType>
void UnpackPlain(const uint8_t* tile, int64_t n, int64_t inputs, float* out) {
  for (int64_t k = 0; k < inputs; ++k) {
    if constexpr (kType == WeightType::kF32) {
      std::memcpy(&out[k], tile + (k * kOutputs + n) * 4, 4);
    } else if constexpr (kType == WeightType::kF16) {
      out[k] = HalfToFloat(Load16(tile + (k * kOutputs + n) * 2));
    } else {
      static_assert(kType == WeightType::kBf16);
      const uint8_t* at = tile + (k / 2 * kOutputs + n) * 4 + k % 2 * 2;
      out[k] = FloatOfBits(static_cast<uint32_t>(Load16(at)) << 16);
    }
  }
}

template <WeightType kType>
void PackTileOf(const uint8_t* const rows[kOutputs], int64_t inputs, uint8_t* packed) {
  if constexpr (IsQuantised(kType)) {
    PackBlocks<kType>(rows, inputs / FormatOf(kType).elements, packed);
  } else if constexpr (kType == WeightType::kBf16) {
    PackPlain<uint32_t>(rows, 2 * inputs, PaddedInputs(inputs) / 2, packed);
  } else if constexpr (kType == WeightType::kF16) {
    PackPlain<uint16_t>(rows, 2 * inputs, PaddedInputs(inputs), packed);
  } else {
    PackPlain<uint32_t>(rows, 4 * inputs, PaddedInputs(inputs), packed);
  }
}

template <WeightType kType>
void UnpackRowOf(const uint8_t* tile, int64_t n, int64_t inputs, float* out) {
  if constexpr (IsQuantised(kType)) {
    UnpackBlocks<kType>(tile, n, inputs, out);
  } else {
    UnpackPlain<kType>(tile, n, inputs, out);
  }
}

struct Packing {
  void (*pack_tile)(const uint8_t* const rows[kOutputs], int64_t inputs, uint8_t* packed);
  void (*unpack_row)(const uint8_t* tile, int64_t n, int64_t inputs, float* out);
};

template <size_t... kIndex>
constexpr std::array<Packing, kWeightTypes> PackingTable(std::index_sequence<kIndex...>) {
  return {Packing{PackTileOf<static_cast<WeightType>(kIndex)>,
                  UnpackRowOf<static_cast<WeightType>(kIndex)>}...};
}

constexpr auto kPacking = PackingTable(std::make_index_sequence<kWeightTypes>());

}  // namespace

void PackTile(WeightType type, const uint8_t* const rows[kTileOutputs], int64_t inputs,
              uint8_t* packed_tile) {
  for (int64_t n = 0; n < kOutputs && IsQuantised(type); ++n) {
    if (rows[n] != nullptr) continue;
    std::memset(packed_tile, 0, static_cast<size_t>(PackedTileBytes(type, inputs)));
    break;
  }
  kPacking[static_cast<size_t>(type)].pack_tile(rows, inputs, packed_tile);
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const uint8_t* tile = matrix.data + row / kOutputs * PackedTileBytes(matrix.type, matrix.inputs);
  kPacking[static_cast<size_t>(matrix.type)].unpack_row(tile, row % kOutputs, matrix.inputs, out);
}

}  // namespace weft::kernels::cpu
