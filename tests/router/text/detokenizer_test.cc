#include "router/text/detokenizer.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "text_fixture.h"

namespace weft::router {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// WEFT_TEST_SEED or a fixed one.
uint64_t Seed() {
  const char* set = std::getenv("WEFT_TEST_SEED");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : 20240917;
}

// Whether `text` is whole, valid characters (each piece of a stream must be).
bool WholeCharacters(const std::string& text) {
  Utf8Assembler assembler(false);
  std::string out;
  assembler.Push(text, &out);
  const bool nothing_held = out.size() == text.size();
  assembler.Flush(&out);
  return nothing_held && out == text;
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

TEST_CASE("A stream's pieces, joined, are the decoded whole for random ids of every model",
          "[router][text]") {
  const uint64_t seed = Seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto byte_level = LoadSmall("byte_level");
  const auto sentence_piece = LoadSmall("sentence_piece");
  const std::vector<const Tokenizer*> tokenizers = {&DemoTokenizer(), byte_level.get(),
                                                    sentence_piece.get()};
  for (const Tokenizer* tokenizer : tokenizers) {
    std::vector<TokenId> short_ids;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->TokenBytes(id).size() == 1) short_ids.push_back(id);
    }
    for (int round = 0; round < 500; ++round) {
      std::vector<TokenId> ids(random() % 80);
      for (TokenId& id : ids) {
        id = random() % 2 == 0 ? short_ids[random() % short_ids.size()]
                               : static_cast<TokenId>(random() % tokenizer->vocab_size());
      }
      CAPTURE(round);
      for (const bool skip_special : {false, true}) {
        CHECK(Stream(*tokenizer, ids, skip_special) ==
              tokenizer->Decode(ids, skip_special).value());
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
