// Linear with float32 arithmetic, all weight types (numbers: linear.h). Blocks of 32 inputs are
// unpacked to exact float32 [k][n] (integers for quantised types) and multiplied by rows of float32
// activations. Few rows: a block at a time, used while in L1. Many rows: a whole tile once into
// scratch, then register blocks of rows. Both run the same MicroKernel, so the numbers are equal.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// Floats of one unpacked block.
constexpr int64_t kBlockFloats = kBlockInputs * kTileOutputs;

constexpr int ScaleCount(WeightType type) {
  return type == WeightType::kQ4_1                                ? 2
         : type == WeightType::kQ4_0 || type == WeightType::kQ8_0 ? 1
                                                                  : 0;
}

constexpr int64_t WeightBytesOfBlock(WeightType type) {
  return type == WeightType::kF32                                ? 2048
         : type == WeightType::kF16 || type == WeightType::kBf16 ? 1024
         : type == WeightType::kQ8_0                             ? 512
                                                                 : 256;
}

constexpr int64_t BytesOfBlock(WeightType type) {
  return WeightBytesOfBlock(type) + 32 * ScaleCount(type);
}

// The same size as PackedTileBytes of packing.h.
template <WeightType kType>
constexpr int64_t BytesOfTile(int64_t blocks) {
  return (blocks * BytesOfBlock(kType) + 63) / 64 * 64;
}

template <WeightType kType, int kShift>
inline Floats NibbleFloats(const Ints& words) {
  const Ints nibble = And(ShiftRight<kShift>(words), SetInts(15));
  if constexpr (kType == WeightType::kQ4_0) return ToFloats(SubInts(nibble, SetInts(8)));
  return ToFloats(nibble);
}

// 64 bytes of packed nibbles: 8 inputs of 16 outputs.
template <WeightType kType>
inline void UnpackNibbles(const uint8_t* packed, float* out) {
  const Ints words = LoadInts(packed);
  Store(out + 0 * kLanes, NibbleFloats<kType, 0>(words));
  Store(out + 1 * kLanes, NibbleFloats<kType, 16>(words));
  Store(out + 2 * kLanes, NibbleFloats<kType, 4>(words));
  Store(out + 3 * kLanes, NibbleFloats<kType, 20>(words));
  Store(out + 4 * kLanes, NibbleFloats<kType, 8>(words));
  Store(out + 5 * kLanes, NibbleFloats<kType, 24>(words));
  Store(out + 6 * kLanes, NibbleFloats<kType, 12>(words));
  Store(out + 7 * kLanes, NibbleFloats<kType, 28>(words));
}

// 64 packed bytes: 4 inputs of 16 outputs.
inline void UnpackBytes(const uint8_t* packed, float* out) {
  Ints pair[2];
  LoadByteGroup(packed, &pair[0], &pair[1]);
  for (int h = 0; h < 2; ++h) {
    const Ints first = ShiftRightSigned<24>(ShiftLeft<16>(pair[h]));
    Store(out + (2 * h) * kLanes, ToFloats(first));
    Store(out + (2 * h + 1) * kLanes, ToFloats(ShiftRightSigned<24>(pair[h])));
  }
}

// The block's weights (integers, for quantised types) as float32 [32][16]: `out`, or the packed
// memory itself where it has that form.
template <WeightType kType>
inline const float* UnpackBlock(const uint8_t* packed, float* out) {
  if constexpr (kType == WeightType::kF32) return reinterpret_cast<const float*>(packed);
  if constexpr (kType == WeightType::kF16) {
    for (int64_t k = 0; k < kBlockInputs; ++k) Store(out + k * kLanes, LoadHalfs(packed + 32 * k));
  }
  if constexpr (kType == WeightType::kBf16) {
    for (int64_t i = 0; i < kBlockInputs / 2; ++i) {
      const Ints pairs = LoadInts(packed + 64 * i);
      Store(out + (2 * i) * kLanes, AsFloats(ShiftLeft<16>(pairs)));
      Store(out + (2 * i + 1) * kLanes, AsFloats(And(pairs, SetInts(0xFFFF0000u))));
    }
  }
  if constexpr (kType == WeightType::kQ8_0) {
    for (int j = 0; j < 8; ++j) UnpackBytes(packed + 64 * j, out + 4 * kLanes * j);
  }
  if constexpr (kType == WeightType::kQ4_0 || kType == WeightType::kQ4_1) {
    for (int j = 0; j < 4; ++j) UnpackNibbles<kType>(packed + 64 * j, out + 8 * kLanes * j);
  }
  return out;
}

// One tile's blocks, unpacked when asked for; for few rows.
template <WeightType kType>
struct PackedSource {
  const uint8_t* tile = nullptr;
  alignas(64) float buffer[kBlockFloats];

  const float* Block(int64_t b) {
    Prefetch(tile + b * BytesOfBlock(kType) + 2048);
    return UnpackBlock<kType>(tile + b * BytesOfBlock(kType), buffer);
  }
};

// One tile's blocks, unpacked before.
struct PanelSource {
  const float* panel = nullptr;

  const float* Block(int64_t b) { return panel + b * kBlockFloats; }
};

struct RowsView {
  const float* x;
  int64_t x_stride;
  const float* sums;
  int64_t blocks;
};

// kRows rows of x times kTiles tiles; y[r][t * 16 + n], the last tile with `last_outputs` columns.
template <WeightType kType, int kRows, int kTiles, class Source>
void MicroKernel(Source (&sources)[kTiles], const uint8_t* const (&tiles)[kTiles],
                 const RowsView& rows, float* y, int64_t y_stride, int64_t last_outputs) {
  Floats acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = Zero();
  }
  for (int64_t b = 0; b < rows.blocks; ++b) {
    const float* w[kTiles];
    for (int t = 0; t < kTiles; ++t) w[t] = sources[t].Block(b);
    const float* x = rows.x + b * kBlockInputs;
    Floats block[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) block[r][t] = Zero();
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < kBlockInputs; ++k) {
      Floats wk[kTiles];
      for (int t = 0; t < kTiles; ++t) wk[t] = Load(w[t] + k * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Floats xk = Set(x[r * rows.x_stride + k]);
        for (int t = 0; t < kTiles; ++t) block[r][t] = MulAdd(xk, wk[t], block[r][t]);
      }
    }
    for (int t = 0; t < kTiles; ++t) {
      const uint8_t* scales = tiles[t] + b * BytesOfBlock(kType) + WeightBytesOfBlock(kType);
      for (int r = 0; r < kRows; ++r) {
        if constexpr (ScaleCount(kType) == 0) {
          acc[r][t] = Add(acc[r][t], block[r][t]);
        } else {
          acc[r][t] = MulAdd(LoadHalfs(scales), block[r][t], acc[r][t]);
        }
        if constexpr (ScaleCount(kType) == 2) {
          const Floats sum = Set(rows.sums[r * rows.blocks + b]);
          acc[r][t] = MulAdd(LoadHalfs(scales + 32), sum, acc[r][t]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) {
      const int64_t n = t + 1 == kTiles ? last_outputs : kLanes;
      StoreN(y + r * y_stride + t * kLanes, acc[r][t], n);
    }
  }
}

template <WeightType kType, int kTiles, class Source, int kRows = kRowsMax>
void MicroKernelOf(int64_t row_count, Source (&sources)[kTiles],
                   const uint8_t* const (&tiles)[kTiles], const RowsView& rows, float* y,
                   int64_t y_stride, int64_t last_outputs) {
  if (row_count == kRows) {
    MicroKernel<kType, kRows>(sources, tiles, rows, y, y_stride, last_outputs);
  } else if constexpr (kRows > 1) {
    MicroKernelOf<kType, kTiles, Source, kRows - 1>(row_count, sources, tiles, rows, y, y_stride,
                                                    last_outputs);
  }
}

// kTiles tiles times all rows.
template <WeightType kType, int kTiles>
void LinearTiles(const PackedMatrix& matrix, const Activations& x, int64_t tile, float* y,
                 int64_t y_stride, float* scratch) {
  const int64_t blocks = (matrix.inputs + kBlockInputs - 1) / kBlockInputs;
  const int64_t padded = blocks * kBlockInputs;
  const uint8_t* tiles[kTiles];
  for (int t = 0; t < kTiles; ++t) tiles[t] = matrix.data + (tile + t) * BytesOfTile<kType>(blocks);
  const int64_t left = matrix.outputs - (tile + kTiles - 1) * kTileOutputs;
  const int64_t last_outputs = left < kTileOutputs ? left : kTileOutputs;
  RowsView rows{reinterpret_cast<const float*>(x.values), padded, x.block_sums, blocks};
  y += tile * kTileOutputs;
  if (x.rows <= kRowsMax) {
    PackedSource<kType> sources[kTiles];
    for (int t = 0; t < kTiles; ++t) sources[t].tile = tiles[t];
    MicroKernelOf<kType>(x.rows, sources, tiles, rows, y, y_stride, last_outputs);
    return;
  }
  PanelSource sources[kTiles];
  for (int t = 0; t < kTiles; ++t) {
    float* panel = scratch + t * padded * kLanes;
    sources[t].panel = kType == WeightType::kF32 ? reinterpret_cast<const float*>(tiles[t]) : panel;
    if (kType == WeightType::kF32) continue;
    for (int64_t b = 0; b < blocks; ++b) {
      UnpackBlock<kType>(tiles[t] + b * BytesOfBlock(kType), panel + b * kBlockFloats);
    }
  }
  for (int64_t r = 0; r < x.rows; r += kRowsMax) {
    const int64_t count = x.rows - r < kRowsMax ? x.rows - r : kRowsMax;
    const RowsView part{rows.x + r * padded, padded, rows.sums + r * blocks, blocks};
    MicroKernelOf<kType>(count, sources, tiles, part, y + r * y_stride, y_stride, last_outputs);
  }
}

template <WeightType kType>
void LinearOf(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
              int64_t tile_end, float* y, int64_t y_stride, void* scratch) {
  float* panels = static_cast<float*>(scratch);
  int64_t tile = tile_begin;
  if constexpr (kTilesMax > 1) {
    for (; tile + kTilesMax <= tile_end; tile += kTilesMax) {
      LinearTiles<kType, kTilesMax>(matrix, x, tile, y, y_stride, panels);
    }
  }
  for (; tile < tile_end; ++tile) LinearTiles<kType, 1>(matrix, x, tile, y, y_stride, panels);
}

void LinearF32(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t y_stride, void* scratch) {
  switch (matrix.type) {
    case WeightType::kF32:
      return LinearOf<WeightType::kF32>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
    case WeightType::kF16:
      return LinearOf<WeightType::kF16>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
    case WeightType::kBf16:
      return LinearOf<WeightType::kBf16>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
    case WeightType::kQ8_0:
      return LinearOf<WeightType::kQ8_0>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
    case WeightType::kQ4_0:
      return LinearOf<WeightType::kQ4_0>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
    case WeightType::kQ4_1:
      return LinearOf<WeightType::kQ4_1>(matrix, x, tile_begin, tile_end, y, y_stride, scratch);
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
