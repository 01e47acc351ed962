// Linear: one kernel for one row and for many (numbers: linear.h). Weights go from packed memory
// through a decoder's registers into the products of kRows rows x kTiles tiles, whose unit sums
// (and, where there are enough registers, sums over units) stay in registers. Packed tiles stay in
// L1 while all rows pass. One row runs at memory speed.
//
// A decoder (decode_*.inc.h) splits a group of 32 inputs into kSteps steps of 4 bytes of
// activations: LoadGroup reads the j-th of kGroups parts of packed weights, Step gives its s-th
// register, Product adds weight times activation to a sum; kKernelsApart says whether each kernel
// is a function of its own. A source says where a group's weights and scales lie: PackedSource for
// packed matrices, PanelSource for panels (panel.inc.h).

#pragma once

#include <cstdint>

#include "kernels/cpu/packed_format.h"

namespace weft::kernels::cpu {
namespace {

// Bytes ahead of the reader; about what arrives during one memory latency.
constexpr int64_t kPrefetchBytes = 8192;

// Up to so many rows one tile at a time is faster (it reads packed weights in one stream), above it
// two (they load each activation once).
constexpr int64_t kOneTileRows = 64;

// A packed matrix of a type; a block is kBlockGroups groups of 32 inputs, whose scales lie behind
// all of its weights, and a group is kUnits units.
template <WeightType kType>
struct PackedSource {
  static constexpr ScaleLayout kLayout = PackedFormatOf(kType).scales;
  static constexpr bool kScaled = kLayout != ScaleLayout::kNone;
  static constexpr bool kMinimum = FormatOf(kType).has_minimum;
  static constexpr int kUnits = FormatOf(kType).unit == 16 ? 2 : 1;
  static constexpr int kBlockGroups = static_cast<int>(PackedBlockInputs(kType) / kBlockInputs);
  static constexpr int64_t kGroupBytes = PackedGroupBytes(kType);
  static constexpr int64_t kBlockBytes = PackedBlockBytes(kType);
  static UnitScales Scales(const uint8_t* scales, int unit) {
    return LoadScales<kLayout>(scales, unit);
  }
};

// Some tiles times some rows: what stays the same in one call of the kernel.
struct Product {
  // The first block of the first tile, and the bytes from one tile to the next.
  const uint8_t* tiles;
  int64_t tile_bytes;
  int64_t blocks;
  // Activations of the first row from the first block on.
  const uint8_t* x;
  int64_t x_stride_bytes;
  const float* sums;
  int64_t sums_stride;
  // Columns of the last tile that exist.
  int64_t outputs;
  float* y;
  int64_t y_stride;
  // The sums so far are in y: `blocks` are not the matrix's first.
  bool continues;
};

// acc = d * unit + acc, then m * sum + acc.
template <class Source>
inline Floats AddUnit(const Floats& acc, const Floats& unit, const UnitScales& scales,
                      const Floats& sum) {
  if constexpr (!Source::kScaled) return Add(acc, unit);
  const Floats scaled = MulAdd(scales.d, unit, acc);
  if constexpr (Source::kMinimum) return MulAdd(scales.m, sum, scaled);
  return scaled;
}

// Every third row has a pointer, the two behind it are one and two strides away: few registers.
template <int kRows>
struct RowPointers {
  const uint8_t* x[(kRows + 2) / 3];
  int64_t stride;

  const uint8_t* At(int r) const { return x[r / 3] + r % 3 * stride; }
  void Advance(int64_t bytes) {
    for (int i = 0; i < (kRows + 2) / 3; ++i) x[i] += bytes;
  }
};

// Adds unit kUnit of group `g` of a block at `block` to `acc`. Inlined whatever it costs: loops
// over steps must have constant bounds, and sums must stay in registers.
template <class Source, int kUnit, int kRows, int kTiles, class Decoder>
[[gnu::always_inline]] inline void AddUnitProducts(const Decoder& decoder, const Product& product,
                                                   const uint8_t* block, int g, const float* sums,
                                                   const RowPointers<kRows>& rows,
                                                   Floats (&acc)[kRows][kTiles]) {
  constexpr int kGroups = Decoder::kGroups / Source::kUnits;
  constexpr int kSteps = Decoder::kSteps / Decoder::kGroups;
  // Nobody has prepared the sums of 16 activations.
  constexpr bool kSumInputs = Source::kMinimum && Source::kUnits > 1;
  const uint8_t* const packed = block + g * Source::kGroupBytes;
  Floats unit[kRows][kTiles];
  Floats sum[kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) unit[r][t] = Zero();
    if constexpr (kSumInputs) sum[r] = Zero();
  }
#pragma GCC unroll 32
  for (int j = kUnit * kGroups; j < (kUnit + 1) * kGroups; ++j) {
    typename Decoder::Group group[kTiles];
    for (int t = 0; t < kTiles; ++t) {
      group[t] = decoder.LoadGroup(packed + t * product.tile_bytes, j);
    }
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; ++s) {
      typename Decoder::Weight w[kTiles];
      for (int t = 0; t < kTiles; ++t) w[t] = decoder.Step(group[t], s);
      for (int r = 0; r < kRows; ++r) {
        const typename Decoder::Input input = Decoder::Broadcast(rows.At(r) + 4 * (j * kSteps + s));
        for (int t = 0; t < kTiles; ++t) unit[r][t] = Decoder::Product(w[t], input, unit[r][t]);
        if constexpr (kSumInputs) sum[r] = Decoder::Product(Decoder::Ones(), input, sum[r]);
      }
    }
  }
  const uint8_t* const scales = block + Source::kBlockGroups * Source::kGroupBytes;
  for (int t = 0; t < kTiles; ++t) {
    const UnitScales unit_scales =
        Source::Scales(scales + t * product.tile_bytes, g * Source::kUnits + kUnit);
    for (int r = 0; r < kRows; ++r) {
      if constexpr (Source::kMinimum && !kSumInputs) sum[r] = Set(sums[r * product.sums_stride]);
      acc[r][t] = AddUnit<Source>(acc[r][t], unit[r][t], unit_scales, sum[r]);
    }
  }
}

// kRows rows times kTiles tiles.
template <class Source, int kRows, int kTiles, class Decoder>
inline void LinearKernel(const Decoder decoder, const Product product) {
  Floats acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = Zero();
  }
  // Columns of tile t that exist.
  const auto outputs = [&product](int t) { return t + 1 == kTiles ? product.outputs : kLanes; };
  if (product.continues) {
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) {
        acc[r][t] = LoadN(product.y + r * product.y_stride + t * kLanes, outputs(t));
      }
    }
  }
  RowPointers<kRows> rows;
  rows.stride = product.x_stride_bytes;
  for (int i = 0; i < (kRows + 2) / 3; ++i) rows.x[i] = product.x + 3 * i * rows.stride;
  const float* sums = product.sums;
  for (int64_t b = 0; b < product.blocks; ++b) {
    const uint8_t* const block = product.tiles + b * Source::kBlockBytes;
    for (int g = 0; g < Source::kBlockGroups; ++g, ++sums) {
      constexpr int64_t kBytes = Source::kBlockBytes / Source::kBlockGroups;
      for (int t = 0; t < kTiles; ++t) {
        for (int64_t at = 0; at < kBytes; at += 64) {
          Prefetch(block + g * kBytes + t * product.tile_bytes + kPrefetchBytes + at);
        }
      }
      AddUnitProducts<Source, 0>(decoder, product, block, g, sums, rows, acc);
      if constexpr (Source::kUnits == 2) {
        AddUnitProducts<Source, 1>(decoder, product, block, g, sums, rows, acc);
      }
      rows.Advance(4 * Decoder::kSteps);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) {
      StoreN(product.y + r * product.y_stride + t * kLanes, acc[r][t], outputs(t));
    }
  }
}

// The same as a function of its own. With several float32 kernels in one function gcc leaves sums
// and decoded weights in memory, which costs two thirds of the speed.
template <class Source, int kRows, int kTiles, class Decoder>
[[gnu::noinline]] void LinearKernelApart(const Decoder decoder, const Product product) {
  LinearKernel<Source, kRows, kTiles>(decoder, product);
}

template <class Source, int kRows, int kTiles, int kRowsMin, class Decoder>
void LinearKernelOf(int64_t row_count, const Decoder& decoder, const Product& product) {
  if (row_count == kRows) {
    if constexpr (Decoder::kKernelsApart) {
      LinearKernelApart<Source, kRows, kTiles>(decoder, product);
    } else {
      LinearKernel<Source, kRows, kTiles>(decoder, product);
    }
  } else if constexpr (kRows > kRowsMin) {
    LinearKernelOf<Source, kRows - 1, kTiles, kRowsMin>(row_count, decoder, product);
  }
}

// `product` with all of `rows` rows, in groups of nearly equal size: 13 rows are 7 + 6, not 12 + 1.
// kRowsMin: no group is smaller, which saves the compiler kernels.
template <class Source, int kRows, int kTiles, int kRowsMin = 1, class Decoder>
void LinearRows(const Decoder& decoder, int64_t rows, Product product) {
  const int64_t groups = (rows + kRows - 1) / kRows;
  for (int64_t g = 0, r = 0; g < groups; ++g) {
    const int64_t count = (rows - r + groups - g - 1) / (groups - g);
    LinearKernelOf<Source, kRows, kTiles, kRowsMin>(count, decoder, product);
    product.x += count * product.x_stride_bytes;
    product.sums += count * product.sums_stride;
    product.y += count * product.y_stride;
    r += count;
  }
}

// The product of all of x with `tiles` tiles from `tile` on.
template <WeightType kType>
Product ProductOf(const PackedMatrix& matrix, const Activations& x, int64_t tile, int64_t tiles,
                  float* y, int64_t y_stride) {
  constexpr int64_t kInputs = PackedBlockInputs(kType);
  const int64_t groups = (matrix.inputs + kBlockInputs - 1) / kBlockInputs;
  const int64_t blocks = (matrix.inputs + kInputs - 1) / kInputs;
  // The same as PackedTileBytes of packing.h.
  const int64_t tile_bytes = (blocks * PackedSource<kType>::kBlockBytes + 63) / 64 * 64;
  const int64_t left = matrix.outputs - (tile + tiles - 1) * kTileOutputs;
  return {matrix.data + tile * tile_bytes,
          tile_bytes,
          blocks,
          x.values,
          groups * kBlockInputs * 4,
          x.block_sums,
          groups,
          left < kTileOutputs ? left : kTileOutputs,
          y + tile * kTileOutputs,
          y_stride,
          false};
}

// Straight from packed memory, whatever the number of rows.
template <WeightType kType, class Decoder>
void LinearBy(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t y_stride) {
  using Source = PackedSource<kType>;
  const Decoder decoder;
  int64_t tile = tile_begin;
  if constexpr (kTwoTileRowsMax > 0) {
    for (; x.rows > kOneTileRows && tile + 2 <= tile_end; tile += 2) {
      LinearRows<Source, kTwoTileRowsMax, 2>(decoder, x.rows,
                                             ProductOf<kType>(matrix, x, tile, 2, y, y_stride));
    }
  }
  for (; tile < tile_end; ++tile) {
    LinearRows<Source, kOneTileRowsMax, 1>(decoder, x.rows,
                                           ProductOf<kType>(matrix, x, tile, 1, y, y_stride));
  }
}

using LinearFn = void (*)(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                          int64_t tile_end, float* y, int64_t y_stride);

}  // namespace
}  // namespace weft::kernels::cpu
