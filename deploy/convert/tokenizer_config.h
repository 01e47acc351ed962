// What the small JSON files of a model directory say about its tokenizer: tokenizer_config.json,
// and in older directories special_tokens_map.json and added_tokens.json. Reads them as
// transformers does, so that the same tokens are special. Used by `weft convert`, one thread.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::convert {

// As the tokenizers crate has it.
struct AddedToken {
  std::string content;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
};

struct TokenizerConfig {
  // Without "Fast" at its end; empty when no file names it.
  std::string tokenizer_class;
  // Of config.json; empty when there is none.
  std::string model_type;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;
  // By the id that the files give them.
  std::map<uint32_t, AddedToken> declared;
  // "bos_token" and so on, in the order in which transformers adds them; behind them those without
  // a name of their own. A token that a file sets to null is here without content.
  std::vector<std::pair<std::string, AddedToken>> named;

  // Empty when there is none.
  std::string Named(absl::string_view key) const;
  // Adds `content` under `key` unless a file said what it is, null included.
  void SetDefault(absl::string_view key, absl::string_view content);
};

// INVALID_ARGUMENT naming file and key for what is no token, and for more tokens than are read. A
// file that is not there says nothing.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& directory);

}  // namespace weft::convert
