// Weight matrices as the kernels read them: tiles of 16 outputs, repacked from the rows of a model
// file at load. Packing moves bits and never rounds: a packed matrix has the bytes of its source
// (outputs rounded up to 16, inputs of unquantised types to 32, a tile to 64 bytes). One layout
// serves all instruction sets. Called by loader threads; pure functions on raw pointers, no
// allocation.
//
// Source rows are those of GGUF (kQ*: blocks of 32 inputs) or plain little-endian numbers:
//   kQ4_0  18 bytes: f16 d, 16 bytes of nibbles;          w = (nibble - 8) * d
//   kQ4_1  20 bytes: f16 d, f16 m, 16 bytes of nibbles;   w = nibble * d + m
//   kQ8_0  34 bytes: f16 d, 32 int8 q;                    w = q * d
// where the low nibble of byte j is weight j and the high one weight j + 16.
//
// A packed tile of n = 0..15 outputs, by type; k counts inputs, p = 0, 1 inside a pair of them:
//   kF32, kF16   [k][n]
//   kBf16        [k / 2][n][p]
//   kQ4_0, kQ4_1 per block of 32 inputs: four 64-byte groups j of words (n, p); the four nibbles of
//                a word, lowest first, are k = 8j + p, 8j + 2 + p, 8j + 4 + p, 8j + 6 + p; then 16
//                f16 d and, kQ4_1, 16 f16 m
//   kQ8_0        per block: eight 64-byte groups j of four inputs each: int8 q of input
//                k = 4j + 2h + p of output n is at byte 16 * (n / 4) + 8h + 2 * (n % 4) + p; then
//                16 f16 d

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
