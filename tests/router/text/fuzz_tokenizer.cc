// Fuzz target: a tokenizer of any bytes, as tokenizer.json or, when it begins like one, as a GGUF
// file. It is refused, or encodes texts alike whether they are cut or not, within its own bounds,
// to ids that it has, and reads them back.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/tokenizer.h"
#include "tests/support/memory_folder.h"

namespace weft::router {
namespace {

// Words, numbers, blanks, other scripts, a control token of published models, what no vocabulary
// has.
constexpr absl::string_view kTexts[] = {
    "",
    "Hello world, it's 2024!\n\n  for (int i = 0; i < 10; ++i) {\n\t\tx += 1;\r\n}   ",
    "<s>[INST] caf\u00e9 na\u00efve \u4f60\u597d\uff0c\u4e16\u754c \U0001F600\u200d "
    "<|endoftext|></s>",
    "aaaaaaaaaaaaaaaaaaaaaaaa                        1234567890\u0301\u0301e\u0301\u2581\u2581",
};

// A failure inside the library is a bug in it, whatever the file says.
void CheckRefusal(const absl::Status& status) {
  WEFT_CHECK_MSG(!absl::IsInternal(status), status.ToString());
}

void CheckText(const Tokenizer& tokenizer, absl::string_view text) {
  Tokenizer::EncodeOptions options;
  options.offsets = true;
  const auto whole = tokenizer.Encode(text, options);
  if (!whole.ok()) return CheckRefusal(whole.status());
  WEFT_CHECK_EQ(whole->ids.size(), whole->offsets.size());
  for (const TokenId id : whole->ids) WEFT_CHECK_LT(id, tokenizer.vocab_size());
  for (const auto& [begin, end] : whole->offsets) {
    WEFT_CHECK_LE(begin, end);
    WEFT_CHECK_LE(end, text.size());
  }
  WEFT_CHECK_LE(tokenizer.TokensMin(text), whole->ids.size());
  options.offsets = false;
  options.piece_bytes = 8;
  const auto cut = tokenizer.Encode(text, options);
  WEFT_CHECK_MSG(cut.ok(), cut.status().ToString());
  WEFT_CHECK(cut->ids == whole->ids);
  options.tokens_max = whole->ids.size();
  WEFT_CHECK(tokenizer.Encode(text, options).ok());
  if (options.tokens_max > 0) {
    --options.tokens_max;
    const auto fewer = tokenizer.Encode(text, options);
    WEFT_CHECK(Tokenizer::TooManyTokens(fewer.status()).has_value());
  }
  CheckRefusal(tokenizer.Decode(whole->ids, /*skip_special=*/false).status());
  const auto breaks = tokenizer.Breaks(text, /*ends=*/true);
  if (!breaks.ok()) return CheckRefusal(breaks.status());
  for (size_t i = 0; i < breaks->size(); ++i) {
    WEFT_CHECK(i == 0 || (*breaks)[i - 1] < (*breaks)[i]);
    WEFT_CHECK_LE((*breaks)[i], text.size());
  }
}

void CheckVocab(const Tokenizer& tokenizer) {
  WEFT_CHECK_LE(tokenizer.vocab_size(), kVocabMax);
  size_t sum = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    for (const char byte : tokenizer.TokenBytes(id)) sum += static_cast<uint8_t>(byte);
    sum += tokenizer.IsSpecial(id);
  }
  volatile size_t seen = sum;  // reading them is the point
  (void)seen;
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::MemoryFolder folder;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool gguf = absl::StartsWith(bytes, "GGUF");
  const std::string file = folder.Put(gguf ? "model.gguf" : "tokenizer.json", data, size);
  const auto tokenizer = weft::router::Tokenizer::FromModel(gguf ? file : folder.path());
  if (!tokenizer.ok()) {
    weft::router::CheckRefusal(tokenizer.status());
    WEFT_CHECK_MSG(absl::StrContains(tokenizer.status().message(), folder.path()),
                   std::string(tokenizer.status().message()));
    return 0;
  }
  weft::router::CheckVocab(**tokenizer);
  for (const absl::string_view text : weft::router::kTexts) {
    weft::router::CheckText(**tokenizer, text);
  }
  return 0;
}
