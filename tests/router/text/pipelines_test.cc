// Tokenizers of the published kinds, trained small: ids and text are those of the Hugging Face
// tokenizers package (make_pipelines.py), also where a text is cut into many pieces.

#include <catch2/catch.hpp>

#include "boost/json.hpp"
#include "router/text/tokenizer.h"
#include "tests/common/temp_dir.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

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
    const auto tokenizer = LoadSmall(name);
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

}  // namespace
}  // namespace weft::router
