// Linear with bf16 activations on AVX-512 BF16: vdpbf16ps multiplies pairs of bf16 exactly and adds
// in float32 (numbers: linear.h). 4- and 8-bit integers are exact in bf16, so weights become bf16
// in registers without rounding, by table look-ups, and are scaled once per block of 32 inputs.
//
// Few rows (DirectKernel): weights go from packed memory through registers into the products of all
// rows; one row runs at memory speed. Many rows (PanelKernel): two tiles are unpacked once into
// scratch, then 6 rows x 32 outputs a time. Both add in the same order.

#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// Pairs of inputs in a block: one 64-byte register of [16 outputs][2] each.
constexpr int kPairs = static_cast<int>(kBlockInputs / 2);
constexpr int kDirectRowsMax = 8;
constexpr int kPanelRowsMax = 6;
constexpr int kPanelTiles = 2;

inline __m512 DotPairs(__m512 acc, __m512i weights, __m512i x) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(weights), reinterpret_cast<__m512bh>(x));
}

inline __m512i BroadcastPair(const uint32_t* x) {
  return _mm512_set1_epi32(static_cast<int32_t>(*x));
}

// bf16 of the integers -8..7 or 0..15, twice: bit 4 of an index does not matter, and vpermw ignores
// the bits above it.
template <WeightType kType>
inline __m512i NibbleTable() {
  alignas(64) uint16_t table[32];
  for (int i = 0; i < 32; ++i) {
    const float value = static_cast<float>(i % 16 - (kType == WeightType::kQ4_0 ? 8 : 0));
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    table[i] = static_cast<uint16_t>(bits >> 16);
  }
  return _mm512_load_si512(table);
}

// Makes the bf16 pairs of a block from packed weights: calls use(i, weights) for pair i = 0..15.
template <WeightType kType>
struct Decoder;

template <>
struct Decoder<WeightType::kBf16> {
  template <class Use>
  inline __attribute__((always_inline)) void Decode(const uint8_t* block, Use use) const {
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i) use(i, _mm512_loadu_si512(block + 64 * i));
  }
};

template <WeightType kType>
struct NibbleDecoder {
  __m512i table = NibbleTable<kType>();

  template <class Use>
  inline __attribute__((always_inline)) void Decode(const uint8_t* block, Use use) const {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i words = _mm512_loadu_si512(block + 64 * j);
      use(4 * j, _mm512_permutexvar_epi16(words, table));
      use(4 * j + 1, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table));
      use(4 * j + 2, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), table));
      use(4 * j + 3, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), table));
    }
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

  template <class Use>
  inline __attribute__((always_inline)) void Decode(const uint8_t* block, Use use) const {
    const __m512i signs = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i q = _mm512_loadu_si512(block + 64 * j);
      const __mmask64 nonzero = _mm512_test_epi8_mask(q, q);
      const __m512i magnitude = _mm512_abs_epi8(q);
      const __m512i l = _mm512_permutex2var_epi8(low[0], magnitude, low[1]);
      const __m512i u = _mm512_maskz_permutex2var_epi8(nonzero, high[0], magnitude, high[1]);
      // u | (q & 0x80)
      const __m512i h = _mm512_ternarylogic_epi32(u, q, signs, 0xF8);
      use(2 * j, _mm512_unpacklo_epi8(l, h));
      use(2 * j + 1, _mm512_unpackhi_epi8(l, h));
    }
  }
};

struct PairRows {
  const uint8_t* x;
  int64_t x_stride_bytes;
  const float* sums;
  int64_t blocks;

  const uint32_t* Pairs(int64_t r, int64_t b) const {
    return reinterpret_cast<const uint32_t*>(x + r * x_stride_bytes) + b * kPairs;
  }
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

// kRows rows times one tile.
template <WeightType kType, int kRows>
void DirectKernel(const Decoder<kType>& decoder, const uint8_t* tile, const PairRows& rows,
                  float* y, int64_t y_stride, int64_t outputs) {
  __m512 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  const uint32_t* x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = rows.Pairs(r, 0);
  for (int64_t b = 0; b < rows.blocks; ++b) {
    const uint8_t* packed = tile + b * BytesOfBlock(kType);
    for (int64_t at = 0; at < BytesOfBlock(kType); at += 64) Prefetch(packed + kPrefetchBytes + at);
    __m512 block[kRows];
    for (int r = 0; r < kRows; ++r) block[r] = _mm512_setzero_ps();
    decoder.Decode(
        packed, [&](int i, __m512i weights) __attribute__((always_inline)) {
          for (int r = 0; r < kRows; ++r) {
            block[r] = DotPairs(block[r], weights, BroadcastPair(x[r] + b * kPairs + i));
          }
        });
    __m512 d = _mm512_setzero_ps();
    __m512 m = _mm512_setzero_ps();
    const uint8_t* scales = packed + WeightBytesOfBlock(kType);
    if constexpr (ScaleCount(kType) >= 1) d = LoadHalfs(scales);
    if constexpr (ScaleCount(kType) == 2) m = LoadHalfs(scales + 32);
    for (int r = 0; r < kRows; ++r) {
      acc[r] = AddBlock<kType>(acc[r], block[r], d, m, rows.sums + r * rows.blocks + b);
    }
  }
  for (int r = 0; r < kRows; ++r) StoreN(y + r * y_stride, acc[r], outputs);
}

template <WeightType kType, int kRows = kDirectRowsMax>
void DirectKernelOf(int64_t row_count, const Decoder<kType>& decoder, const uint8_t* tile,
                    const PairRows& rows, float* y, int64_t y_stride, int64_t outputs) {
  if (row_count == kRows) {
    DirectKernel<kType, kRows>(decoder, tile, rows, y, y_stride, outputs);
  } else if constexpr (kRows > 1) {
    DirectKernelOf<kType, kRows - 1>(row_count, decoder, tile, rows, y, y_stride, outputs);
  }
}

// kTiles tiles as [block][pair][tile] registers, and their scales as [block][d, m][tile] float32.
struct Panel {
  uint8_t* weights;
  float* scales;
};

template <WeightType kType, int kTiles>
void UnpackPanel(const Decoder<kType>& decoder, const uint8_t* tiles, int64_t tile_bytes,
                 int64_t blocks, const Panel& panel) {
  for (int t = 0; t < kTiles; ++t) {
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* packed = tiles + t * tile_bytes + b * BytesOfBlock(kType);
      uint8_t* out = panel.weights + (b * kPairs * kTiles + t) * 64;
      decoder.Decode(
          packed, [&](int i, __m512i weights) __attribute__((always_inline)) {
            _mm512_storeu_si512(out + i * kTiles * 64, weights);
          });
      for (int s = 0; s < ScaleCount(kType); ++s) {
        const uint8_t* halfs = packed + WeightBytesOfBlock(kType) + 32 * s;
        Store(panel.scales + ((b * 2 + s) * kTiles + t) * kLanes, LoadHalfs(halfs));
      }
    }
  }
}

// kRows rows times kTiles unpacked tiles; `outputs` columns in the last tile.
template <WeightType kType, int kTiles, int kRows>
void PanelKernel(const Panel& panel, const PairRows& rows, float* y, int64_t y_stride,
                 int64_t outputs) {
  __m512 acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  const uint8_t* weights = panel.weights;
  for (int64_t b = 0; b < rows.blocks; ++b) {
    __m512 block[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) block[r][t] = _mm512_setzero_ps();
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i, weights += 64 * kTiles) {
      __m512i w[kTiles];
      for (int t = 0; t < kTiles; ++t) w[t] = _mm512_loadu_si512(weights + 64 * t);
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = BroadcastPair(rows.Pairs(r, b) + i);
        for (int t = 0; t < kTiles; ++t) block[r][t] = DotPairs(block[r][t], w[t], x);
      }
    }
    const float* scales = panel.scales + b * 2 * kTiles * kLanes;
    for (int t = 0; t < kTiles; ++t) {
      __m512 d = _mm512_setzero_ps();
      __m512 m = _mm512_setzero_ps();
      if constexpr (ScaleCount(kType) >= 1) d = Load(scales + t * kLanes);
      if constexpr (ScaleCount(kType) == 2) m = Load(scales + (kTiles + t) * kLanes);
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

template <WeightType kType, int kTiles, int kRows = kPanelRowsMax>
void PanelKernelOf(int64_t row_count, const Panel& panel, const PairRows& rows, float* y,
                   int64_t y_stride, int64_t outputs) {
  if (row_count == kRows) {
    PanelKernel<kType, kTiles, kRows>(panel, rows, y, y_stride, outputs);
  } else if constexpr (kRows > 1) {
    PanelKernelOf<kType, kTiles, kRows - 1>(row_count, panel, rows, y, y_stride, outputs);
  }
}

template <WeightType kType>
struct PairLinear {
  const PackedMatrix& matrix;
  PairRows rows;
  int64_t row_count;
  float* y;
  int64_t y_stride;
  uint8_t* scratch;
  int64_t tile_bytes;
  Decoder<kType> decoder;

  PairLinear(const PackedMatrix& w, const Activations& x, float* out, int64_t stride, void* memory)
      : matrix(w), row_count(x.rows), y(out), y_stride(stride) {
    const int64_t blocks = (w.inputs + kBlockInputs - 1) / kBlockInputs;
    rows = PairRows{x.values, blocks * kBlockInputs * 4, x.block_sums, blocks};
    scratch = static_cast<uint8_t*>(memory);
    tile_bytes = BytesOfTile<kType>(blocks);
  }

  PairRows From(int64_t r) const {
    return PairRows{rows.x + r * rows.x_stride_bytes, rows.x_stride_bytes,
                    rows.sums + r * rows.blocks, rows.blocks};
  }
  int64_t OutputsOf(int64_t tile) const {
    const int64_t left = matrix.outputs - tile * kTileOutputs;
    return left < kTileOutputs ? left : kTileOutputs;
  }

  void Direct(int64_t tile) const {
    DirectKernelOf<kType>(row_count, decoder, matrix.data + tile * tile_bytes, rows,
                          y + tile * kTileOutputs, y_stride, OutputsOf(tile));
  }

  template <int kTiles>
  void ByPanel(int64_t tile) const {
    const Panel panel{scratch,
                      reinterpret_cast<float*>(scratch + rows.blocks * kPairs * kTiles * 64)};
    UnpackPanel<kType, kTiles>(decoder, matrix.data + tile * tile_bytes, tile_bytes, rows.blocks,
                               panel);
    // Groups of nearly equal size: 7 rows are 4 + 3, not 6 + 1.
    const int64_t groups = (row_count + kPanelRowsMax - 1) / kPanelRowsMax;
    int64_t r = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t count = (row_count - r + groups - g - 1) / (groups - g);
      PanelKernelOf<kType, kTiles>(count, panel, From(r), y + r * y_stride + tile * kTileOutputs,
                                   y_stride, OutputsOf(tile + kTiles - 1));
      r += count;
    }
  }

  void Run(int64_t tile_begin, int64_t tile_end) const {
    int64_t tile = tile_begin;
    if (row_count <= kDirectRowsMax) {
      for (; tile < tile_end; ++tile) Direct(tile);
      return;
    }
    for (; tile + kPanelTiles <= tile_end; tile += kPanelTiles) ByPanel<kPanelTiles>(tile);
    for (; tile < tile_end; ++tile) ByPanel<1>(tile);
  }
};

void LinearBf16(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                int64_t tile_end, float* y, int64_t y_stride, void* scratch) {
  if (x.type == ActivationType::kF32) {
    return LinearF32(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
  }
  switch (matrix.type) {
    case WeightType::kBf16:
      return PairLinear<WeightType::kBf16>(matrix, x, y, y_stride, scratch)
          .Run(tile_begin, tile_end);
    case WeightType::kQ8_0:
      return PairLinear<WeightType::kQ8_0>(matrix, x, y, y_stride, scratch)
          .Run(tile_begin, tile_end);
    case WeightType::kQ4_0:
      return PairLinear<WeightType::kQ4_0>(matrix, x, y, y_stride, scratch)
          .Run(tile_begin, tile_end);
    case WeightType::kQ4_1:
      return PairLinear<WeightType::kQ4_1>(matrix, x, y, y_stride, scratch)
          .Run(tile_begin, tile_end);
    case WeightType::kF32:
    case WeightType::kF16:
      // ActivationFor never pairs these with bf16 rows.
      __builtin_trap();
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
