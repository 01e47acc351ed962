// What a terminal would obey is shown instead, however the text is cut.

#include "deploy/launcher/chat/terminal_text.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/seed.h"
#include "tests/support/splitmix.h"

namespace weft::launcher {
namespace {

uint64_t Draw(uint64_t* state) { return test::SplitmixFinish(*state += test::kSplitmixStep); }

std::string InPieces(absl::string_view text, size_t bytes) {
  TerminalText terminal;
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(bytes, text.size()))) {
    out += terminal.Add(text.substr(0, bytes));
  }
  return out + terminal.Finish();
}

TEST_CASE("Text of all scripts and line breaks pass", "[chat]") {
  for (const char* text : {"", "plain\n\ttab\n", "Grüße, 日本語, हिन्दी, 한국어, العربية",
                           "👩‍🚀 👋🏿 e\xCC\x81"}) {
    CHECK(ForTerminal(text) == text);
  }
  CHECK(ForTerminal("a\r\nb\r\n") == "a\nb\n");
}

TEST_CASE("Escape sequences and control characters are shown", "[chat]") {
  CHECK(ForTerminal("\x1b[31mred\x1b[0m") == "␛[31mred␛[0m");
  CHECK(ForTerminal("\x1b]0;title\x07") == "␛]0;title␇");
  CHECK(ForTerminal("\x1b]52;c;aGk=\x1b\\") == "␛]52;c;aGk=␛\\");
  CHECK(ForTerminal("a\bb\rc\x7f") == "a␈b␍c␡");
  CHECK(ForTerminal(std::string("\0", 1)) == "␀");
  // C1 controls as characters, and as the bytes that some terminals take for them.
  CHECK(ForTerminal("\xC2\x9B"
                    "2J") == "<U+009B>2J");
  CHECK(ForTerminal("\x9B"
                    "2J") ==
        "\xEF\xBF\xBD"
        "2J");
  // Text that would be shown in another order than it is.
  CHECK(ForTerminal("a\xE2\x80\xAE"
                    "b\xE2\x81\xA6") == "a<U+202E>b<U+2066>");
}

TEST_CASE("What is no UTF-8 is replaced byte by byte", "[chat]") {
  const std::string r = "\xEF\xBF\xBD";
  CHECK(ForTerminal("\xFF") == r);
  CHECK(ForTerminal("\xE2\x82") == r + r);
  CHECK(ForTerminal("\xE2\x82x") == r + r + "x");
  CHECK(ForTerminal("\xC0\x9B") == r + r);          // an overlong escape
  CHECK(ForTerminal("\xED\xA0\x80") == r + r + r);  // a surrogate
  CHECK(ForTerminal("\xF4\x90\x80\x80") == r + r + r + r);
}

TEST_CASE("Any bytes in any pieces come out the same, without a control character", "[chat]") {
  uint64_t state = test::Seed(21);
  const std::string alphabet = "\x1b[m\r\n\t\x07 aé€\xE2\x80\xAE😀\xC2\x9B\xF0\x9F\xFF";
  for (int run = 0; run < 500; ++run) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += alphabet[Draw(&state) % alphabet.size()];
    }
    const std::string whole = ForTerminal(text);
    for (const size_t bytes : {1, 2, 3, 7}) {
      REQUIRE(InPieces(text, bytes) == whole);
    }
    for (const char byte : whole) {
      REQUIRE((static_cast<unsigned char>(byte) >= 0x20 || byte == '\n' || byte == '\t'));
      REQUIRE(byte != 0x7F);
    }
  }
}

}  // namespace
}  // namespace weft::launcher
