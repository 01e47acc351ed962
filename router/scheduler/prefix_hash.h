// The key of a KV block in the prefix cache: a keyed 128-bit hash over the block's token ids and
// the key of the block before it, so that equal keys mean equal histories. Keyed, so that nobody
// outside can make two prompts collide.

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router {

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

// The "block before the first": separates tenants and adapters.
inline BlockHash RootHash(uint64_t cache_salt) { return {cache_salt, 0}; }

// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF", and
// its reference code) over parent (16 bytes) and ids (4 bytes each), little endian.
BlockHash HashBlock(const uint64_t key[2], const BlockHash& parent, absl::Span<const TokenId> ids);

}  // namespace weft::router
