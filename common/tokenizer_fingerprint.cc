#include "common/tokenizer_fingerprint.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/gguf.h"
#include "common/mapped_file.h"
#include "common/status.h"

namespace weft {
namespace {

// http://www.isthe.com/chongo/tech/comp/fnv/index.html
class Fnv1a {
 public:
  void Add(const void* bytes, size_t count) {
    const auto* from = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < count; ++i) hash_ = (hash_ ^ from[i]) * 0x100000001B3u;
  }
  // With its length, so that neighbours cannot trade bytes.
  void Add(absl::string_view text) {
    const uint64_t size = text.size();
    Add(&size, sizeof(size));
    Add(text.data(), text.size());
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325u;
};

absl::StatusOr<uint64_t> HashGguf(const GgufFile& file) {
  Fnv1a hash;
  for (const absl::string_view name : {"model", "pre"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name);
    if (!file.Has(key)) continue;
    WEFT_ASSIGN_OR_RETURN(const absl::string_view value, file.GetString(key));
    hash.Add(name);
    hash.Add(value);
  }
  for (const absl::string_view name : {"tokens", "merges"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name);
    if (!file.Has(key)) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<absl::string_view> values, file.GetStrings(key));
    hash.Add(name);
    for (const absl::string_view value : values) hash.Add(value);
  }
  if (file.Has("tokenizer.ggml.token_type")) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                          file.GetInts("tokenizer.ggml.token_type"));
    hash.Add("token_type");
    hash.Add(types.data(), types.size() * sizeof(types[0]));
  }
  if (file.Has("tokenizer.ggml.scores")) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<float> scores, file.GetFloats("tokenizer.ggml.scores"));
    hash.Add("scores");
    hash.Add(scores.data(), scores.size() * sizeof(scores[0]));
  }
  for (const absl::string_view name : {"bos_token_id", "eos_token_id", "unknown_token_id"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name);
    if (!file.Has(key)) continue;
    WEFT_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
    hash.Add(name);
    hash.Add(&id, sizeof(id));
  }
  return hash.hash();
}

}  // namespace

absl::StatusOr<TokenizerFingerprint> FingerprintTokenizer(const std::string& model_path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model_path, ignored)) {
    const absl::StatusOr<MappedFile> file =
        MappedFile::Open(absl::StrCat(model_path, "/tokenizer.json"));
    if (absl::IsNotFound(file.status())) return TokenizerFingerprint();
    WEFT_RETURN_IF_ERROR(file.status());
    Fnv1a hash;
    hash.Add(file->bytes().data(), file->bytes().size());
    return TokenizerFingerprint{TokenizerSource::kTokenizerJson, hash.hash()};
  }
  if (!absl::EndsWith(model_path, ".gguf")) return TokenizerFingerprint();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(model_path));
  if (!file->Has("tokenizer.ggml.tokens")) return TokenizerFingerprint();
  WEFT_ASSIGN_OR_RETURN(const uint64_t hash, HashGguf(*file));
  return TokenizerFingerprint{TokenizerSource::kGguf, hash};
}

}  // namespace weft
