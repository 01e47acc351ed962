// Tokenizer::FromModel: from a tokenizer.json, or from the vocabulary and the merges or scores
// inside a GGUF file.

#include <filesystem>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/gguf.h"
#include "common/limits.h"
#include "common/mapped_file.h"
#include "common/model_path.h"
#include "common/status.h"
#include "router/text/ffi_text.h"
#include "router/text/tokenizer_ffi.h"

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

// Byte-level BPE, or a BPE over SentencePiece's pieces.
enum class GgufModel : uint8_t { kByteLevel, kPieces };

absl::StatusOr<GgufModel> ModelOf(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model == "gpt2") return GgufModel::kByteLevel;
  if (model == "llama") return GgufModel::kPieces;
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": tokenizer.ggml.model is \"", model,
      "\"; expected \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE). Serve the model's "
      "directory with its tokenizer.json instead"));
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

// The tokens of a file, index = id; views into it.
struct GgufVocab {
  std::vector<absl::string_view> tokens;
  std::vector<int64_t> types;
  // WeftTokenKind of each.
  std::vector<uint8_t> kinds;
};

absl::StatusOr<GgufVocab> ReadVocab(const GgufFile& file) {
  GgufVocab vocab;
  WEFT_ASSIGN_OR_RETURN(vocab.tokens, file.GetStrings("tokenizer.ggml.tokens"));
  WEFT_ASSIGN_OR_RETURN(vocab.types, file.GetInts("tokenizer.ggml.token_type"));
  const size_t count = vocab.tokens.size();
  if (count == 0 || count > kVocabMax) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tokenizer.ggml.tokens has ",
                                                   count, " tokens; expected 1 to ", kVocabMax));
  }
  if (vocab.types.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tokenizer.ggml.token_type has ", vocab.types.size(),
                     " entries; expected one for each of ", count, " tokens"));
  }
  vocab.kinds.reserve(count);
  for (const int64_t type : vocab.types) vocab.kinds.push_back(TokenKind(type));
  return vocab;
}

absl::StatusOr<WeftTokenizer*> FromMerges(const GgufFile& file, const GgufVocab& vocab) {
  WEFT_ASSIGN_OR_RETURN(const auto merges, file.GetStrings("tokenizer.ggml.merges"));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view pre, file.GetString("tokenizer.ggml.pre"));
  const std::vector<WeftSlice> token_slices = ToSlices(vocab.tokens);
  const std::vector<WeftSlice> merge_slices = ToSlices(merges);
  const WeftBpe bpe = {token_slices.data(), vocab.kinds.data(),  token_slices.size(),
                       merge_slices.data(), merge_slices.size(), ToSlice(pre)};
  WeftTokenizer* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_tokenizer_from_bpe(&bpe, &raw, error.out());
  if (status != WEFT_TEXT_OK) return Annotate(ToStatus(status, error.view()), file.path());
  return raw;
}

// The flag under `key`.
absl::StatusOr<bool> FlagOr(const GgufFile& file, absl::string_view key, bool otherwise) {
  if (!file.Has(key)) return otherwise;
  return file.GetBool(key);
}

absl::StatusOr<WeftTokenizer*> FromPieces(const GgufFile& file, const GgufVocab& vocab) {
  constexpr char kScores[] = "tokenizer.ggml.scores";
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> scores, file.GetFloats(kScores));
  if (scores.size() != vocab.tokens.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", kScores, " has ", scores.size(),
                     " entries; expected one for each of ", vocab.tokens.size(), " tokens"));
  }
  constexpr char kWhitespace[] = "tokenizer.ggml.remove_extra_whitespaces";
  WEFT_ASSIGN_OR_RETURN(const bool removes, FlagOr(file, kWhitespace, false));
  if (removes) {
    return absl::UnimplementedError(
        absl::StrCat(file.path(), ": ", kWhitespace, ": true is not supported; expected false"));
  }
  WEFT_ASSIGN_OR_RETURN(const bool blank_first,
                        FlagOr(file, "tokenizer.ggml.add_space_prefix", true));
  const auto unknown =
      static_cast<uint32_t>(absl::c_find(vocab.types, int64_t{kUnknown}) - vocab.types.begin());
  const std::vector<WeftSlice> slices = ToSlices(vocab.tokens);
  const WeftPieces pieces = {slices.data(), vocab.kinds.data(), scores.data(), slices.size(),
                             unknown,       blank_first};
  WeftTokenizer* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_tokenizer_from_pieces(&pieces, &raw, error.out());
  if (status != WEFT_TEXT_OK) return Annotate(ToStatus(status, error.view()), file.path());
  return raw;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(const std::string& path) {
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
  return std::make_unique<FfiTokenizer>(FfiTokenizer::Handle(raw));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  WEFT_ASSIGN_OR_RETURN(const GgufModel model, ModelOf(*file));
  WEFT_ASSIGN_OR_RETURN(const GgufVocab vocab, ReadVocab(*file));
  WEFT_ASSIGN_OR_RETURN(WeftTokenizer* const raw, model == GgufModel::kPieces
                                                      ? FromPieces(*file, vocab)
                                                      : FromMerges(*file, vocab));
  auto tokenizer = std::make_unique<FfiTokenizer>(FfiTokenizer::Handle(raw));
  // Files of Llama 3 from before the flag existed expect a BOS, and so does SentencePiece; all
  // others are explicit.
  bool bos = model == GgufModel::kPieces;
  if (!bos) {
    WEFT_ASSIGN_OR_RETURN(const absl::string_view pre, file->GetString("tokenizer.ggml.pre"));
    bos = pre == "llama-bpe";
  }
  const size_t count = vocab.tokens.size();
  WEFT_ASSIGN_OR_RETURN(const auto bos_id, AddedToken(*file, "tokenizer.ggml.add_bos_token", bos,
                                                      "tokenizer.ggml.bos_token_id", count));
  WEFT_ASSIGN_OR_RETURN(const auto eos_id, AddedToken(*file, "tokenizer.ggml.add_eos_token", false,
                                                      "tokenizer.ggml.eos_token_id", count));
  tokenizer->SetEnds(bos_id, eos_id);
  return tokenizer;
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

}  // namespace weft::router
