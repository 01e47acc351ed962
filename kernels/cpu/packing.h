// Weight matrices as the kernels read them: tiles of 16 outputs, repacked from the rows of a model
// file at load. Packing moves bits and never rounds: a packed matrix has the bytes of its source
// (outputs rounded up to 16, inputs of unquantised types to 32, a tile to 64 bytes). One layout
// serves all instruction sets. Called by loader threads; pure functions on raw pointers, no
// allocation.
//
// Source rows are plain little-endian numbers or blocks of GGUF (kernels/weight_blocks.h and
// weight_super_blocks.h say what each is made of): codes of 32 inputs in groups, and scales.
//
// A packed tile of n = 0..15 outputs, by type; k counts inputs, p = 0, 1 inside a pair of them:
//   kF32, kF16   [k][n]
//   kBf16        [k / 2][n][p]
//   quantised    per block: the groups in order, then the block's scales; a group is a low plane of
//                codes and, where packed_format.h says so, a high plane of their upper bits
// A plane of b = 4, 2 or 1 bits: b lines of 64 bytes of 16-bit words (n, p); the fields of a word
// of line i, lowest first, are the codes of inputs k = 32 / b * i + p, + 2, + 4, ... A plane of 8
// bits (kQ8_0): eight lines j of four inputs each: the code of input k = 4j + 2h + p of output n is
// at byte 16 * (n / 4) + 8h + 2 * (n % 4) + p.
//
// Scales (ScaleLayout), u counting units of 16 or 32 inputs; f16 d and m mean [n], d first:
//   kHalf, kHalfPair   f16 d; f16 d, f16 m
//   kFourPair          [u][n] bytes: scale, minimum in the high nibble; f16 d, m
//   kSixPair           [u][n] bytes: low nibbles of scale and minimum; [n] 32-bit words: nibble u
//   is
//                      the upper two bits of the scale, then of the minimum; f16 d, m
//   kSix8, kSix16      [u / 2][n] bytes: low nibbles of units u, u + 1; [n] words of 16 or 32 bits:
//                      upper two bits of each unit; f16 d
//   kEight             [u][n] int8; f16 d
//   kExponent          [n] bytes

#pragma once

#include <cstdint>

#include "kernels/weight_format.h"

namespace weft::kernels::cpu {

inline constexpr int64_t kTileOutputs = 16;
inline constexpr int64_t kBlockInputs = 32;
// Packed data must start at a multiple of this; every tile then does too.
inline constexpr int64_t kPackedAlignment = 64;

// Bytes of one source row. `inputs` must be whole blocks.
int64_t SourceRowBytes(WeightType type, int64_t inputs);
// ceil(outputs / 16).
int64_t TileCount(int64_t outputs);
// `inputs` rounded up to a multiple of 32.
int64_t PaddedInputs(int64_t inputs);
int64_t PackedTileBytes(WeightType type, int64_t inputs);
// TileCount * PackedTileBytes.
int64_t PackedBytes(WeightType type, int64_t outputs, int64_t inputs);

// Packs 16 source rows into one tile of PackedTileBytes bytes. A null row becomes zeros.
void PackTile(WeightType type, const uint8_t* const rows[kTileOutputs], int64_t inputs,
              uint8_t* packed_tile);

// A packed matrix: y[outputs] = W[outputs][inputs] x[inputs]. Does not own `data`.
struct PackedMatrix {
  WeightType type = WeightType::kF32;
  int64_t outputs = 0;
  int64_t inputs = 0;
  const uint8_t* data = nullptr;
};

// Row `row` of the matrix as float32, `inputs` of them: embedding look-ups. Exactly what PyPI
// `gguf` dequantises to: q * d (+ m), each operation rounded to float32.
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace weft::kernels::cpu
