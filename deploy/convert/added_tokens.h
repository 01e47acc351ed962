// Tokens that are found in a text before anything else, as the tokenizers crate keeps them: by id,
// each with what was said of it last, but that what is not normalized once never is. Used by `weft
// convert`, one thread.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/convert/bpe_vocab.h"
#include "deploy/convert/tokenizer_config.h"

namespace weft::convert {

class AddedTokens {
 public:
  // `vocab` must live as long.
  explicit AddedTokens(const BpeVocab& vocab) : vocab_(&vocab) {}

  // The token's id: the vocabulary's, or the next one behind it. INVALID_ARGUMENT when there are
  // more than a vocabulary may have.
  absl::StatusOr<uint32_t> Add(const AddedToken& token);
  // Adds what the files give an id. INVALID_ARGUMENT when it is not the one that it has here.
  absl::Status AddWithId(const AddedToken& token, uint32_t declared);

  // Of any token, also of the vocabulary.
  std::optional<uint32_t> IdOf(const std::string& content) const;
  // Some are not in the vocabulary.
  bool HasNew() const { return !new_ids_.empty(); }
  const std::map<uint32_t, AddedToken>& by_id() const { return by_id_; }

 private:
  const BpeVocab* vocab_;
  std::map<uint32_t, AddedToken> by_id_;
  absl::flat_hash_map<std::string, uint32_t> new_ids_;
};

// Those of the model itself (`own`), then those that the files give an id, then those that only
// have a name.
absl::StatusOr<AddedTokens> GatherAddedTokens(const BpeVocab& vocab,
                                              const std::vector<AddedToken>& own,
                                              const TokenizerConfig& config);

}  // namespace weft::convert
