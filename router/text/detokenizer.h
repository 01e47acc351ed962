// Token ids to text, one id at a time, for one stream: gives out whole UTF-8 characters only and
// holds an incomplete one back until it is complete, broken or the stream ends. Owned by one
// request and called by one text worker at a time. Pure C++ on Tokenizer::TokenBytes; allocates
// nothing but the returned string.
//
// For any ids the pieces of Push and Flush, joined, are exactly Tokenizer::Decode of those ids
// with the same skip_special; bytes that are no UTF-8 become U+FFFD at the same places, one for
// each maximal invalid part (as Unicode recommends and Rust's and Python's decoders do).

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
  // Appends to `out` the characters that became certain with `bytes`.
  void Push(absl::string_view bytes, std::string* out);
  // Appends U+FFFD if an incomplete character is held, and forgets it.
  void Flush(std::string* out);

 private:
  // Takes one byte that does not continue a plain ASCII run.
  void PushByte(uint8_t byte, std::string* out);

  // The begun character: bytes seen, bytes still missing, and the range of the next byte.
  char held_[4];
  uint8_t held_bytes_ = 0;
  uint8_t missing_bytes_ = 0;
  uint8_t next_min_ = 0x80;
  uint8_t next_max_ = 0xBF;
};

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
