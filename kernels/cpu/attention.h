// Paged attention: the layout of a block of keys and values, and the arguments of the two kernels
// that touch it (in kernels.h). This header is the one statement of the inner layout; the pool
// around it belongs to shard/kv/kv_cache.h.
//
// One block holds 16 consecutive positions t = 0..15 of one KV head, d counts head_dim elements:
//   K  kBf16 [d / 2][t][d % 2]    kF16, kF32 [d][t]      16 scores at once, no horizontal sums
//   V  kBf16 [t / 2][d][t % 2]    kF16, kF32 [t][d]
// kF16 holds numbers of up to +-65504; larger ones are stored as that, and counted. Of latent
// attention the values are the first elements of the keys, and there is no V.
//
// Numbers (invariant num.row): keys and values are always read back from the block in its stored
// type; each row walks the positions in tiles of kAttentionTile from position 0 with an online
// softmax; scores, probabilities and sums are float32. A tile that a row's window hides adds
// nothing. So a row's result does not depend on the rows beside it or on how its prompt was cut.
// Memory behind a sequence's last written position is never used, not even multiplied by zero.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {

enum class KvType : uint8_t { kF32, kBf16, kF16 };

inline constexpr int64_t kKvBlockTokens = 16;
inline constexpr int64_t kAttentionTile = 64;

// Bytes of the K (or V) part of one block of one KV head: a multiple of 64 for even head_dim.
int64_t KvHeadBlockBytes(KvType type, int64_t head_dim);

// Where the keys and values of one sequence in one layer are. Block b >= first_block of KV head h
// starts at pool + block_ids[b - first_block] * block_stride_bytes + h * KvHeadBlockBytes.
struct KvBlocks {
  KvType type = KvType::kBf16;
  int64_t head_dim = 0;  // even
  int64_t kv_heads = 0;
  uint8_t* k_pool = nullptr;
  // Null: of latent attention.
  uint8_t* v_pool = nullptr;
  int64_t block_stride_bytes = 0;
  const uint32_t* block_ids = nullptr;
  int64_t first_block = 0;
};

// `rows` consecutive positions of one sequence, starting at `start`, for some query heads that
// share one KV head. Strides in floats. Row r of `query` (rotated) starts at query + r *
// query_stride, head i of it at + heads[i] * head_dim; likewise out, by the elements of a value.
struct AttentionWork {
  KvBlocks kv;
  // Of latent attention alone, even: elements of a value. Otherwise they are head_dim.
  int64_t latent_dim = 0;
  int64_t kv_head = 0;
  const uint32_t* heads = nullptr;
  int64_t head_count = 0;
  const float* query = nullptr;
  int64_t query_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t start = 0;
  // Scores are multiplied by it.
  float scale = 0.0f;
  // Scaled scores become soft_cap * tanh(score / soft_cap); 0 = they stay.
  float soft_cap = 0.0f;
  // A row sees this many positions, itself included; 0 = all up to itself. Blocks wholly in front
  // of what the first row sees are never read.
  int64_t window = 0;
  // By query head (the numbers of `heads`), or null. A score gets slope * (the key's position - the
  // row's). Without sinks that gives the probabilities of slope * the key's position, but without
  // its large numbers.
  const float* slopes = nullptr;
  // By query head, or null: a logit of each row's softmax that weighs nothing but itself.
  const float* sinks = nullptr;
};

// Bytes of scratch memory (64-byte aligned) of one call of Kernels::attention; one per thread.
int64_t AttentionScratchBytes(int64_t head_dim);
// The same of latent attention.
int64_t LatentScratchBytes(int64_t latent_dim);

}  // namespace weft::kernels::cpu
