#include "router/text/hf_text.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/text/hf_json.h"

namespace weft::router {
namespace {

namespace json = boost::json;

bool ToId(const json::value& value, TokenId vocab, TokenId* id) {
  json::error_code error;
  *id = value.to_number<TokenId>(error);
  return !error && value.is_number() && *id < vocab;
}

// What vocab_size says; where it says nothing that makes sense, the most that is served.
TokenId VocabOf(const HfJson& config) {
  const json::value* value = config.Find("vocab_size");
  TokenId vocab = 0;
  return value != nullptr && ToId(*value, kVocabMax, &vocab) && vocab > 0 ? vocab : kVocabMax;
}

// An id or a list of ids under `key`, each below `vocab`.
absl::Status AppendIds(const HfJson& config, const char* key, TokenId vocab,
                       std::vector<TokenId>* ids) {
  const json::value* value = config.Find(key);
  if (value == nullptr) return absl::OkStatus();
  json::array one = {*value};
  for (const json::value& entry : value->is_array() ? value->get_array() : one) {
    TokenId id = 0;
    if (!ToId(entry, vocab, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(config.path, ": ", key, ": expected a token id from 0 to ", vocab - 1,
                       " or a list of them, found ", json::serialize(entry).substr(0, 60)));
    }
    ids->push_back(id);
  }
  return absl::OkStatus();
}

// The model's longest sequence; 0 when it is not told.
absl::StatusOr<uint32_t> ContextOf(const HfJson& config) {
  constexpr char kKey[] = "max_position_embeddings";
  const json::value* value = config.Find(kKey);
  if (value == nullptr) return 0;
  json::error_code error;
  const auto tokens = value->to_number<uint64_t>(error);
  if (error) {
    return config.Wrong(kKey, absl::StrCat("a number of tokens, an integer from 0, found ",
                                           json::serialize(*value).substr(0, 60)));
  }
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, kContextTokensMax));
}

// A token's written form under `key`: a string or an object with "content".
absl::StatusOr<std::string> TokenText(const HfJson& config, const char* key) {
  const json::value* value = config.Find(key);
  if (value == nullptr) return std::string();
  if (value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) {
    return config.Wrong(key, "a string or an object with \"content\"");
  }
  return std::string(value->get_string().c_str(), value->get_string().size());
}

// The id of `token` in added_tokens_decoder of tokenizer_config.json.
std::optional<TokenId> AddedTokenId(const HfJson& config, absl::string_view token) {
  const json::value* value = config.Find("added_tokens_decoder");
  if (value == nullptr || !value->is_object() || token.empty()) return std::nullopt;
  for (const json::key_value_pair& entry : value->get_object()) {
    const json::object* added = entry.value().if_object();
    const json::value* content = added == nullptr ? nullptr : added->if_contains("content");
    if (content == nullptr || !content->is_string()) continue;
    const json::string& text = content->get_string();
    if (absl::string_view(text.data(), text.size()) != token) continue;
    TokenId id = 0;
    const absl::string_view key(entry.key().data(), entry.key().size());
    if (absl::SimpleAtoi(key, &id) && id < kVocabMax) return id;
  }
  return std::nullopt;
}

// tokenizer_config.json's template: a string, or a list of {name, template} with one "default".
absl::StatusOr<std::string> TemplateOf(const HfJson& config) {
  constexpr char kExpected[] = "a string or a list of {\"name\", \"template\"} with a \"default\"";
  const json::value* value = config.Find("chat_template");
  if (value == nullptr) return std::string();
  if (value->is_array()) {
    const json::value* found = nullptr;
    for (const json::value& entry : value->get_array()) {
      const json::object* named = entry.if_object();
      const json::value* name = named == nullptr ? nullptr : named->if_contains("name");
      if (name != nullptr && *name == json::value("default"))
        found = named->if_contains("template");
    }
    value = found;
  }
  if (value == nullptr || !value->is_string()) return config.Wrong("chat_template", kExpected);
  return std::string(value->get_string().c_str(), value->get_string().size());
}

}  // namespace

absl::StatusOr<ModelText> LoadHfText(const std::string& directory) {
  const auto in = [&directory](const char* name) {
    return (std::filesystem::path(directory) / name).string();
  };
  WEFT_ASSIGN_OR_RETURN(const HfJson generation, ReadHfJson(in("generation_config.json")));
  WEFT_ASSIGN_OR_RETURN(const HfJson model, ReadHfJson(in("config.json")));
  WEFT_ASSIGN_OR_RETURN(const HfJson tokenizer, ReadHfJson(in("tokenizer_config.json")));

  const TokenId vocab = VocabOf(model);
  ModelText text;
  WEFT_RETURN_IF_ERROR(AppendIds(generation, "eos_token_id", vocab, &text.eos_ids));
  if (text.eos_ids.empty())
    WEFT_RETURN_IF_ERROR(AppendIds(model, "eos_token_id", vocab, &text.eos_ids));
  WEFT_ASSIGN_OR_RETURN(text.bos_token, TokenText(tokenizer, "bos_token"));
  WEFT_ASSIGN_OR_RETURN(text.eos_token, TokenText(tokenizer, "eos_token"));
  // Chat models are sometimes published with the end of a turn only here.
  if (const auto id = AddedTokenId(tokenizer, text.eos_token)) text.eos_ids.push_back(*id);

  std::vector<TokenId> bos;
  WEFT_RETURN_IF_ERROR(AppendIds(generation, "bos_token_id", vocab, &bos));
  if (bos.empty()) WEFT_RETURN_IF_ERROR(AppendIds(model, "bos_token_id", vocab, &bos));
  if (!bos.empty()) text.bos = bos.front();
  WEFT_ASSIGN_OR_RETURN(text.context_tokens, ContextOf(model));

  WEFT_ASSIGN_OR_RETURN(text.chat_template, ReadOptionalFile(in("chat_template.jinja")));
  if (text.chat_template.empty()) {
    WEFT_ASSIGN_OR_RETURN(text.chat_template, TemplateOf(tokenizer));
  }
  return text;
}

}  // namespace weft::router
