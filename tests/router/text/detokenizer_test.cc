#include "router/text/detokenizer.h"

#include <catch2/catch.hpp>
#include <random>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "tests/support/seed.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Whether `text` is whole, valid characters (each piece of a stream must be).
bool WholeCharacters(const std::string& text) {
  Utf8Assembler assembler(false);
  std::string out;
  assembler.Push(text, &out);
  const bool nothing_held = out.size() == text.size();
  assembler.Flush(&out);
  return nothing_held && out == text;
}

// The UTF-8 of a code point, by the rule of its bits.
std::string Utf8(uint32_t code) {
  const auto last = [code](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), last(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), last(6), last(0)};
  return {static_cast<char>(0xF0 | code >> 18), last(12), last(6), last(0)};
}

// Whole characters, and what they may begin with.
struct Characters {
  Characters() {
    for (uint32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      const std::string whole = Utf8(code);
      all.insert(whole);
      for (size_t bytes = 1; code % 64 == 0 && bytes < whole.size(); ++bytes) {
        beginnings.insert(whole.substr(0, bytes));
      }
    }
  }
  std::unordered_set<std::string> all;
  std::unordered_set<std::string> beginnings;
};

// The text of a whole answer, found in lists of what characters there are and not by rules about
// bytes.
std::string Decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                    bool skip_special) {
  static const Characters characters;
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special || !tokenizer.IsSpecial(id))
      absl::StrAppend(&bytes, tokenizer.TokenBytes(id));
  }
  if (tokenizer.strip_leading_blank() && !bytes.empty() && bytes[0] == ' ') bytes.erase(0, 1);
  const bool each_byte = tokenizer.decoder_kind() == Tokenizer::DecoderKind::kSentencePiece;
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = 1;
    while (length < 4 && characters.beginnings.contains(bytes.substr(at, length)) &&
           at + length < bytes.size() &&
           (characters.beginnings.contains(bytes.substr(at, length + 1)) ||
            characters.all.contains(bytes.substr(at, length + 1)))) {
      ++length;
    }
    const std::string part = bytes.substr(at, length);
    at += length;
    if (characters.all.contains(part)) {
      text += part;
      continue;
    }
    for (size_t i = 0; i < (each_byte ? length : 1); ++i) text += kReplacement;
  }
  return text;
}

// Pushes all ids; checks every piece.
std::string Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  Detokenizer detokenizer(&tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.Push(id);
    CHECK(WholeCharacters(piece));
    text += piece;
  }
  return text + detokenizer.Flush();
}

std::string Assemble(const std::vector<std::string>& parts, bool each_byte = false) {
  Utf8Assembler assembler(each_byte);
  std::string out;
  for (const std::string& part : parts) assembler.Push(part, &out);
  assembler.Flush(&out);
  return out;
}

TEST_CASE("A stream's pieces are the text that Hugging Face tokenizers decodes from random ids",
          "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  size_t replaced = 0;
  for (const boost::json::value& c : Golden("demo_random").as_array()) {
    const std::vector<TokenId> ids = Ids(c.at("ids"));
    INFO("ids: " << c.at("ids"));
    CHECK(Stream(tokenizer, ids, false) == Text(c.at("decoded")));
    CHECK(Stream(tokenizer, ids, true) == Text(c.at("answer")));
    replaced += Text(c.at("decoded")).find(kReplacement) != std::string::npos;
  }
  // The cases do break characters.
  CHECK(replaced > 10);
}

TEST_CASE("A stream's pieces, joined, are the text of all its bytes for random ids of every model",
          "[router][text]") {
  const uint64_t seed = test::Seed(20240917);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto byte_level = LoadSmall("byte_level");
  const auto sentence_piece = LoadSmall("sentence_piece");
  const std::vector<const Tokenizer*> tokenizers = {&DemoTokenizer(), byte_level.get(),
                                                    sentence_piece.get()};
  for (const Tokenizer* tokenizer : tokenizers) {
    // Of one byte, and those where the rules for characters change.
    const std::string edges = "\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xE0\xED\xEF\xF0\xF4\xF5";
    std::vector<TokenId> short_ids;
    std::vector<TokenId> edge_ids;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      const absl::string_view bytes = tokenizer->TokenBytes(id);
      if (bytes.size() != 1) continue;
      short_ids.push_back(id);
      if (edges.find(bytes[0]) != std::string::npos) edge_ids.push_back(id);
    }
    REQUIRE(edge_ids.size() >= 10);
    for (int round = 0; round < 500; ++round) {
      std::vector<TokenId> ids(random() % 80);
      for (TokenId& id : ids) {
        const std::vector<TokenId>& few = random() % 2 == 0 ? short_ids : edge_ids;
        id = random() % 3 != 0 ? few[random() % few.size()]
                               : static_cast<TokenId>(random() % tokenizer->vocab_size());
      }
      CAPTURE(round);
      for (const bool skip_special : {false, true}) {
        const std::string text = Decoded(*tokenizer, ids, skip_special);
        CHECK(Stream(*tokenizer, ids, skip_special) == text);
        CHECK(tokenizer->Decode(ids, skip_special).value() == text);
      }
    }
  }
}

TEST_CASE("A character cut over tokens comes out whole with its last token", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  const std::string text = "a\xF0\x9F\xA7\x91z";  // U+1F9D1 is several tokens here
  const auto ids = tokenizer.Encode(text, false)->ids;
  REQUIRE(ids.size() > 3);
  Detokenizer detokenizer(&tokenizer);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.Push(id));
  CHECK(pieces.front() == "a");
  for (size_t i = 1; i + 2 < pieces.size(); ++i) CHECK(pieces[i].empty());
  CHECK(pieces[pieces.size() - 2] == "\xF0\x9F\xA7\x91");
  CHECK(pieces.back() == "z");
  CHECK(detokenizer.Flush().empty());
}

TEST_CASE("A character that never ends becomes one replacement character at the flush",
          "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  const auto ids = tokenizer.Encode("\xF0\x9F\xA7\x91", false)->ids;
  Detokenizer detokenizer(&tokenizer);
  CHECK(detokenizer.Push(ids[0]).empty());
  CHECK(detokenizer.Flush() == kReplacement);
  CHECK(detokenizer.Flush().empty());
}

TEST_CASE("Invalid bytes become one replacement character for each maximal invalid part",
          "[router][text]") {
  const std::string r = kReplacement;
  CHECK(Assemble({"\xE2\x82", "\xAC"}) == "\xE2\x82\xAC");
  CHECK(Assemble({"\xE2\x82", "x"}) == r + "x");
  CHECK(Assemble({"\xF0\x9F\x98", "\xE2\x82\xAC"}) == r + "\xE2\x82\xAC");
  CHECK(Assemble({"\x80\x80"}) == r + r);
  CHECK(Assemble({"\xC0\xAF"}) == r + r);                  // overlong
  CHECK(Assemble({"\xE0\x80\x80"}) == r + r + r);          // overlong
  CHECK(Assemble({"\xF0\x80\x80\x80"}) == r + r + r + r);  // overlong
  CHECK(Assemble({"\xF0\x8F\xBF\xBF"}) == r + r + r + r);  // overlong, the last such
  CHECK(Assemble({"\xF0\x90\x80\x80"}) == "\xF0\x90\x80\x80");
  CHECK(Assemble({"\xED\xA0\x80"}) == r + r + r);          // surrogate
  CHECK(Assemble({"\xF4\x90\x80\x80"}) == r + r + r + r);  // above U+10FFFF
  CHECK(Assemble({"\xF5\xFF"}) == r + r);
  CHECK(Assemble({"\xF0\x9F\x98"}, true) == r + r + r);  // byte fallback: one for each byte
}

TEST_CASE("A SentencePiece answer keeps its first blank only when it continues a text",
          "[router][text]") {
  const auto tokenizer = LoadSmall("sentence_piece");
  const auto ids = tokenizer->Encode("the cat", false)->ids;
  const auto join = [&](bool continues) {
    Detokenizer detokenizer(tokenizer.get(), true, continues);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.Push(id);
    return text + detokenizer.Flush();
  };
  CHECK(join(false) == "the cat");
  CHECK(join(true) == " the cat");
}

}  // namespace
}  // namespace weft::router
