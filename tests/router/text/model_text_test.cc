#include "router/text/model_text.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "common/limits.h"
#include "tests/support/demo_model.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

void CheckRefused(const std::string& path, const std::vector<std::string>& parts) {
  const auto text = LoadModelText(path);
  REQUIRE_FALSE(text.ok());
  INFO(text.status().ToString());
  for (const std::string& part : parts) CHECK(absl::StrContains(text.status().message(), part));
}

TEST_CASE("The demo file ends answers on its eos and on the end of text", "[router][text]") {
  const auto text = LoadModelText(test::DemoModelOrSkip());
  REQUIRE(text.ok());
  CHECK(text->eos_ids == std::vector<TokenId>{0, 2});
  CHECK(text->bos == 1);
  CHECK(text->bos_token == "<|im_start|>");
  CHECK(text->eos_token == "<|im_end|>");
  CHECK(text->chat_template.size() == 368);
  CHECK(text->context_tokens == 8192);
  CHECK(text->model_name == "SmolLM2-135M-Instruct.Q4_1");
}

TEST_CASE("An end token outside the vocabulary is refused", "[router][text]") {
  const PatchDir dir;
  const std::string key = "tokenizer.ggml.eos_token_id";
  const std::string path = dir.PatchDemo("eos.gguf", key + std::string("\x04\0\0\0\x02\0\0\0", 8),
                                         key + std::string("\x04\0\0\0\xFF\xFF\0\0", 8));
  CheckRefused(path, {path, key, "65535", "49152"});
}

TEST_CASE("A directory's files are read in transformers' order of precedence", "[router][text]") {
  const PatchDir dir;
  CHECK(LoadModelText(dir.path())->eos_ids.empty());
  CHECK(LoadModelText(dir.path())->context_tokens == 0);
  CHECK(LoadModelText(dir.path())->model_name ==
        std::filesystem::path(dir.path()).filename().string());
  CHECK(LoadModelText(dir.path() + "/")->model_name ==
        std::filesystem::path(dir.path()).filename().string());

  dir.Write("config.json", R"({"eos_token_id": 7, "bos_token_id": 1})");
  CHECK(LoadModelText(dir.path())->eos_ids == std::vector<TokenId>{7});
  CHECK(LoadModelText(dir.path())->bos == 1);

  dir.Write("generation_config.json", R"({"eos_token_id": [9, 3, 9], "bos_token_id": null})");
  CHECK(LoadModelText(dir.path())->eos_ids == std::vector<TokenId>{3, 9});

  dir.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<e>"},
      "added_tokens_decoder": {"5": {"content": "<e>"}}, "chat_template": "plain"})");
  auto text = LoadModelText(dir.path());
  REQUIRE(text.ok());
  CHECK(text->eos_ids == std::vector<TokenId>{3, 5, 9});
  CHECK(text->bos_token == "<s>");
  CHECK(text->eos_token == "<e>");
  CHECK(text->chat_template == "plain");

  dir.Write("tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                  {"name": "default", "template": "d"}]})");
  CHECK(LoadModelText(dir.path())->chat_template == "d");

  dir.Write("chat_template.jinja", "file");
  CHECK(LoadModelText(dir.path())->chat_template == "file");
}

TEST_CASE("A directory tells its model's context as shards say it", "[router][text]") {
  const PatchDir dir;
  dir.Write("config.json", R"({"max_position_embeddings": 8192})");
  CHECK(LoadModelText(dir.path())->context_tokens == 8192);
  dir.Write("config.json", R"({"max_position_embeddings": 99999999999})");
  CHECK(LoadModelText(dir.path())->context_tokens == kContextTokensMax);
  dir.Write("config.json", R"({"max_position_embeddings": null})");
  CHECK(LoadModelText(dir.path())->context_tokens == 0);
}

TEST_CASE("A broken file of a model directory is refused with file and key", "[router][text]") {
  const std::vector<std::vector<std::string>> cases = {
      {"config.json", "{", "JSON"},
      {"config.json", "[1]", "object"},
      {"config.json", R"({"eos_token_id": "two"})", "eos_token_id"},
      {"config.json", R"({"eos_token_id": -1})", "eos_token_id: expected a token id from 0 to"},
      {"config.json", R"({"eos_token_id": 100, "vocab_size": 100})", "from 0 to 99 or a list of"},
      {"config.json", R"({"bos_token_id": [3, 100], "vocab_size": 100})", "bos_token_id: expected"},
      {"config.json", R"({"max_position_embeddings": "long"})", "max_position_embeddings"},
      {"config.json", R"({"max_position_embeddings": -1})", "max_position_embeddings"},
      {"generation_config.json", R"({"eos_token_id": [1, 2.5]})", "eos_token_id"},
      {"generation_config.json", R"({"eos_token_id": 99999999})", "eos_token_id"},
      {"tokenizer_config.json", R"({"bos_token": 1})", "bos_token"},
      {"tokenizer_config.json", R"({"chat_template": 1})", "chat_template"},
      {"tokenizer_config.json", R"({"chat_template": [{"name": "x", "template": "t"}]})",
       "default"},
  };
  for (const auto& c : cases) {
    const PatchDir dir;
    dir.Write(c[0], c[1]);
    INFO(c[1]);
    CheckRefused(dir.path(), {dir.path() + "/" + c[0], c[2]});
  }
}

TEST_CASE("A path that is no model is refused", "[router][text]") {
  CheckRefused("/nowhere/model", {"/nowhere/model", ".gguf"});
  CheckRefused("/nowhere/model.gguf", {"/nowhere/model.gguf"});
}

}  // namespace
}  // namespace weft::router
