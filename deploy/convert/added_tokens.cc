#include "deploy/convert/added_tokens.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::convert {
namespace {

absl::Status CheckNoHoles(const BpeVocab& vocab) {
  uint32_t highest = 0;
  for (const auto& [token, id] : vocab.ids) highest = std::max(highest, id);
  if (highest + 1 == vocab.ids.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its ", vocab.ids.size(), " tokens have ids up to ", highest,
                   ", so that the ids of tokens behind them are not known"));
}

}  // namespace

absl::StatusOr<uint32_t> AddedTokens::Add(const AddedToken& token) {
  std::optional<uint32_t> id = IdOf(token.content);
  if (!id.has_value()) {
    // The crate counts on from the size of the vocabulary, whatever its highest id is.
    const auto count = static_cast<uint32_t>(vocab_->ids.size());
    id = by_id_.empty() ? count : std::max(count, by_id_.rbegin()->first + 1);
    if (*id >= kVocabMax) {
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kVocabMax, " tokens"));
    }
    new_ids_.emplace(token.content, *id);
  }
  const auto [entry, is_new] = by_id_.emplace(*id, token);
  if (is_new) return *id;
  // Once found in a text as it is, always found: transformers' tokenizers keep both forms until
  // they are saved, and the slow ones knew no other.
  const bool normalized = entry->second.normalized && token.normalized;
  entry->second = token;
  entry->second.normalized = normalized;
  return *id;
}

absl::Status AddedTokens::AddWithId(const AddedToken& token, uint32_t declared) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t id, Add(token));
  if (id == declared) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token ", absl::CHexEscape(token.content), " is to have the id ", declared,
                   ", but by the vocabulary and the tokens before it it has ", id));
}

std::optional<uint32_t> AddedTokens::IdOf(const std::string& content) const {
  if (const auto found = vocab_->ids.find(content); found != vocab_->ids.end()) {
    return found->second;
  }
  const auto found = new_ids_.find(content);
  return found == new_ids_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

absl::StatusOr<AddedTokens> GatherAddedTokens(const BpeVocab& vocab,
                                              const std::vector<AddedToken>& own,
                                              const TokenizerConfig& config) {
  AddedTokens added(vocab);
  for (const AddedToken& token : own) WEFT_RETURN_IF_ERROR(added.Add(token).status());
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& [key, token] : config.named) names.insert(token.content);
  absl::flat_hash_set<absl::string_view> declared;
  for (const auto& [id, token] : config.declared) {
    AddedToken named = token;
    // What has a name is special, whatever its entry says.
    named.special |= names.contains(token.content);
    WEFT_RETURN_IF_ERROR(added.AddWithId(named, id));
    declared.insert(token.content);
  }
  for (const auto& [key, token] : config.named) {
    if (token.content.empty() || declared.contains(token.content)) continue;
    WEFT_RETURN_IF_ERROR(added.Add(token).status());
  }
  if (added.HasNew()) WEFT_RETURN_IF_ERROR(CheckNoHoles(vocab));
  return added;
}

}  // namespace weft::convert
