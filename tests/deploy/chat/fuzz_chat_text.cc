// Fuzz target: an answer of any bytes leaves nothing for a terminal to obey but our own styles,
// which all end, and is the same however it is cut; a file of any bytes is a conversation or
// refused.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "deploy/launcher/chat/conversation.h"
#include "deploy/launcher/chat/input.h"
#include "deploy/launcher/chat/markdown.h"
#include "deploy/launcher/chat/terminal_text.h"

namespace weft::launcher {
namespace {

std::string Shown(absl::string_view text, size_t piece) {
  TerminalText terminal;
  Markdown markdown;
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    absl::StrAppend(&out, markdown.Add(terminal.Add(text.substr(0, piece))));
  }
  absl::StrAppend(&out, markdown.Add(terminal.Finish()));
  return absl::StrCat(out, markdown.Finish());
}

// Only "\x1b[" digits "m", line breaks and tabs are control characters.
void CheckHarmless(absl::string_view shown) {
  for (size_t i = 0; i < shown.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(shown[i]);
    if (byte == 0x1B) {
      const size_t end = shown.find_first_not_of("0123456789", i + 2);
      WEFT_CHECK(shown.substr(i + 1, 1) == "[" && end < i + 5 && shown[end] == 'm');
      i = end;
    } else {
      WEFT_CHECK((byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t');
    }
  }
}

}  // namespace
}  // namespace weft::launcher

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::launcher::Conversation;
  if (size == 0) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = weft::launcher::Shown(text, text.size() + 1);
  weft::launcher::CheckHarmless(whole);
  WEFT_CHECK(weft::launcher::Shown(text, 1 + data[0] % 16) == whole);

  Conversation conversation;
  if (conversation.FromJson(text).ok()) {
    Conversation again;
    WEFT_CHECK(again.FromJson(conversation.ToJson("m")).ok());
    WEFT_CHECK(again.ToJson("m") == conversation.ToJson("m"));
  }
  const auto input = weft::launcher::ParseInput(text);
  WEFT_CHECK(input.ok() || !input.status().message().empty());
  return 0;
}
