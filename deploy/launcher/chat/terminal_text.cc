#include "deploy/launcher/chat/terminal_text.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/utf8.h"

namespace weft::launcher {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Bytes of a character by its first byte; 1 for what begins none.
size_t BytesByFirst(unsigned char first) {
  if (first >= 0xF0 && first <= 0xF4) return 4;
  if (first >= 0xE0) return first < 0xF0 ? 3 : 1;
  return first >= 0xC2 ? 2 : 1;
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// More bytes may still make a character of `text`, which is none yet.
bool MayGrow(absl::string_view text) {
  if (text.size() >= BytesByFirst(static_cast<unsigned char>(text[0]))) return false;
  for (const char byte : text.substr(1)) {
    if (!IsContinuation(byte)) return false;
  }
  return true;
}

uint32_t CodePoint(absl::string_view character) {
  const auto byte = [character](size_t i) -> uint32_t {
    return static_cast<unsigned char>(character[i]);
  };
  switch (character.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

// The picture of a control character: U+2400 + it, U+2421 for delete.
void AppendPicture(unsigned char control, std::string* out) {
  const uint32_t picture = control == 0x7F ? 0x2421 : 0x2400u + control;
  out->push_back(static_cast<char>(0xE2));
  out->push_back(static_cast<char>(0x80 | (picture >> 6 & 0x3F)));
  out->push_back(static_cast<char>(0x80 | (picture & 0x3F)));
}

// C1 controls, separators of lines and paragraphs, embeddings, overrides and isolates of direction.
bool IsHostile(uint32_t code) {
  return (code >= 0x80 && code <= 0x9F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

void AppendCharacter(absl::string_view character, std::string* out) {
  const uint32_t code = CodePoint(character);
  if ((code < 0x20 && code != '\n' && code != '\t') || code == 0x7F) {
    AppendPicture(static_cast<unsigned char>(code), out);
  } else if (IsHostile(code)) {
    absl::StrAppendFormat(out, "<U+%04X>", code);
  } else {
    absl::StrAppend(out, character);
  }
}

}  // namespace

std::string TerminalText::Take(bool finished) {
  std::string out;
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    if (rest[0] == '\r') {
      if (rest.size() == 1 && !finished) break;
      if (rest.size() > 1 && rest[1] == '\n') {
        rest.remove_prefix(1);
        continue;
      }
    }
    const size_t bytes = Utf8CharacterBytes(rest);
    if (bytes > 0) {
      AppendCharacter(rest.substr(0, bytes), &out);
      rest.remove_prefix(bytes);
      continue;
    }
    if (!finished && MayGrow(rest)) break;
    absl::StrAppend(&out, kReplacement);
    rest.remove_prefix(1);
  }
  pending_ = std::string(rest);
  return out;
}

std::string TerminalText::Add(absl::string_view bytes) {
  absl::StrAppend(&pending_, bytes);
  return Take(false);
}

std::string TerminalText::Finish() { return Take(true); }

std::string ForTerminal(absl::string_view text) {
  TerminalText terminal;
  std::string out = terminal.Add(text);
  absl::StrAppend(&out, terminal.Finish());
  return out;
}

}  // namespace weft::launcher
