// Stores keys and values into their blocks (layout: attention.h).

#pragma once

#include <cstdint>
#include <cstring>

namespace weft::kernels::cpu {
namespace {

// The largest number of kF16.
constexpr float kHalfMax = 65504.0f;

// One head of one position. Only its own bytes are written, because other threads may be storing
// the positions beside it.
inline void AppendKeyBf16(const float* k, int64_t head_dim, int64_t t, uint8_t* block) {
  uint32_t* keys = reinterpret_cast<uint32_t*>(block);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint32_t bits[kLanes];
    StoreInts(bits, RoundToBf16(LoadN(k + d, n)));
    for (int64_t i = 0; i < n; i += 2) {
      keys[(d + i) / 2 * kKvBlockTokens + t] = bits[i] | bits[i + 1] << 16;
    }
  }
}

inline void AppendValueBf16(const float* v, int64_t head_dim, int64_t t, uint8_t* block) {
  uint16_t* values = reinterpret_cast<uint16_t*>(block) + t / 2 * head_dim * 2 + t % 2;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    StoreEvenWords(values + d * 2, RoundToBf16(LoadN(v + d, n)), n);
  }
}

// Min and Max give their second argument when one is NaN: NaN stays NaN.
inline Floats WithinHalfs(const Floats& x) { return Max(Set(-kHalfMax), Min(Set(kHalfMax), x)); }

inline void AppendKeyF16(const float* k, int64_t head_dim, int64_t t, uint8_t* block) {
  uint16_t* keys = reinterpret_cast<uint16_t*>(block);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint16_t halfs[kLanes];
    StoreHalfs(halfs, WithinHalfs(LoadN(k + d, n)));
    for (int64_t i = 0; i < n; ++i) keys[(d + i) * kKvBlockTokens + t] = halfs[i];
  }
}

inline void AppendValueF16(const float* v, int64_t head_dim, int64_t t, uint8_t* block) {
  uint16_t* values = reinterpret_cast<uint16_t*>(block) + t * head_dim;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
    uint16_t halfs[kLanes];
    StoreHalfs(halfs, WithinHalfs(LoadN(v + d, n)));
    std::memcpy(values + d, halfs, static_cast<size_t>(2 * n));
  }
}

inline void AppendKeyF32(const float* k, int64_t head_dim, int64_t t, uint8_t* block) {
  float* keys = reinterpret_cast<float*>(block);
  for (int64_t d = 0; d < head_dim; ++d) keys[d * kKvBlockTokens + t] = k[d];
}

inline void AppendValueF32(const float* v, int64_t head_dim, int64_t t, uint8_t* block) {
  std::memcpy(reinterpret_cast<float*>(block) + t * head_dim, v,
              static_cast<size_t>(head_dim) * sizeof(float));
}

// How many of `count` numbers kF16 cannot hold. The largest of each lane first: as a rule that is
// all, and costs next to nothing beside the stores. NaN is none of them.
inline int64_t CountBeyondHalf(const float* x, int64_t count) {
  const Ints magnitude = SetInts(0x7FFFFFFFu);
  Floats peak = Zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    peak = Max(AsFloats(And(AsInts(LoadN(x + i, count - i)), magnitude)), peak);
  }
  if (MaxLanes(peak) <= kHalfMax) return 0;
  int64_t beyond = 0;
  for (int64_t i = 0; i < count; ++i) beyond += x[i] > kHalfMax || x[i] < -kHalfMax ? 1 : 0;
  return beyond;
}

int64_t KvAppend(const KvBlocks& kv, int64_t start, int64_t rows, const float* k, int64_t k_stride,
                 const float* v, int64_t v_stride) {
  int64_t saturated = 0;
  const int64_t head_bytes = kKvBlockTokens * kv.head_dim * (kv.type == KvType::kF32 ? 4 : 2);
  const auto append_key = kv.type == KvType::kF32    ? AppendKeyF32
                          : kv.type == KvType::kBf16 ? AppendKeyBf16
                                                     : AppendKeyF16;
  const auto append_value = kv.type == KvType::kF32    ? AppendValueF32
                            : kv.type == KvType::kBf16 ? AppendValueBf16
                                                       : AppendValueF16;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = start + r;
    const int64_t t = position % kKvBlockTokens;
    const int64_t block =
        static_cast<int64_t>(kv.block_ids[position / kKvBlockTokens - kv.first_block]) *
        kv.block_stride_bytes;
    if (kv.type == KvType::kF16) {
      const int64_t width = kv.kv_heads * kv.head_dim;
      saturated += CountBeyondHalf(k + r * k_stride, width);
      if (kv.v_pool != nullptr) saturated += CountBeyondHalf(v + r * v_stride, width);
    }
    for (int64_t h = 0; h < kv.kv_heads; ++h) {
      const int64_t head = block + h * head_bytes;
      append_key(k + r * k_stride + h * kv.head_dim, kv.head_dim, t, kv.k_pool + head);
      if (kv.v_pool == nullptr) continue;
      append_value(v + r * v_stride + h * kv.head_dim, kv.head_dim, t, kv.v_pool + head);
    }
  }
  return saturated;
}

}  // namespace
}  // namespace weft::kernels::cpu
