#include "common/tokenizer_fingerprint.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"

namespace weft {
namespace {

uint64_t HashOfJson(const std::string& text) {
  test::TempDir dir;
  dir.Write("tokenizer.json", text);
  const auto found = FingerprintTokenizer(dir.path());
  REQUIRE(found.ok());
  REQUIRE(found->source == TokenizerSource::kTokenizerJson);
  return found->hash;
}

TEST_CASE("A tokenizer.json's fingerprint is FNV-1a of its bytes", "[common][tokenizer]") {
  CHECK(HashOfJson("a") == 0xAF63DC4C8601EC8Cu);
  CHECK(HashOfJson("one") != HashOfJson("{\"version\": 2}"));
}

TEST_CASE("A model without a tokenizer has no fingerprint", "[common][tokenizer]") {
  test::TempDir dir;
  const auto found = FingerprintTokenizer(dir.path());
  REQUIRE(found.ok());
  CHECK(found->source == TokenizerSource::kNone);
  CHECK(FingerprintTokenizer(dir.path() + "/config.json")->source == TokenizerSource::kNone);
  CHECK_FALSE(FingerprintTokenizer(dir.path() + "/missing.gguf").ok());
}

std::string RawStrings(const std::vector<std::string>& strings) {
  std::string values =
      test::Raw(uint32_t{test::GgufBuilder::kString}) + test::Raw(uint64_t{strings.size()});
  for (const std::string& one : strings) values += test::RawString(one);
  return values;
}

// A GGUF file with arrays of strings under tokenizer.ggml.tokens and .merges.
std::string Gguf(const std::vector<std::string>& tokens, uint32_t eos,
                 const std::vector<std::string>& merges = {}) {
  test::GgufBuilder builder;
  builder.Key("tokenizer.ggml.tokens", test::GgufBuilder::kArray, RawStrings(tokens));
  builder.Key("tokenizer.ggml.merges", test::GgufBuilder::kArray, RawStrings(merges));
  builder.Uint("tokenizer.ggml.eos_token_id", eos);
  builder.String("tokenizer.chat_template", "{{ messages }}");
  return builder.Build();
}

TEST_CASE("A GGUF file's fingerprint follows its tokens, merges and special ids",
          "[common][tokenizer]") {
  test::TempDir dir;
  const auto hash = [&](const std::vector<std::string>& tokens, uint32_t eos,
                        const std::vector<std::string>& merges = {}) {
    const auto found = FingerprintTokenizer(dir.Write("m.gguf", Gguf(tokens, eos, merges)));
    REQUIRE(found.ok());
    REQUIRE(found->source == TokenizerSource::kGguf);
    return found->hash;
  };
  const uint64_t first = hash({"a", "bc"}, 1);
  CHECK(hash({"a", "bc"}, 1) == first);
  CHECK(hash({"ab", "c"}, 1) != first);
  CHECK(hash({"a", "bc"}, 0) != first);
  CHECK(hash({"a", "bc"}, 1, {"b c"}) != first);
  CHECK(hash({"a", "bc"}, 1, {"b c"}) != hash({"a", "bc"}, 1, {"c b"}));
}

}  // namespace
}  // namespace weft
