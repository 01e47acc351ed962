// tokenizer.json out of the older files (make_tokenizers.py): the ids are those that transformers
// gives after its own conversion.

#include "deploy/convert/tokenizer_json.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "router/text/tokenizer.h"
#include "tests/common/temp_dir.h"

namespace weft::convert {
namespace {

namespace json = boost::json;
using test::TempDir;

std::string Model(const std::string& name) {
  return absl::StrCat(WEFT_CONVERT_TEST_DIR, "/models/", name);
}

// Whether `decoded` is what a case says under `key`: the text itself where it has no such key, and
// anything where it is null.
bool Agrees(const json::object& golden, const char* key, const std::string& text,
            const std::string& decoded) {
  const json::value* const value = golden.if_contains(key);
  if (value == nullptr) return decoded == text;
  return value->is_null() || decoded == std::string(value->as_string());
}

TEST_CASE("Converted tokenizers give the ids of transformers", "[deploy][convert]") {
  const json::value pipelines =
      json::parse(test::ReadFile(absl::StrCat(WEFT_TEXT_TEST_DIR, "/pipelines.json")));
  const json::array& texts = pipelines.at("texts").as_array();
  const json::value goldens =
      json::parse(test::ReadFile(absl::StrCat(WEFT_CONVERT_TEST_DIR, "/tokenizers.json")));
  REQUIRE(goldens.as_object().size() == 8);
  for (const auto& [name, cases] : goldens.as_object()) {
    const auto made = MakeTokenizerJson(Model(std::string(name)));
    INFO(name << ": " << made.status());
    REQUIRE(made.ok());
    const TempDir folder;
    folder.Write("tokenizer.json", *made);
    const auto tokenizer = router::Tokenizer::FromModel(folder.path());
    INFO(tokenizer.status());
    REQUIRE(tokenizer.ok());
    REQUIRE(cases.as_array().size() == texts.size());
    REQUIRE(texts.size() > 300);
    for (size_t i = 0; i < texts.size(); ++i) {
      const json::object& golden = cases.as_array()[i].as_object();
      const std::string text(texts[i].as_string());
      INFO(name << ", text: " << texts[i]);
      router::Tokenizer::EncodeOptions options;
      options.add_special_tokens = i % 8 == 0;
      const auto encoding = (*tokenizer)->Encode(text, options);
      REQUIRE(encoding.ok());
      const auto ids = json::value_to<std::vector<TokenId>>(golden.at("ids"));
      CHECK(encoding->ids == ids);
      CHECK(Agrees(golden, "decoded", text, (*tokenizer)->Decode(ids, false).value()));
      CHECK(Agrees(golden, "answer", text, (*tokenizer)->Decode(ids, true).value()));
    }
  }
}

// A copy of a model's files, to be damaged.
class Copy {
 public:
  explicit Copy(const std::string& name) {
    for (const auto& entry : std::filesystem::directory_iterator(Model(name))) {
      folder_.Write(entry.path().filename().string(), test::ReadFile(entry.path().string()));
    }
  }
  // What is said once `file` holds `bytes`.
  std::string RefusalWith(const std::string& file, const std::string& bytes) const {
    folder_.Write(file, bytes);
    const auto made = MakeTokenizerJson(folder_.path());
    return made.ok() ? "" : std::string(made.status().message());
  }

 private:
  TempDir folder_;
};

TEST_CASE("Tokenizers of other kinds are refused by name", "[deploy][convert]") {
  const auto refused = [](const char* model, const char* file, const char* bytes,
                          const char* want) {
    const std::string text = Copy(model).RefusalWith(file, bytes);
    INFO(text);
    CHECK(absl::StrContains(text, want));
  };
  refused("gpt2", "config.json", R"({"model_type": "falcon"})", "model_type \"falcon\"");
  refused("gpt2", "config.json", R"({"model_type": "starcoder2"})", "model_type starcoder2");
  refused("opt", "tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})",
          "tokenizer_class is RobertaTokenizer; converted are GPT2Tokenizer");
  refused("opt", "tokenizer_config.json", R"({"add_bos_token": 1})",
          "tokenizer_config.json: add_bos_token: expected true or false");
  refused("gpt2", "tokenizer_config.json", R"({"add_bos_token": true, "bos_token": null})",
          "add_bos_token is true, and there is no bos_token");
  refused("opt", "special_tokens_map.json", R"({"bos_token": 3})", "bos_token: expected a token");
  refused("llama", "added_tokens.json", R"({"[PAD]": 1001})",
          "token [PAD] is to have the id 1001, but by the vocabulary");
  refused("llama", "added_tokens.json", R"({"[PAD]": -1})", "id -1 is not in 0 ..");
  refused("gptj", "added_tokens.json", R"({"a b": 700, "c d": 700})",
          "id 700 is that of another token too");
  refused("qwen2", "tokenizer_config.json",
          R"({"added_tokens_decoder": {"x": "y"}, "tokenizer_class": "Qwen2Tokenizer"})",
          "added_tokens_decoder: x: id -1");
}

TEST_CASE("Damaged vocabularies and merges are refused with their line", "[deploy][convert]") {
  const Copy gpt2("gpt2");
  const auto vocab = [&gpt2](const char* text) { return gpt2.RefusalWith("vocab.json", text); };
  CHECK(absl::StrContains(vocab("{}"), "has 0 tokens"));
  CHECK(absl::StrContains(vocab(R"({"a": "b"})"), "vocab.json: a: expected an id"));
  CHECK(absl::StrContains(vocab(R"({"a": -1})"), "a: expected an id"));
  CHECK(absl::StrContains(vocab(R"({"a": 1.5})"), "a: expected an id"));
  CHECK(absl::StrContains(vocab(R"({"a": 4000000000})"), "a: expected an id"));
  CHECK(absl::StrContains(vocab(R"({"a": 0, "b": 0})"), "have the id 0"));
  CHECK(absl::StrContains(vocab("[]"), "vocab.json"));
  // Merges of what is there; the special tokens would follow a hole.
  CHECK(vocab(R"({"a": 0, "b": 1, "ab": 2})").find("merges.txt: line 2: ") != std::string::npos);
  const auto merges = [&gpt2](const char* text) { return gpt2.RefusalWith("merges.txt", text); };
  CHECK(merges("#version: 0.2\na b\r\n").empty());
  CHECK(absl::StrContains(merges("a b\na\n"), "line 2: expected two tokens"));
  CHECK(absl::StrContains(merges("a b c\n"), "line 1: expected two tokens"));
  CHECK(absl::StrContains(merges("a c\n"), "line 1: c is not in vocab.json"));
  CHECK(absl::StrContains(merges("b a\n"), "line 1: ba is not in vocab.json"));
  gpt2.RefusalWith("merges.txt", "a b\n");
  CHECK(absl::StrContains(vocab(R"({"a": 0, "b": 1, "ab": 3})"), "3 tokens have ids up to 3"));
}

}  // namespace
}  // namespace weft::convert
