// The facts about text that a model brings along beside its tokenizer: which ids end an answer, the
// chat template, the BOS and EOS strings that templates ask for, a name. Read once at start-up by
// the router's main thread; a plain value afterwards.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace weft::router {

struct ModelText {
  // Ids that end an answer, ascending, each once. From a directory: eos_token_id of
  // generation_config.json, else of config.json, and in any case the eos_token of
  // tokenizer_config.json when its added_tokens_decoder has the id. From a GGUF file: its eos, eot
  // and eom ids and the control tokens that end a turn or a text in the published families
  // (<|im_end|>, <|endoftext|>, <|eot_id|> ...), found by name.
  std::vector<TokenId> eos_ids;
  std::optional<TokenId> bos;
  // Jinja source; empty when the model has none. From chat_template.jinja, else
  // tokenizer_config.json (a string, or the list entry named "default"), else GGUF's
  // tokenizer.chat_template.
  std::string chat_template;
  // Written forms for the template's variables of these names; may be empty.
  std::string bos_token;
  std::string eos_token;
  // Longest sequence that the model was made for: max_position_embeddings of config.json, or the
  // architecture's context_length of a GGUF file; kContextTokensMax at most, as shards say it. 0 =
  // the files do not tell.
  uint32_t context_tokens = 0;
  // Last part of the directory's path, or the file's name without .gguf.
  std::string model_name;
};

// Reads all of the above from a directory in Hugging Face layout or a .gguf file. A missing
// optional file is fine; a broken one is INVALID_ARGUMENT that names the file and the key.
absl::StatusOr<ModelText> LoadModelText(const std::string& path);

}  // namespace weft::router
