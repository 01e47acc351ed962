#include "router/text/model_text.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/gguf.h"
#include "common/limits.h"
#include "common/model_path.h"
#include "common/status.h"
#include "router/text/hf_text.h"

namespace weft::router {
namespace {

// Control tokens that end a turn or a text in the published families. A GGUF file names one of them
// as its end; models also write the others.
constexpr absl::string_view kEndTokens[] = {
    "<|endoftext|>", "<|im_end|>",      "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|end|>",       "<|end_of_turn|>", "</s>",       "<EOT>",      "<end_of_turn>",
};

void SortUnique(std::vector<TokenId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// The id under `key`, checked against the vocabulary; nothing when the file has no such key.
absl::StatusOr<std::optional<TokenId>> OptionalToken(const GgufFile& file, absl::string_view key,
                                                     size_t token_count) {
  if (!file.Has(key)) return std::optional<TokenId>();
  WEFT_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
  if (id >= token_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", key, " is ", id, "; expected below ", token_count));
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

absl::StatusOr<uint32_t> ContextOf(const GgufFile& file) {
  if (!file.Has("general.architecture")) return 0;
  WEFT_ASSIGN_OR_RETURN(const absl::string_view architecture,
                        file.GetString("general.architecture"));
  const std::string key = absl::StrCat(architecture, ".context_length");
  if (!file.Has(key)) return 0;
  WEFT_ASSIGN_OR_RETURN(const uint64_t tokens, file.GetUint(key));
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, kContextTokensMax));
}

absl::StatusOr<ModelText> FromGguf(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  WEFT_ASSIGN_OR_RETURN(const auto tokens, file->GetStrings("tokenizer.ggml.tokens"));
  WEFT_ASSIGN_OR_RETURN(const auto types, file->GetInts("tokenizer.ggml.token_type"));
  ModelText text;
  for (const absl::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"}) {
    WEFT_ASSIGN_OR_RETURN(const auto id, OptionalToken(*file, key, tokens.size()));
    if (!id.has_value()) continue;
    if (text.eos_ids.empty()) text.eos_token = std::string(tokens[*id]);
    text.eos_ids.push_back(*id);
  }
  constexpr int64_t kControl = 3;
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
    if (types[id] != kControl) continue;
    const bool ends =
        std::find(std::begin(kEndTokens), std::end(kEndTokens), tokens[id]) != std::end(kEndTokens);
    if (ends) text.eos_ids.push_back(static_cast<TokenId>(id));
  }
  SortUnique(&text.eos_ids);
  WEFT_ASSIGN_OR_RETURN(text.bos,
                        OptionalToken(*file, "tokenizer.ggml.bos_token_id", tokens.size()));
  if (text.bos.has_value()) text.bos_token = std::string(tokens[*text.bos]);
  if (file->Has("tokenizer.chat_template")) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view source,
                          file->GetString("tokenizer.chat_template"));
    text.chat_template = std::string(source);
  }
  WEFT_ASSIGN_OR_RETURN(text.context_tokens, ContextOf(*file));
  return text;
}

}  // namespace

absl::StatusOr<ModelText> LoadModelText(const std::string& path) {
  ModelText text;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    WEFT_ASSIGN_OR_RETURN(text, LoadHfText(path));
    SortUnique(&text.eos_ids);
  } else if (absl::EndsWith(path, ".gguf")) {
    WEFT_ASSIGN_OR_RETURN(text, FromGguf(path));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a directory in Hugging Face layout or a .gguf file"));
  }
  const std::vector<std::string> names = ModelNames(path);
  if (!names.empty()) text.model_name = names.front();
  return text;
}

}  // namespace weft::router
