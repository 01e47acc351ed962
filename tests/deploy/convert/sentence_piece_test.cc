// tokenizer.model: what of it is read, and what is refused by name.

#include "deploy/convert/sentence_piece.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/convert/bpe_vocab.h"
#include "tests/common/temp_dir.h"

namespace weft::convert {
namespace {

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string Number(int field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Text(int field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Piece(const std::string& text, float score, uint64_t type = 1) {
  std::string number(reinterpret_cast<const char*>(&score), sizeof(score));
  return Text(1, Text(1, text) + Varint(2 << 3 | 5) + number + Number(3, type));
}
const std::string kBpe = Text(2, Number(3, 2));
const std::string kIdentity = Text(3, Text(1, "identity") + Number(4, 0));

absl::StatusOr<SentencePieceModel> Parse(const std::string& bytes) {
  return ParseSentencePiece({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}
std::string Refusal(const std::string& bytes) {
  return std::string(Parse(bytes).status().message());
}

TEST_CASE("Pieces and settings of a SentencePiece model", "[deploy][convert]") {
  const auto model =
      Parse(Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("a", -1) + Piece("b", -2.5) +
            Text(2, Number(3, 2) + Text(45, "<other>") + Number(4, 7)) +
            Text(3, Number(3, 0) + Number(4, 0)) + Text(9, "later"));
  INFO(model.status());
  REQUIRE(model.ok());
  REQUIRE(model->pieces.size() == 4);
  CHECK(model->pieces[0].type == SentencePiece::kUnknown);
  CHECK(model->pieces[1].type == SentencePiece::kControl);
  CHECK(model->pieces[3].text == "b");
  CHECK(model->pieces[3].score == -2.5f);
  CHECK(model->unknown_piece == "<other>");
  CHECK(!model->add_dummy_prefix);
  CHECK(Parse(Piece("a", 0) + kBpe + kIdentity)->add_dummy_prefix);
}

TEST_CASE("Models that change a text in other ways are refused by name", "[deploy][convert]") {
  const std::string piece = Piece("a", 0);
  CHECK(absl::StrContains(Refusal(piece + Text(2, "") + kIdentity), "model_type is UNIGRAM"));
  CHECK(absl::StrContains(Refusal(piece + Text(2, Number(3, 4)) + kIdentity), "model_type is 4"));
  CHECK(absl::StrContains(Refusal(piece + Text(2, Number(3, 2) + Number(24, 1)) + kIdentity),
                          "treat_whitespace_as_suffix"));
  CHECK(absl::StrContains(Refusal(piece + kBpe + Text(3, "")), "remove_extra_whitespaces"));
  CHECK(absl::StrContains(Refusal(piece + kBpe + Text(3, Number(4, 0) + Text(2, "map"))),
                          "precompiled_charsmap"));
  CHECK(absl::StrContains(Refusal(piece + kBpe + Text(3, Number(4, 0) + Number(5, 0))),
                          "escape_whitespaces"));
}

TEST_CASE("A damaged SentencePiece model is refused", "[deploy][convert]") {
  const std::string rest = kBpe + kIdentity;
  CHECK(absl::StrContains(Refusal(""), "no SentencePiece model"));
  CHECK(absl::StrContains(Refusal("IQ== 0\nIg== 1\n"), "tiktoken"));
  CHECK(absl::StrContains(Refusal(Piece("a", 0) + Piece("b", 0) + Piece("a", 0) + rest),
                          "piece 2, a, is there twice"));
  CHECK(absl::StrContains(Refusal(Piece("", 0) + rest), "piece 0 has 0 bytes"));
  CHECK(absl::StrContains(Refusal(Piece(std::string(513, 'x'), 0) + rest), "has 513 bytes"));
  CHECK(absl::StrContains(Refusal(Piece("\xff", 0) + rest), "not UTF-8"));
  CHECK(absl::StrContains(Refusal(Piece("a", std::numeric_limits<float>::quiet_NaN()) + rest),
                          "no number"));
  CHECK(!Parse(Piece("a", 0, 9) + rest).ok());
  const std::string file =
      test::ReadFile(absl::StrCat(WEFT_CONVERT_TEST_DIR, "/models/llama/tokenizer.model"));
  REQUIRE(Parse(file).ok());
  // The last field, of settings for tests of its own, may be missing.
  const size_t needed = file.size() - 2;
  for (size_t size = 0; size < needed; size += 7) {
    INFO(size);
    CHECK(!Parse(file.substr(0, size)).ok());
  }
}

TEST_CASE("Merges are in the order of scores, then of lengths, then of ids", "[deploy][convert]") {
  const std::vector<SentencePiece> pieces = {{"a", 0},       {"b", 0},     {"ab", -1}, {"ba", -1},
                                             {"aba", -0.5f}, {"abab", -2}, {"aa", -3}};
  const BpeVocab vocab = VocabOf(pieces);
  using Merges = std::vector<std::pair<std::string, std::string>>;
  CHECK(vocab.merges == Merges{{"ab", "a"},
                               {"a", "ba"},
                               {"a", "b"},
                               {"b", "a"},
                               {"aba", "b"},
                               {"ab", "ab"},
                               {"a", "a"}});
}

}  // namespace
}  // namespace weft::convert
