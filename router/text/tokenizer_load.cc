// Tokenizer::FromModel: from a tokenizer.json, or from the vocabulary and merges inside a GGUF
// file.

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/gguf.h"
#include "common/limits.h"
#include "common/mapped_file.h"
#include "common/model_path.h"
#include "common/status.h"
#include "router/text/ffi_text.h"
#include "router/text/tokenizer.h"

namespace weft::router {
namespace {

// The published ones have at most about 35 MB. Loading takes some ten times as much memory.
constexpr size_t kTokenizerJsonBytesMax = 64u << 20;

// GGUF's tokenizer.ggml.token_type.
enum GgufTokenType : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

uint8_t TokenKind(int64_t type) {
  if (type == kControl || type == kUnknown) return WEFT_TOKEN_CONTROL;
  return type == kUserDefined ? WEFT_TOKEN_USER_DEFINED : WEFT_TOKEN_NORMAL;
}

absl::Status CheckModel(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model == "gpt2") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": tokenizer.ggml.model is \"", model,
      "\"; expected \"gpt2\" (byte-level BPE). Serve the model's directory with its tokenizer.json "
      "instead"));
}

// The id under `key` when `flag` is true in the file, or absent and `by_default`.
absl::StatusOr<std::optional<TokenId>> AddedToken(const GgufFile& file, absl::string_view flag,
                                                  bool by_default, absl::string_view key,
                                                  size_t token_count) {
  bool add = by_default;
  if (file.Has(flag)) {
    WEFT_ASSIGN_OR_RETURN(add, file.GetBool(flag));
  }
  if (!add) return std::optional<TokenId>();
  WEFT_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
  if (id >= token_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", key, " is ", id, "; expected below ", token_count));
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

std::vector<WeftSlice> ToSlices(const std::vector<absl::string_view>& texts) {
  std::vector<WeftSlice> slices;
  slices.reserve(texts.size());
  for (const absl::string_view text : texts) slices.push_back(ToSlice(text));
  return slices;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromModel(const std::string& path) {
  WEFT_RETURN_IF_ERROR(CheckTokenizerFile(path));
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return FromJson((std::filesystem::path(path) / "tokenizer.json").string());
  }
  if (absl::EndsWith(path, ".gguf")) return FromGguf(path);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected a directory with tokenizer.json or a .gguf file"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  const absl::Span<const uint8_t> bytes = mapped.bytes();
  if (bytes.size() > kTokenizerJsonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", bytes.size(), " bytes; at most ",
                                                   kTokenizerJsonBytesMax, " are read"));
  }
  WeftTokenizer* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_tokenizer_from_json(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kVocabMax, &raw, error.out());
  if (status != WEFT_TEXT_OK) {
    return Annotate(ToStatus(status, error.view()),
                    absl::StrCat(path, ": cannot be used as a tokenizer.json"));
  }
  return std::unique_ptr<Tokenizer>(new Tokenizer(Handle(raw)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  WEFT_RETURN_IF_ERROR(CheckModel(*file));
  WEFT_ASSIGN_OR_RETURN(const auto tokens, file->GetStrings("tokenizer.ggml.tokens"));
  WEFT_ASSIGN_OR_RETURN(const auto merges, file->GetStrings("tokenizer.ggml.merges"));
  WEFT_ASSIGN_OR_RETURN(const auto types, file->GetInts("tokenizer.ggml.token_type"));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view pre, file->GetString("tokenizer.ggml.pre"));
  if (tokens.empty() || tokens.size() > kVocabMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": tokenizer.ggml.tokens has ", tokens.size(), " tokens; expected 1 to ", kVocabMax));
  }
  if (types.size() != tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tokenizer.ggml.token_type has ", types.size(),
                     " entries; expected one for each of ", tokens.size(), " tokens"));
  }
  std::vector<uint8_t> kinds;
  kinds.reserve(types.size());
  for (const int64_t type : types) kinds.push_back(TokenKind(type));
  const std::vector<WeftSlice> token_slices = ToSlices(tokens);
  const std::vector<WeftSlice> merge_slices = ToSlices(merges);
  const WeftBpe bpe = {token_slices.data(), kinds.data(),        token_slices.size(),
                       merge_slices.data(), merge_slices.size(), ToSlice(pre)};
  WeftTokenizer* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_tokenizer_from_bpe(&bpe, &raw, error.out());
  if (status != WEFT_TEXT_OK) return Annotate(ToStatus(status, error.view()), path);

  auto tokenizer = std::unique_ptr<Tokenizer>(new Tokenizer(Handle(raw)));
  // Files of Llama 3 from before the flag existed expect a BOS; all others are explicit.
  WEFT_ASSIGN_OR_RETURN(tokenizer->bos_,
                        AddedToken(*file, "tokenizer.ggml.add_bos_token", pre == "llama-bpe",
                                   "tokenizer.ggml.bos_token_id", tokens.size()));
  WEFT_ASSIGN_OR_RETURN(tokenizer->eos_, AddedToken(*file, "tokenizer.ggml.add_eos_token", false,
                                                    "tokenizer.ggml.eos_token_id", tokens.size()));
  return tokenizer;
}

}  // namespace weft::router
