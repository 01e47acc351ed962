#include "router/text/detokenizer.h"

#include "absl/types/span.h"
#include "common/status.h"

namespace weft::router {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

void Utf8Assembler::AppendReplacement(std::string* out) const {
  const int count = replace_each_byte_ ? held_bytes_ : 1;
  for (int i = 0; i < count; ++i) out->append(kReplacement.data(), kReplacement.size());
}

// Lead bytes and the range of the byte behind them: Unicode 15, table 3-7 (well-formed UTF-8).
// Later bytes are always 80..BF.
void Utf8Assembler::Begin(uint8_t byte, std::string* out) {
  if (byte < 0x80) {
    out->push_back(static_cast<char>(byte));
    return;
  }
  held_[0] = static_cast<char>(byte);
  held_bytes_ = 1;
  next_min_ = 0x80;
  next_max_ = 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) {
    missing_bytes_ = 1;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    missing_bytes_ = 2;
    if (byte == 0xE0) next_min_ = 0xA0;
    if (byte == 0xED) next_max_ = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    missing_bytes_ = 3;
    if (byte == 0xF0) next_min_ = 0x90;
    if (byte == 0xF4) next_max_ = 0x8F;
  } else {  // 80..C1 and F5..FF never begin a character.
    AppendReplacement(out);
    held_bytes_ = 0;
  }
}

void Utf8Assembler::Push(absl::string_view bytes, std::string* out) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (held_bytes_ > 0) {
      if (byte >= next_min_ && byte <= next_max_) {
        held_[held_bytes_++] = c;
        next_min_ = 0x80;
        next_max_ = 0xBF;
        if (--missing_bytes_ == 0) {
          out->append(held_, held_bytes_);
          held_bytes_ = 0;
        }
        continue;
      }
      // What is held is a maximal invalid part; `byte` begins anew.
      AppendReplacement(out);
      held_bytes_ = 0;
    }
    Begin(byte, out);
  }
}

void Utf8Assembler::Flush(std::string* out) {
  if (held_bytes_ > 0) AppendReplacement(out);
  held_bytes_ = 0;
}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, bool skip_special, bool continues)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      continues_(continues),
      at_start_(!continues),
      assembler_(tokenizer->decoder_kind() == Tokenizer::DecoderKind::kSentencePiece) {}

std::string Detokenizer::Push(TokenId id) {
  std::string text;
  if (skip_special_ && tokenizer_->IsSpecial(id)) return text;
  absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (at_start_ && !bytes.empty()) {
    at_start_ = false;
    if (tokenizer_->strip_leading_blank() && bytes.front() == ' ') bytes.remove_prefix(1);
  }
  assembler_.Push(bytes, &text);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  assembler_.Flush(&text);
  at_start_ = !continues_;
  return text;
}

std::string LossyText(absl::string_view bytes) {
  std::string out;
  Utf8Assembler assembler(/*replace_each_byte=*/false);
  assembler.Push(bytes, &out);
  assembler.Flush(&out);
  return out;
}

}  // namespace weft::router
