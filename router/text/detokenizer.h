// Token ids to text, one id at a time, for one stream: gives out whole UTF-8 characters only and
// holds an incomplete one back until it is complete, broken or the stream ends. Owned by one
// request and called by one text worker at a time. Pure C++ on Tokenizer::TokenBytes; allocates
// nothing but the returned string.
//
// For any ids the pieces of Push and Flush, joined, are exactly Tokenizer::Decode of those ids
// with the same skip_special. Bytes that are no UTF-8 become U+FFFD where the model's own tokenizer
// puts it; only valid characters of a SentencePiece byte run stay although a later byte of the run
// is invalid (they have been given out by then).

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Bytes to whole characters; the part of Detokenizer that knows no tokens.
class Utf8Assembler {
 public:
  // An invalid part becomes one U+FFFD, or one for each of its bytes.
  explicit Utf8Assembler(bool replace_each_byte) : replace_each_byte_(replace_each_byte) {}

  // Appends to `out` the characters that became certain with `bytes`.
  void Push(absl::string_view bytes, std::string* out);
  // Appends U+FFFD if an incomplete character is held, and forgets it.
  void Flush(std::string* out);

 private:
  // Begins a character with `byte`.
  void Begin(uint8_t byte, std::string* out);
  void AppendReplacement(std::string* out) const;

  bool replace_each_byte_;
  // The begun character: bytes seen, bytes still missing, and the range of the next byte.
  char held_[4] = {};
  uint8_t held_bytes_ = 0;
  uint8_t missing_bytes_ = 0;
  uint8_t next_min_ = 0x80;
  uint8_t next_max_ = 0xBF;
};

// A token's bytes as text of their own: a part of a character becomes U+FFFD.
std::string LossyText(absl::string_view bytes);

class Detokenizer {
 public:
  // `tokenizer` must outlive this. Special tokens give no text when `skip_special`. `continues`:
  // the ids go on after other text (an answer after its prompt), so the blank that SentencePiece
  // models put in front of a text is kept.
  explicit Detokenizer(const Tokenizer* tokenizer, bool skip_special = true,
                       bool continues = false);

  // Text that became certain with `id`; often empty in the middle of a character. An id outside
  // the vocabulary gives no text.
  std::string Push(TokenId id);
  // The end of the stream: U+FFFD for a character that stayed incomplete, else empty. The next
  // Push begins a new text.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool continues_;
  // A leading blank is still to be dropped.
  bool at_start_;
  Utf8Assembler assembler_;
};

}  // namespace weft::router
