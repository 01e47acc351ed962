// Linear: one kernel for one row and for many (numbers: linear.h). Weights go from packed memory
// through a decoder's registers into the products of kRows rows x kTiles tiles, whose block sums
// (and, where there are enough registers, sums over blocks) stay in registers. Packed tiles stay in
// L1 while all rows pass; decoding them again for each group of rows costs less than unpacking them
// to memory once (4 bits on AVX-512: 28 instructions beside 192 products). One row runs at memory
// speed.
//
// A decoder (decode_*.inc.h) splits a block of 32 inputs into kSteps steps of 4 bytes of
// activations: LoadGroup reads the j-th of kGroups groups of packed weights, Step gives its s-th
// register, Product adds weight times activation to a sum.

#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/packed_format.h"

namespace weft::kernels::cpu {
namespace {

constexpr int ScaleCount(WeightType type) {
  if (PackedFormatOf(type).scales == ScaleLayout::kHalfPair) return 2;
  return PackedFormatOf(type).scales == ScaleLayout::kHalf ? 1 : 0;
}

// The same as PackedTileBytes of packing.h.
constexpr int64_t BytesOfTile(WeightType type, int64_t blocks) {
  return (blocks * PackedBlockBytes(type) + 63) / 64 * 64;
}

// Bytes ahead of the reader; about what arrives during one memory latency.
constexpr int64_t kPrefetchBytes = 8192;

// Up to so many rows one tile at a time is faster (it reads packed weights in one stream), above it
// two (they load each activation once).
constexpr int64_t kOneTileRows = 64;

struct RowsView {
  const uint8_t* x;
  int64_t x_stride_bytes;
  const float* sums;
  int64_t blocks;
};

// acc = d * block + acc, then m * sum + acc.
template <WeightType kType>
inline Floats AddBlock(const Floats& acc, const Floats& block, const Floats& d, const Floats& m,
                       const float* sum) {
  if constexpr (ScaleCount(kType) == 0) return Add(acc, block);
  const Floats scaled = MulAdd(d, block, acc);
  if constexpr (ScaleCount(kType) == 2) return MulAdd(m, Set(*sum), scaled);
  return scaled;
}

// kRows rows times kTiles tiles; `outputs` columns in the last tile.
template <WeightType kType, int kRows, int kTiles, class Decoder>
void LinearKernel(const Decoder decoder, const uint8_t* tiles, int64_t tile_bytes,
                  const RowsView& rows, float* y, int64_t y_stride, int64_t outputs) {
  constexpr int kGroupSteps = Decoder::kSteps / Decoder::kGroups;
  Floats acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = Zero();
  }
  // Every third row has a pointer, the two behind it are one and two strides away: few registers.
  const int64_t stride = rows.x_stride_bytes;
  const uint8_t* x[(kRows + 2) / 3];
  for (int i = 0; i < (kRows + 2) / 3; ++i) x[i] = rows.x + 3 * i * stride;
  for (int64_t b = 0; b < rows.blocks; ++b) {
    const uint8_t* packed = tiles + b * PackedBlockBytes(kType);
    for (int t = 0; t < kTiles; ++t) {
      for (int64_t at = 0; at < PackedBlockBytes(kType); at += 64) {
        Prefetch(packed + t * tile_bytes + kPrefetchBytes + at);
      }
    }
    Floats block[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) block[r][t] = Zero();
    }
#pragma GCC unroll 32
    for (int j = 0; j < Decoder::kGroups; ++j) {
      typename Decoder::Group group[kTiles];
      for (int t = 0; t < kTiles; ++t) group[t] = decoder.LoadGroup(packed + t * tile_bytes, j);
#pragma GCC unroll 8
      for (int s = 0; s < kGroupSteps; ++s) {
        typename Decoder::Weight w[kTiles];
        for (int t = 0; t < kTiles; ++t) w[t] = decoder.Step(group[t], s);
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* at = x[r / 3] + r % 3 * stride + 4 * (j * kGroupSteps + s);
          const typename Decoder::Input input = Decoder::Broadcast(at);
          for (int t = 0; t < kTiles; ++t) block[r][t] = Decoder::Product(w[t], input, block[r][t]);
        }
      }
    }
    for (int i = 0; i < (kRows + 2) / 3; ++i) x[i] += 4 * Decoder::kSteps;
    for (int t = 0; t < kTiles; ++t) {
      const uint8_t* scales = packed + t * tile_bytes + PackedGroupBytes(kType);
      const Floats d = ScaleCount(kType) >= 1 ? LoadHalfs(scales) : Zero();
      const Floats m = ScaleCount(kType) == 2 ? LoadHalfs(scales + 32) : Zero();
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

template <WeightType kType, int kRows, int kTiles, class Decoder>
void LinearKernelOf(int64_t row_count, const Decoder& decoder, const uint8_t* tiles,
                    int64_t tile_bytes, const RowsView& rows, float* y, int64_t y_stride,
                    int64_t outputs) {
  if (row_count == kRows) {
    LinearKernel<kType, kRows, kTiles>(decoder, tiles, tile_bytes, rows, y, y_stride, outputs);
  } else if constexpr (kRows > 1) {
    LinearKernelOf<kType, kRows - 1, kTiles>(row_count, decoder, tiles, tile_bytes, rows, y,
                                             y_stride, outputs);
  }
}

// kTiles tiles from `tile` on times all rows, in groups of nearly equal size: 13 rows are 7 + 6,
// not 12 + 1.
template <WeightType kType, int kRows, int kTiles, class Decoder>
void LinearTiles(const PackedMatrix& matrix, const Activations& x, int64_t tile, float* y,
                 int64_t y_stride, const Decoder& decoder) {
  const int64_t blocks = (matrix.inputs + kBlockInputs - 1) / kBlockInputs;
  const int64_t tile_bytes = BytesOfTile(kType, blocks);
  const int64_t x_stride = blocks * kBlockInputs * 4;
  const int64_t left = matrix.outputs - (tile + kTiles - 1) * kTileOutputs;
  const int64_t outputs = left < kTileOutputs ? left : kTileOutputs;
  const int64_t groups = (x.rows + kRows - 1) / kRows;
  const uint8_t* tiles = matrix.data + tile * tile_bytes;
  y += tile * kTileOutputs;
  for (int64_t g = 0, r = 0; g < groups; ++g) {
    const int64_t count = (x.rows - r + groups - g - 1) / (groups - g);
    const RowsView rows{x.values + r * x_stride, x_stride, x.block_sums + r * blocks, blocks};
    LinearKernelOf<kType, kRows, kTiles>(count, decoder, tiles, tile_bytes, rows, y + r * y_stride,
                                         y_stride, outputs);
    r += count;
  }
}

template <WeightType kType, class Decoder>
void LinearBy(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t y_stride) {
  const Decoder decoder;
  int64_t tile = tile_begin;
  if constexpr (kTwoTileRowsMax > 0) {
    for (; x.rows > kOneTileRows && tile + 2 <= tile_end; tile += 2) {
      LinearTiles<kType, kTwoTileRowsMax, 2>(matrix, x, tile, y, y_stride, decoder);
    }
  }
  for (; tile < tile_end; ++tile) {
    LinearTiles<kType, kOneTileRowsMax, 1>(matrix, x, tile, y, y_stride, decoder);
  }
}

using LinearFn = void (*)(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                          int64_t tile_end, float* y, int64_t y_stride);

template <size_t... kIndex>
constexpr std::array<LinearFn, kWeightTypes> LinearF32Table(std::index_sequence<kIndex...>) {
  return {
      LinearBy<static_cast<WeightType>(kIndex), FloatDecoder<static_cast<WeightType>(kIndex)>>...};
}

// Float32 arithmetic, all weight types.
void LinearF32(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t y_stride) {
  static constexpr auto kTable = LinearF32Table(std::make_index_sequence<kWeightTypes>());
  kTable[static_cast<size_t>(matrix.type)](matrix, x, tile_begin, tile_end, y, y_stride);
}

}  // namespace
}  // namespace weft::kernels::cpu
