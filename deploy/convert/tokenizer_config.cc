#include "deploy/convert/tokenizer_config.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"
#include "common/limits.h"
#include "common/status.h"
#include "shard/model/hf_config.h"

namespace weft::convert {
namespace {

namespace json = boost::json;

constexpr size_t kFileBytesMax = 16u << 20;
constexpr size_t kAddedTokensMax = 1u << 16;
// The order of transformers.
constexpr const char* kNamedKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
// Lists of tokens without a name; the second one is that of newer files, where it may also be an
// object of names and tokens.
constexpr const char* kListKeys[] = {"additional_special_tokens", "extra_special_tokens"};

// An object that may be missing: an empty one then.
absl::StatusOr<json::object> ReadObject(const std::string& directory, const char* name) {
  const std::string path = absl::StrCat(directory, "/", name);
  absl::StatusOr<json::object> object = shard::ReadJsonObject(path, kFileBytesMax);
  if (absl::IsNotFound(object.status())) return json::object();
  return object;
}

absl::Status Bad(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

std::string Text(const json::value& value) {
  return std::string(value.get_string().data(), value.get_string().size());
}

// A truth value that may be missing or null.
absl::StatusOr<std::optional<bool>> ReadBool(const json::object& object, absl::string_view where,
                                             const char* key) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  if (!value->is_bool()) return Bad(absl::StrCat(where, ": ", key), "expected true or false");
  return std::optional<bool>(value->get_bool());
}

absl::StatusOr<std::string> ReadText(const json::object& object, absl::string_view where,
                                     const char* key) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return std::string();
  if (!value->is_string()) return Bad(absl::StrCat(where, ": ", key), "expected a text");
  return Text(*value);
}

// A token as a text, or as an object with its properties.
absl::StatusOr<AddedToken> ReadToken(const json::value& value, bool special,
                                     const std::string& where) {
  AddedToken token;
  token.special = special;
  token.normalized = !special;
  if (value.is_string()) {
    token.content = Text(value);
  } else if (value.is_object()) {
    const json::object& object = value.get_object();
    WEFT_ASSIGN_OR_RETURN(token.content, ReadText(object, where, "content"));
    const auto take = [&](const char* key, bool* out) -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(const std::optional<bool> given, ReadBool(object, where, key));
      *out = given.value_or(*out);
      return absl::OkStatus();
    };
    WEFT_RETURN_IF_ERROR(take("special", &token.special));
    token.special |= special;
    token.normalized = !token.special;
    WEFT_RETURN_IF_ERROR(take("normalized", &token.normalized));
    WEFT_RETURN_IF_ERROR(take("single_word", &token.single_word));
    WEFT_RETURN_IF_ERROR(take("lstrip", &token.lstrip));
    WEFT_RETURN_IF_ERROR(take("rstrip", &token.rstrip));
  } else {
    return Bad(where, "expected a token: a text or an object with content");
  }
  if (token.content.empty()) return Bad(where, "the token is empty");
  return token;
}

absl::StatusOr<uint32_t> CheckId(int64_t id, absl::string_view where) {
  if (id >= 0 && id < static_cast<int64_t>(kVocabMax)) return static_cast<uint32_t>(id);
  return Bad(where, absl::StrCat("id ", id, " is not in 0 .. ", kVocabMax - 1));
}

void SetNamed(const std::string& key, AddedToken token, TokenizerConfig* out) {
  for (auto& [name, known] : out->named) {
    if (name != key) continue;
    known = std::move(token);
    return;
  }
  out->named.emplace_back(key, std::move(token));
}

// The special tokens that `object` names; what is named already is replaced.
absl::Status ReadNamed(const json::object& object, const std::string& file, TokenizerConfig* out) {
  for (const char* key : kNamedKeys) {
    const json::value* const value = object.if_contains(key);
    if (value == nullptr) continue;
    AddedToken token;
    if (!value->is_null()) {
      WEFT_ASSIGN_OR_RETURN(token, ReadToken(*value, true, absl::StrCat(file, ": ", key)));
    }
    SetNamed(key, std::move(token), out);
  }
  for (const char* key : kListKeys) {
    const json::value* const value = object.if_contains(key);
    if (value == nullptr || value->is_null()) continue;
    const std::string where = absl::StrCat(file, ": ", key);
    std::vector<const json::value*> tokens;
    if (value->is_array()) {
      for (const json::value& token : value->get_array()) tokens.push_back(&token);
    } else if (value->is_object()) {
      for (const auto& [name, token] : value->get_object()) tokens.push_back(&token);
    } else {
      return Bad(where, "expected a list");
    }
    if (tokens.size() > kAddedTokensMax) return Bad(where, "has too many tokens");
    for (const json::value* value_of_token : tokens) {
      WEFT_ASSIGN_OR_RETURN(AddedToken token, ReadToken(*value_of_token, true, where));
      // Its name is its content: the same token of two files is there once.
      SetNamed(token.content, token, out);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadDecoder(const json::value& value, const std::string& where, TokenizerConfig* out) {
  if (!value.is_object()) return Bad(where, "expected an object of ids and tokens");
  if (value.get_object().size() > kAddedTokensMax) return Bad(where, "has too many tokens");
  for (const auto& [key, entry] : value.get_object()) {
    const std::string here = absl::StrCat(where, ": ", absl::string_view(key.data(), key.size()));
    int64_t number = -1;
    if (!absl::SimpleAtoi(absl::string_view(key.data(), key.size()), &number)) number = -1;
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, CheckId(number, here));
    WEFT_ASSIGN_OR_RETURN(out->declared[id], ReadToken(entry, false, here));
  }
  return absl::OkStatus();
}

// added_tokens.json: tokens and their ids. Those that are named elsewhere are special.
absl::Status ReadAdded(const json::object& added, const std::string& file, TokenizerConfig* out) {
  if (added.size() > kAddedTokensMax) return Bad(file, "has too many tokens");
  for (const auto& [key, value] : added) {
    AddedToken token;
    token.content = std::string(key.data(), key.size());
    const std::string where = absl::StrCat(file, ": ", token.content);
    json::error_code error;
    const auto number = value.to_number<int64_t>(error);
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, CheckId(error ? -1 : number, where));
    token.special = std::any_of(out->named.begin(), out->named.end(), [&token](const auto& named) {
      return named.second.content == token.content;
    });
    token.normalized = !token.special;
    if (token.content.empty()) return Bad(where, "the token is empty");
    if (!out->declared.emplace(id, token).second) {
      return Bad(where, absl::StrCat("id ", id, " is that of another token too"));
    }
  }
  return absl::OkStatus();
}

// Named tokens first and in transformers' order, whichever file they came from.
void SortNamed(TokenizerConfig* out) {
  std::stable_sort(out->named.begin(), out->named.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const std::string& key) {
      return std::find(std::begin(kNamedKeys), std::end(kNamedKeys), key) - std::begin(kNamedKeys);
    };
    return rank(a.first) < rank(b.first);
  });
}

}  // namespace

std::string TokenizerConfig::Named(absl::string_view key) const {
  for (const auto& [name, token] : named) {
    if (name == key) return token.content;
  }
  return "";
}

void TokenizerConfig::SetDefault(absl::string_view key, absl::string_view content) {
  for (const auto& [name, token] : named) {
    if (name == key) return;
  }
  AddedToken token;
  token.content = std::string(content);
  token.special = true;
  named.emplace_back(std::string(key), std::move(token));
  SortNamed(this);
}

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& directory) {
  constexpr char kConfig[] = "tokenizer_config.json";
  constexpr char kMap[] = "special_tokens_map.json";
  constexpr char kAdded[] = "added_tokens.json";
  TokenizerConfig out;
  WEFT_ASSIGN_OR_RETURN(const json::object model, ReadObject(directory, "config.json"));
  const std::string model_where = directory + "/config.json";
  WEFT_ASSIGN_OR_RETURN(out.model_type, ReadText(model, model_where, "model_type"));
  WEFT_ASSIGN_OR_RETURN(const json::object config, ReadObject(directory, kConfig));
  const std::string where = absl::StrCat(directory, "/", kConfig);
  WEFT_ASSIGN_OR_RETURN(out.tokenizer_class, ReadText(config, where, "tokenizer_class"));
  if (out.tokenizer_class.empty()) {
    WEFT_ASSIGN_OR_RETURN(out.tokenizer_class, ReadText(model, model_where, "tokenizer_class"));
  }
  out.tokenizer_class = std::string(absl::StripSuffix(out.tokenizer_class, "Fast"));
  WEFT_ASSIGN_OR_RETURN(out.add_bos, ReadBool(config, where, "add_bos_token"));
  WEFT_ASSIGN_OR_RETURN(out.add_eos, ReadBool(config, where, "add_eos_token"));
  WEFT_ASSIGN_OR_RETURN(out.add_prefix_space, ReadBool(config, where, "add_prefix_space"));
  WEFT_ASSIGN_OR_RETURN(out.legacy, ReadBool(config, where, "legacy"));
  WEFT_RETURN_IF_ERROR(ReadNamed(config, where, &out));
  // Files with this list say all by it; what older ones lie beside it for says it a second time.
  const json::value* const decoder = config.if_contains("added_tokens_decoder");
  if (decoder != nullptr && !decoder->is_null()) {
    WEFT_RETURN_IF_ERROR(ReadDecoder(*decoder, where + ": added_tokens_decoder", &out));
  } else {
    WEFT_ASSIGN_OR_RETURN(const json::object map, ReadObject(directory, kMap));
    WEFT_RETURN_IF_ERROR(ReadNamed(map, absl::StrCat(directory, "/", kMap), &out));
    WEFT_ASSIGN_OR_RETURN(const json::object added, ReadObject(directory, kAdded));
    WEFT_RETURN_IF_ERROR(ReadAdded(added, absl::StrCat(directory, "/", kAdded), &out));
  }
  SortNamed(&out);
  return out;
}

}  // namespace weft::convert
