// Panels: a piece of a packed tile, unpacked for many rows. Decoding weights again for each group
// of rows costs as much as the products themselves where a format has more than one plane of codes,
// or where registers hold few rows. Beyond kDirectRows rows, a tile is therefore cut into pieces of
// kPanelGroups groups of 32 inputs; a piece is unpacked once, to memory that stays in L1, and all
// rows pass it. The sums of a row wait in y from piece to piece, which changes no bit of them: one
// row and many rows share one order of additions (invariant num.row).
//
// A panel's group is 16 lines of 64 bytes, pairs of bf16 as in a packed kBf16 tile, which hold the
// codes' values exactly; behind them d and, with a minimum, m of its units, float32 [unit][n].

#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace weft::kernels::cpu {
namespace {

// Of 16 groups panels take 16 to 20 KiB, activations of a row 1 or 2 KiB.
constexpr int64_t kPanelGroups = 16;

template <int kUnitsOfGroup, bool kHasMinimum>
struct PanelSource {
  static constexpr bool kScaled = true;
  static constexpr bool kMinimum = kHasMinimum;
  static constexpr int kUnits = kUnitsOfGroup;
  static constexpr int kBlockGroups = 1;
  static constexpr int kScalesOfUnit = kHasMinimum ? 2 : 1;
  static constexpr int64_t kGroupBytes = PackedGroupBytes(WeightType::kBf16);
  static constexpr int64_t kBlockBytes = kGroupBytes + 64 * kUnits * kScalesOfUnit;
  static UnitScales Scales(const uint8_t* scales, int unit) {
    const float* d = reinterpret_cast<const float*>(scales) + kLanes * kScalesOfUnit * unit;
    return {Load(d), kHasMinimum ? Load(d + kLanes) : Zero()};
  }
};

template <WeightType kType>
using PanelOf = PanelSource<PackedSource<kType>::kUnits, PackedSource<kType>::kMinimum>;

// Unpacks groups [begin, end) of a packed tile.
template <WeightType kType, class Decoder>
void UnpackPanel(const Decoder& decoder, const uint8_t* tile, int64_t begin, int64_t end,
                 uint8_t* panel) {
  using Source = PackedSource<kType>;
  using Panel = PanelOf<kType>;
  constexpr int kGroupSteps = Decoder::kSteps / Decoder::kGroups;
  for (int64_t g = begin; g < end; ++g) {
    const uint8_t* block = tile + g / Source::kBlockGroups * Source::kBlockBytes;
    const int in_block = static_cast<int>(g % Source::kBlockGroups);
#pragma GCC unroll 8
    for (int j = 0; j < Decoder::kGroups; ++j) {
      const auto group = decoder.LoadGroup(block + in_block * Source::kGroupBytes, j);
      typename Decoder::Weight steps[kGroupSteps];
#pragma GCC unroll 8
      for (int s = 0; s < kGroupSteps; ++s) steps[s] = decoder.Step(group, s);
#pragma GCC unroll 8
      for (int s = 0; s < kGroupSteps; s += Decoder::kStepsOfLine, panel += 64) {
        Decoder::StoreLine(panel, steps + s);
      }
    }
    const uint8_t* scales = block + Source::kBlockGroups * Source::kGroupBytes;
    for (int u = 0; u < Source::kUnits; ++u, panel += 64 * Panel::kScalesOfUnit) {
      const UnitScales unit = Source::Scales(scales, in_block * Source::kUnits + u);
      Store(reinterpret_cast<float*>(panel), unit.d);
      if (Source::kMinimum) Store(reinterpret_cast<float*>(panel) + kLanes, unit.m);
    }
  }
}

// Up to kDirectRows rows straight from packed memory, more of them by panels. PanelDecoder reads
// pairs of bf16.
template <WeightType kType, class Decoder, class PanelDecoder>
void LinearByPanels(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                    int64_t tile_end, float* y, int64_t y_stride) {
  using Panel = PanelOf<kType>;
  constexpr int kRows = Decoder::kPanelRows;
  // More rows than go without panels, cut into groups of nearly equal size.
  constexpr int kHalf = (kRows + 1) / 2;
  constexpr int kRowsMin = Decoder::kDirectRows < kHalf ? Decoder::kDirectRows + 1 : kHalf;
  const Decoder decoder;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    Product product = ProductOf<kType>(matrix, x, tile, 1, y, y_stride);
    if (x.rows <= Decoder::kDirectRows) {
      LinearRows<PackedSource<kType>, Decoder::kDirectRows, 1>(decoder, x.rows, product);
      continue;
    }
    const uint8_t* const packed = product.tiles;
    alignas(64) uint8_t panel[kPanelGroups * Panel::kBlockBytes];
    product.tiles = panel;
    for (int64_t g = 0; g < product.sums_stride; g += product.blocks) {
      const int64_t left = product.sums_stride - g;
      product.blocks = left < kPanelGroups ? left : kPanelGroups;
      UnpackPanel<kType>(decoder, packed, g, g + product.blocks, panel);
      product.continues = g > 0;
      LinearRows<Panel, kRows, 1, kRowsMin>(PanelDecoder(), x.rows, product);
      product.x += product.blocks * 4 * PanelDecoder::kSteps;
      product.sums += product.blocks;
    }
  }
}

// The kernel of a type that decodes by Decoder: those with more than four bits of codes, or with
// scales of scales, cost too much to decode again and again.
template <WeightType kType, class Decoder, class PanelDecoder>
constexpr LinearFn LinearFor() {
  if constexpr (PackedFormatOf(kType).panels) {
    return LinearByPanels<kType, Decoder, PanelDecoder>;
  } else {
    return LinearBy<kType, Decoder>;
  }
}

template <size_t... kIndex>
constexpr std::array<LinearFn, kWeightTypes> LinearF32Table(std::index_sequence<kIndex...>) {
  return {LinearFor<static_cast<WeightType>(kIndex), FloatDecoder<static_cast<WeightType>(kIndex)>,
                    FloatDecoder<WeightType::kBf16>>()...};
}

// Float32 arithmetic, all weight types.
void LinearF32(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
               int64_t tile_end, float* y, int64_t y_stride) {
  static constexpr auto kTable = LinearF32Table(std::make_index_sequence<kWeightTypes>());
  kTable[static_cast<size_t>(matrix.type)](matrix, x, tile_begin, tile_end, y, y_stride);
}

}  // namespace
}  // namespace weft::kernels::cpu
