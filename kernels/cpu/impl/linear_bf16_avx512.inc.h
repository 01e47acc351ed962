// Linear with bf16 activations on AVX-512 BF16: vdpbf16ps multiplies pairs of bf16 exactly and adds
// in float32 (numbers: linear.h). 4- and 8-bit integers are exact in bf16, so weights become bf16
// in registers without rounding, by table look-ups, and are scaled once per block of 32 inputs.
//
// One kernel for one row and for many: weights go from packed memory through registers into the
// products of up to 12 rows x 1 tile or 6 rows x 2 tiles, whose 12 block sums and 12 sums over
// blocks fill the registers. Decoding 32 weights of 16 outputs takes 28 instructions beside 192
// products, and packed tiles stay in L1, so unpacking them to memory first does not pay. One row
// runs at memory speed.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// Pairs of inputs in a block: one 64-byte register of [16 outputs][2] each.
constexpr int kPairs = static_cast<int>(kBlockInputs / 2);

inline __m512 DotPairs(__m512 acc, __m512i weights, __m512i x) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(weights), reinterpret_cast<__m512bh>(x));
}

inline __m512i BroadcastPair(const uint8_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, 4);
  return _mm512_set1_epi32(pair);
}

// Makes the bf16 pairs of a block from packed weights, in kGroups groups of kPairs / kGroups: Load
// reads group j, Pair gives its s-th register.
template <WeightType kType>
struct Decoder;

template <>
struct Decoder<WeightType::kBf16> {
  static constexpr int kGroups = 16;
  struct Group {
    __m512i words;
  };
  Group LoadGroup(const uint8_t* block, int j) const {
    return Group{_mm512_loadu_si512(block + 64 * j)};
  }
  __m512i Pair(const Group& group, int) const { return group.words; }
};

// A table of bf16 integers -8..7 or 0..15, twice: bit 4 of an index does not matter, and vpermw
// ignores the bits above it.
template <WeightType kType>
struct NibbleDecoder {
  static constexpr int kGroups = 4;
  struct Group {
    __m512i words;
  };
  __m512i table;

  NibbleDecoder() {
    alignas(64) uint16_t values[32];
    for (int i = 0; i < 32; ++i) {
      const float value = static_cast<float>(i % 16 - (kType == WeightType::kQ4_0 ? 8 : 0));
      uint32_t bits;
      __builtin_memcpy(&bits, &value, 4);
      values[i] = static_cast<uint16_t>(bits >> 16);
    }
    table = _mm512_load_si512(values);
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    return Group{_mm512_loadu_si512(block + 64 * j)};
  }
  __m512i Pair(const Group& group, int s) const {
    __m512i index = group.words;
    if (s == 1) index = _mm512_srli_epi16(index, 4);
    if (s == 2) index = _mm512_srli_epi16(index, 8);
    if (s == 3) index = _mm512_srli_epi16(index, 12);
    return _mm512_permutexvar_epi16(index, table);
  }
};
template <>
struct Decoder<WeightType::kQ4_0> : NibbleDecoder<WeightType::kQ4_0> {};
template <>
struct Decoder<WeightType::kQ4_1> : NibbleDecoder<WeightType::kQ4_1> {};

// |q| = 0..128 looks its two bf16 bytes up by its low 7 bits: entry 0 is that of 128, and a mask
// makes zeros of q = 0. The sign is q's own.
template <>
struct Decoder<WeightType::kQ8_0> {
  static constexpr int kGroups = 8;
  struct Group {
    __m512i low;
    __m512i high;
  };
  __m512i low[2];
  __m512i high[2];

  Decoder() {
    alignas(64) uint8_t low_bytes[128];
    alignas(64) uint8_t high_bytes[128];
    for (int i = 0; i < 128; ++i) {
      const float magnitude = static_cast<float>(i == 0 ? 128 : i);
      uint32_t bits;
      __builtin_memcpy(&bits, &magnitude, 4);
      low_bytes[i] = static_cast<uint8_t>(bits >> 16);
      high_bytes[i] = static_cast<uint8_t>(bits >> 24);
    }
    for (int h = 0; h < 2; ++h) {
      low[h] = _mm512_load_si512(low_bytes + 64 * h);
      high[h] = _mm512_load_si512(high_bytes + 64 * h);
    }
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    const __m512i q = _mm512_loadu_si512(block + 64 * j);
    const __mmask64 nonzero = _mm512_test_epi8_mask(q, q);
    const __m512i magnitude = _mm512_abs_epi8(q);
    const __m512i u = _mm512_maskz_permutex2var_epi8(nonzero, high[0], magnitude, high[1]);
    // u | (q & 0x80)
    return Group{_mm512_permutex2var_epi8(low[0], magnitude, low[1]),
                 _mm512_ternarylogic_epi32(u, q, _mm512_set1_epi8(-128), 0xF8)};
  }
  __m512i Pair(const Group& group, int s) const {
    return s == 0 ? _mm512_unpacklo_epi8(group.low, group.high)
                  : _mm512_unpackhi_epi8(group.low, group.high);
  }
};

struct PairRows {
  const uint8_t* x;
  int64_t x_stride_bytes;
  const float* sums;
  int64_t blocks;
};

// Adds a finished block: acc = d * block + acc, then m * sum + acc.
template <WeightType kType>
inline __m512 AddBlock(__m512 acc, __m512 block, __m512 d, __m512 m, const float* sum) {
  if constexpr (ScaleCount(kType) == 0) return _mm512_add_ps(acc, block);
  acc = _mm512_fmadd_ps(d, block, acc);
  if constexpr (ScaleCount(kType) == 2) acc = _mm512_fmadd_ps(m, _mm512_set1_ps(*sum), acc);
  return acc;
}

// Bytes ahead of the reader; about what arrives during one memory latency.
constexpr int64_t kPrefetchBytes = 4096;

// Up to so many rows 12 x 1 is faster (it reads packed weights in one stream), above it 6 x 2 is
// (it loads each activation once for two tiles).
constexpr int64_t kOneTileRows = 64;

// kRows rows times kTiles tiles; `outputs` columns in the last tile.
template <WeightType kType, int kRows, int kTiles>
void PairKernel(const Decoder<kType> decoder, const uint8_t* tiles, int64_t tile_bytes,
                const PairRows& rows, float* y, int64_t y_stride, int64_t outputs) {
  constexpr int kGroupPairs = kPairs / Decoder<kType>::kGroups;
  __m512 acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  // Every third row has a pointer, the two behind it are one and two strides away: few registers.
  const int64_t stride = rows.x_stride_bytes;
  const uint8_t* x[(kRows + 2) / 3];
  for (int i = 0; i < (kRows + 2) / 3; ++i) x[i] = rows.x + 3 * i * stride;
  for (int64_t b = 0; b < rows.blocks; ++b) {
    const uint8_t* packed = tiles + b * BytesOfBlock(kType);
    for (int t = 0; t < kTiles; ++t) {
      for (int64_t at = 0; at < BytesOfBlock(kType); at += 64) {
        Prefetch(packed + t * tile_bytes + kPrefetchBytes + at);
      }
    }
    __m512 block[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) block[r][t] = _mm512_setzero_ps();
    }
#pragma GCC unroll 16
    for (int j = 0; j < Decoder<kType>::kGroups; ++j) {
      typename Decoder<kType>::Group group[kTiles];
      for (int t = 0; t < kTiles; ++t) group[t] = decoder.LoadGroup(packed + t * tile_bytes, j);
#pragma GCC unroll 4
      for (int s = 0; s < kGroupPairs; ++s) {
        __m512i w[kTiles];
        for (int t = 0; t < kTiles; ++t) w[t] = decoder.Pair(group[t], s);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x[r / 3] + r % 3 * stride + 4 * (j * kGroupPairs + s);
          const __m512i pair = BroadcastPair(at);
          for (int t = 0; t < kTiles; ++t) block[r][t] = DotPairs(block[r][t], w[t], pair);
        }
      }
    }
    for (int i = 0; i < (kRows + 2) / 3; ++i) x[i] += 4 * kPairs;
    for (int t = 0; t < kTiles; ++t) {
      const uint8_t* scales = packed + t * tile_bytes + WeightBytesOfBlock(kType);
      __m512 d = _mm512_setzero_ps();
      __m512 m = _mm512_setzero_ps();
      if constexpr (ScaleCount(kType) >= 1) d = LoadHalfs(scales);
      if constexpr (ScaleCount(kType) == 2) m = LoadHalfs(scales + 32);
      for (int r = 0; r < kRows; ++r) {
        acc[r][t] = AddBlock<kType>(acc[r][t], block[r][t], d, m, rows.sums + r * rows.blocks + b);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) {
      StoreN(y + r * y_stride + t * kLanes, acc[r][t], t + 1 == kTiles ? outputs : kLanes);
    }
  }
}

template <WeightType kType, int kTiles, int kRows>
void PairKernelOf(int64_t row_count, const Decoder<kType>& decoder, const uint8_t* tiles,
                  int64_t tile_bytes, const PairRows& rows, float* y, int64_t y_stride,
                  int64_t outputs) {
  if (row_count == kRows) {
    PairKernel<kType, kRows, kTiles>(decoder, tiles, tile_bytes, rows, y, y_stride, outputs);
  } else if constexpr (kRows > 1) {
    PairKernelOf<kType, kTiles, kRows - 1>(row_count, decoder, tiles, tile_bytes, rows, y, y_stride,
                                           outputs);
  }
}

// kTiles tiles from `tile` on times all rows, in groups of nearly equal size: 7 rows are 4 + 3, not
// 6 + 1.
template <WeightType kType, int kTiles, int kGroupRows>
void PairTiles(const PackedMatrix& matrix, const Activations& x, int64_t tile, float* y,
               int64_t y_stride, const Decoder<kType>& decoder) {
  const int64_t blocks = (matrix.inputs + kBlockInputs - 1) / kBlockInputs;
  const int64_t tile_bytes = BytesOfTile<kType>(blocks);
  const int64_t x_stride = blocks * kBlockInputs * 4;
  const int64_t left = matrix.outputs - (tile + kTiles - 1) * kTileOutputs;
  const int64_t outputs = left < kTileOutputs ? left : kTileOutputs;
  const int64_t groups = (x.rows + kGroupRows - 1) / kGroupRows;
  int64_t r = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = (x.rows - r + groups - g - 1) / (groups - g);
    const PairRows rows{x.values + r * x_stride, x_stride, x.block_sums + r * blocks, blocks};
    PairKernelOf<kType, kTiles, kGroupRows>(
        count, decoder, matrix.data + tile * tile_bytes, tile_bytes, rows,
        y + r * y_stride + tile * kTileOutputs, y_stride, outputs);
    r += count;
  }
}

template <WeightType kType>
void LinearPairs(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                 int64_t tile_end, float* y, int64_t y_stride) {
  const Decoder<kType> decoder;
  int64_t tile = tile_begin;
  if (x.rows > kOneTileRows) {
    for (; tile + 2 <= tile_end; tile += 2) {
      PairTiles<kType, 2, 6>(matrix, x, tile, y, y_stride, decoder);
    }
  }
  for (; tile < tile_end; ++tile) PairTiles<kType, 1, 12>(matrix, x, tile, y, y_stride, decoder);
}

void LinearBf16(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                int64_t tile_end, float* y, int64_t y_stride, void* scratch) {
  if (x.type == ActivationType::kF32) {
    return LinearF32(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
  }
  switch (matrix.type) {
    case WeightType::kBf16:
      return LinearPairs<WeightType::kBf16>(matrix, x, tile_begin, tile_end, y, y_stride);
    case WeightType::kQ8_0:
      return LinearPairs<WeightType::kQ8_0>(matrix, x, tile_begin, tile_end, y, y_stride);
    case WeightType::kQ4_0:
      return LinearPairs<WeightType::kQ4_0>(matrix, x, tile_begin, tile_end, y, y_stride);
    case WeightType::kQ4_1:
      return LinearPairs<WeightType::kQ4_1>(matrix, x, tile_begin, tile_end, y, y_stride);
    case WeightType::kF32:
    case WeightType::kF16:
      // ActivationFor never pairs these with bf16 rows.
      __builtin_trap();
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
