#include "router/scheduler/prefix_hasher.h"

namespace weft::router {
namespace {

// Output tokens that a prompt's memory has room for.
constexpr size_t kOutputRoom = 256;

}  // namespace

PrefixHasher::PrefixHasher(const uint64_t key[2], uint32_t block_tokens, bool label_ids)
    : key_{key[0], key[1]},
      block_tokens_(block_tokens),
      label_ids_(label_ids),
      identity_(Identity()) {}

Prompt PrefixHasher::Hash(std::vector<TokenId> ids, uint64_t cache_salt) const {
  Prompt prompt(std::move(ids), cache_salt);
  HashInto(&prompt);
  return prompt;
}

void PrefixHasher::HashInto(Prompt* prompt) const {
  const size_t blocks = prompt->ids_.size() / block_tokens_;
  prompt->ids_.reserve(prompt->ids_.size() + kOutputRoom);
  prompt->hashes_.clear();
  prompt->hashes_.reserve(blocks + kOutputRoom / block_tokens_ + 1);
  const absl::Span<const TokenId> ids = prompt->ids_;
  for (size_t i = 0; i < blocks; ++i) {
    prompt->hashes_.push_back(
        Next(prompt->cache_salt_, prompt->hashes_, ids.subspan(i * block_tokens_, block_tokens_)));
  }
  prompt->hashed_by_ = identity_;
}

bool PrefixHasher::Take(Prompt prompt, std::vector<TokenId>* ids,
                        std::vector<BlockHash>* hashes) const {
  const bool was_hashed = prompt.hashed_by_ == identity_;
  if (!was_hashed) HashInto(&prompt);
  *ids = std::move(prompt.ids_);
  *hashes = std::move(prompt.hashes_);
  return was_hashed;
}

BlockHash PrefixHasher::Next(uint64_t cache_salt, absl::Span<const BlockHash> before,
                             absl::Span<const TokenId> ids) const {
  if (label_ids_) return {ids.back(), 0};
  return HashBlock(key_, before.empty() ? RootHash(cache_salt) : before.back(), ids);
}

BlockHash PrefixHasher::Identity() const {
  BlockHash identity = HashBlock(key_, {block_tokens_, label_ids_}, {});
  identity.low |= 1;
  return identity;
}

}  // namespace weft::router
