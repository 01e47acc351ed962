// The way from a prompt's ids to the keys of its full blocks in the prefix cache. A PrefixHasher is
// a small immutable value: copies of it hash prompts on any thread, so that the engine's own never
// does. A Prompt holds ids, cache salt and hashes together and changes none of them, so that hashes
// cannot meet other ids or another tenant's salt. What must be equal on both sides, the key and the
// number of tokens in a block, is compared when the prompt arrives; a prompt that was hashed with
// others, or not at all, is hashed by the scheduler.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "router/scheduler/prefix_hash.h"

namespace weft::router {

class PrefixHasher;

// The ids of a prompt, and maybe their hashes. Moved, never copied by accident.
class Prompt {
 public:
  Prompt() = default;
  // Not hashed yet. `cache_salt` separates tenants and adapters in the prefix cache: prompts with
  // different salts share nothing.
  explicit Prompt(std::vector<TokenId> ids, uint64_t cache_salt = 0)
      : ids_(std::move(ids)), cache_salt_(cache_salt) {}
  Prompt(Prompt&&) = default;
  Prompt& operator=(Prompt&&) = default;
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  absl::Span<const TokenId> ids() const { return ids_; }
  uint64_t cache_salt() const { return cache_salt_; }
  // Of its full blocks; none before it was hashed.
  absl::Span<const BlockHash> hashes() const { return hashes_; }
  // With its hashes, for another sequence that begins with it.
  Prompt Copy() const {
    Prompt copy(ids_, cache_salt_);
    copy.hashes_ = hashes_;
    copy.hashed_by_ = hashed_by_;
    return copy;
  }
  // Leaves the prompt empty.
  std::vector<TokenId> ReleaseIds() { return std::move(ids_); }

 private:
  friend class PrefixHasher;

  std::vector<TokenId> ids_;
  uint64_t cache_salt_ = 0;
  std::vector<BlockHash> hashes_;
  // Identity() of who made `hashes_`; zero: nobody did.
  BlockHash hashed_by_;
};

class PrefixHasher {
 public:
  // `label_ids`: nothing is hashed, the last id of a block is its hash (scheduler_state.h).
  PrefixHasher(const uint64_t key[2], uint32_t block_tokens, bool label_ids = false);

  // Hashes the full blocks of `ids`. Also makes room for the first output tokens, so that the
  // scheduler need not move a long prompt for them. Thread-safe; about 0.1 us for 16 tokens.
  Prompt Hash(std::vector<TokenId> ids, uint64_t cache_salt) const;

  // Takes a prompt apart, hashing it first if this hasher (or an equal one) did not. True when the
  // hashes were there.
  bool Take(Prompt prompt, std::vector<TokenId>* ids, std::vector<BlockHash>* hashes) const;

  // The hash of the block that follows the blocks of `before`. REQUIRES: `ids` is one block.
  BlockHash Next(uint64_t cache_salt, absl::Span<const BlockHash> before,
                 absl::Span<const TokenId> ids) const;

  uint32_t block_tokens() const { return block_tokens_; }

 private:
  void HashInto(Prompt* prompt) const;
  // A hash of nothing under this key and block size: equal for hashers that agree. Never zero.
  BlockHash Identity() const;

  uint64_t key_[2];
  uint32_t block_tokens_;
  bool label_ids_;
  BlockHash identity_;
};

}  // namespace weft::router
