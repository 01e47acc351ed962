// Stores keys and values into their blocks (layout: attention.h).

#pragma once

#include <cstdint>
#include <cstring>

namespace weft::kernels::cpu {
namespace {

// 16 elements at a time; only the bytes of position t are written, because other threads may be
// storing the positions beside it.
inline void AppendBf16(const float* k, const float* v, int64_t head_dim, int64_t t,
                       uint8_t* k_block, uint8_t* v_block) {
  uint32_t* keys = reinterpret_cast<uint32_t*>(k_block);
  uint16_t* values = reinterpret_cast<uint16_t*>(v_block) + t / 2 * head_dim * 2 + t % 2;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    StoreEvenWords(values + d * 2, RoundToBf16(LoadN(v + d, n)), n);
    uint32_t key_bits[kLanes];
    StoreInts(key_bits, RoundToBf16(LoadN(k + d, n)));
    for (int64_t i = 0; i < n; i += 2) {
      keys[(d + i) / 2 * kKvBlockTokens + t] = key_bits[i] | key_bits[i + 1] << 16;
    }
  }
}

inline void AppendF16(const float* k, const float* v, int64_t head_dim, int64_t t, uint8_t* k_block,
                      uint8_t* v_block) {
  const Floats most = Set(65504.0f);
  const Floats least = Set(-65504.0f);
  uint16_t* keys = reinterpret_cast<uint16_t*>(k_block);
  uint16_t* values = reinterpret_cast<uint16_t*>(v_block) + t * head_dim;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint16_t halfs[kLanes];
    // Min and Max give their second argument when one is NaN: NaN stays NaN.
    StoreHalfs(halfs, Max(least, Min(most, LoadN(v + d, n))));
    std::memcpy(values + d, halfs, static_cast<size_t>(2 * n));
    StoreHalfs(halfs, Max(least, Min(most, LoadN(k + d, n))));
    for (int64_t i = 0; i < n; ++i) keys[(d + i) * kKvBlockTokens + t] = halfs[i];
  }
}

inline void AppendF32(const float* k, const float* v, int64_t head_dim, int64_t t, uint8_t* k_block,
                      uint8_t* v_block) {
  float* keys = reinterpret_cast<float*>(k_block);
  float* values = reinterpret_cast<float*>(v_block) + t * head_dim;
  for (int64_t d = 0; d < head_dim; ++d) {
    keys[d * kKvBlockTokens + t] = k[d];
    values[d] = v[d];
  }
}

void KvAppend(const KvBlocks& kv, int64_t start, int64_t rows, const float* k, int64_t k_stride,
              const float* v, int64_t v_stride) {
  const int64_t head_bytes = kKvBlockTokens * kv.head_dim * (kv.type == KvType::kF32 ? 4 : 2);
  const auto append = kv.type == KvType::kF32    ? AppendF32
                      : kv.type == KvType::kBf16 ? AppendBf16
                                                 : AppendF16;
  for (int64_t r = 0; r < rows; ++r, k += k_stride, v += v_stride) {
    const int64_t position = start + r;
    const int64_t t = position % kKvBlockTokens;
    const int64_t block =
        static_cast<int64_t>(kv.block_ids[position / kKvBlockTokens - kv.first_block]) *
        kv.block_stride_bytes;
    for (int64_t h = 0; h < kv.kv_heads; ++h) {
      uint8_t* k_block = kv.k_pool + block + h * head_bytes;
      uint8_t* v_block = kv.v_pool + block + h * head_bytes;
      const int64_t at = h * kv.head_dim;
      append(k + at, v + at, kv.head_dim, t, k_block, v_block);
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
