// Tokenizers of the published kinds, trained small: ids and text are those of the Hugging Face
// tokenizers package (make_pipelines.py), also where a text is cut into many pieces.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "router/text/tokenizer.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

using test::GgufBuilder;

const boost::json::object& Pipelines() {
  static const auto* const goldens =
      new boost::json::value(boost::json::parse(test::ReadFile(ModelPath("../pipelines.json"))));
  return goldens->as_object();
}

// What a case says under `key`; where it says nothing that is the text itself.
std::string Expected(const boost::json::object& golden, const char* key, const std::string& text) {
  const boost::json::value* const value = golden.if_contains(key);
  return value == nullptr ? text : Text(*value);
}

TEST_CASE("Tokenizers of every published kind give the ids of their own library",
          "[router][text]") {
  const boost::json::array& texts = Pipelines().at("texts").as_array();
  REQUIRE(texts.size() > 300);
  for (const auto& entry : Pipelines()) {
    if (entry.key() == "texts") continue;
    const std::string name(entry.key());
    const bool is_gguf = absl::EndsWith(name, "_gguf");
    const auto loaded = Tokenizer::FromModel(ModelPath(is_gguf ? name + ".gguf" : name));
    INFO(name << ": " << loaded.status());
    REQUIRE(loaded.ok());
    const auto& tokenizer = *loaded;
    const boost::json::array& cases = entry.value().as_array();
    REQUIRE(cases.size() == texts.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      const boost::json::object& golden = cases[i].as_object();
      const std::string text = Text(texts[i]);
      INFO(name << ", text: " << texts[i]);
      for (const size_t piece_bytes : {Tokenizer::kPieceBytes, size_t{4}}) {
        Tokenizer::EncodeOptions options;
        options.add_special_tokens = i % 8 == 0;
        options.piece_bytes = piece_bytes;
        const auto encoding = tokenizer->Encode(text, options);
        REQUIRE(encoding.ok());
        CHECK(encoding->ids == Ids(golden.at("ids")));
      }
      const std::vector<TokenId> ids = Ids(golden.at("ids"));
      CHECK(tokenizer->Decode(ids, false).value() == Expected(golden, "decoded", text));
      CHECK(tokenizer->Decode(ids, true).value() == Expected(golden, "answer", text));
    }
  }
}

std::string ArrayOf(uint32_t type, uint64_t count, const std::string& elements) {
  return test::Raw(type) + test::Raw(count) + elements;
}

// The least that a SentencePiece vocabulary needs: <unk>, "a" and `piece`.
GgufBuilder SmallPieces(const std::string& piece, uint64_t scores = 3) {
  GgufBuilder builder;
  const std::string types = test::Raw(int32_t{2}) + test::Raw(int32_t{1}) + test::Raw(int32_t{1});
  builder.String("tokenizer.ggml.model", "llama")
      .Key("tokenizer.ggml.tokens", GgufBuilder::kArray,
           ArrayOf(GgufBuilder::kString, 3,
                   test::RawString("<unk>") + test::RawString("a") + test::RawString(piece)))
      .Key("tokenizer.ggml.token_type", GgufBuilder::kArray, ArrayOf(GgufBuilder::kI32, 3, types))
      .Key("tokenizer.ggml.scores", GgufBuilder::kArray,
           ArrayOf(GgufBuilder::kF32, scores, std::string(4 * scores, '\0')))
      .Key("tokenizer.ggml.add_bos_token", GgufBuilder::kBool, std::string(1, '\0'));
  return builder;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const GgufBuilder& builder) {
  const test::TempDir dir;
  return Tokenizer::FromModel(dir.Write("m.gguf", builder.Build()));
}

TEST_CASE("SentencePiece vocabularies of GGUF files are refused by key", "[router][text]") {
  const auto refused = [](const GgufBuilder& builder, const char* want) {
    const absl::Status status = Load(builder).status();
    INFO(status);
    CHECK_FALSE(status.ok());
    CHECK(absl::StrContains(status.message(), "/m.gguf: "));
    CHECK(absl::StrContains(status.message(), want));
  };
  const auto tokenizer = Load(SmallPieces("aa"));
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->Encode("aaa", false)->ids == std::vector<TokenId>{0, 2, 1});
  // A blank goes first unless the file says otherwise: here it has no piece.
  const auto plain = Load(SmallPieces("aa").Key("tokenizer.ggml.add_space_prefix",
                                                GgufBuilder::kBool, std::string(1, '\0')));
  CHECK((*plain)->Encode("aaa", false)->ids == std::vector<TokenId>{2, 1});
  refused(SmallPieces("aa", 2), "tokenizer.ggml.scores has 2 entries; expected one for each of 3");
  refused(SmallPieces("a"), "tokenizer.ggml.tokens has \"a\" twice, as 1 and 2");
  refused(SmallPieces(std::string(1025, 'a')), "one has 1025 bytes; at most 1024 are taken");
  CHECK(Load(SmallPieces(std::string(1024, 'a'))).ok());
  refused(SmallPieces("aa").Key("tokenizer.ggml.remove_extra_whitespaces", GgufBuilder::kBool,
                                std::string(1, '\1')),
          "tokenizer.ggml.remove_extra_whitespaces: true is not supported; expected false");
}

}  // namespace
}  // namespace weft::router
