// Latent attention as plain data: the cache keeps for a token one row of numbers that all heads
// share, instead of keys and values of each. Part of DecoderSpec, made by shard/model/families,
// read-only afterwards. Knows nothing of ranks, devices or weights' bytes.
//
// A row is `rank` normalised numbers, the latent, and behind them a key of rope.dims elements that
// is rotated. A query head is made as wide as a row: its plain_dim elements that are not rotated
// times a matrix of the head (ParamKind::kKeyUp), then its rotated ones. So rows are the keys of
// attention with one KV head, and their latents its values; what it makes of them for a head
// becomes value_dim elements through another matrix of the head (kValueUp).

#pragma once

#include <cstdint>

namespace weft::shard {

struct LatentSpec {
  // 0: attention keeps keys and values, and nothing below counts.
  uint32_t rank = 0;
  // Queries are made of so many numbers, normalised; 0: of what query, key and value usually are.
  uint32_t query_rank = 0;
  uint32_t plain_dim = 0;
  uint32_t value_dim = 0;
  // Of the norms of latents.
  float norm_epsilon = 1e-6f;
};

}  // namespace weft::shard
