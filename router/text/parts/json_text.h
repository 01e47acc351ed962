// JSON strings, byte by byte: text into the inside of one, and the inside of one back into text.
// Pure; one object serves one string at a time.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

// Space, tab, line feed, carriage return: what JSON allows between its tokens.
inline bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Appends a byte of a text as it stands inside of a JSON string. Bytes of UTF-8 go through.
void AppendJsonByte(char c, std::string* out);
void AppendJsonBytes(absl::string_view text, std::string* out);
// Appends a code point as UTF-8; one that is none, or a surrogate, as U+FFFD.
void AppendUtf8(uint32_t code_point, std::string* out);
// The value of a hexadecimal digit, -1 of another byte.
int HexValue(char c);

// Takes the bytes between a JSON string's quotes. A lone surrogate becomes U+FFFD, an unknown
// escape the byte behind its backslash.
class JsonStringReader {
 public:
  // Appends to `out` what became certain.
  void Take(char c, std::string* out);
  // The string has ended: appends what was held.
  void Finish(std::string* out);

 private:
  void TakeEscaped(char c, std::string* out);
  void TakeUnit(uint32_t unit, std::string* out);

  enum class State : uint8_t { kPlain, kEscape, kHex };
  State state_ = State::kPlain;
  uint8_t digits_ = 0;
  uint32_t unit_ = 0;
  // A first half of a pair, whose second is awaited; 0 without.
  uint32_t high_ = 0;
};

}  // namespace weft::router
