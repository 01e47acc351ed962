// A text that is encoded in pieces gives the ids and offsets of the whole text, for every kind of
// tokenizer; long texts end early; what encoding needs is known before.

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/tokenizer.h"
#include "tests/support/demo_model.h"
#include "tests/support/seed.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

using Random = std::mt19937_64;

// Parts of texts: scripts, white space, digits, contractions, added tokens of all test models, and
// characters that normalizers change or libraries disagree about.
const std::vector<std::string>& Parts() {
  static const std::vector<std::string> parts = {"a",
                                                 "b",
                                                 "the",
                                                 "The",
                                                 "HELLO",
                                                 "it's",
                                                 "don't",
                                                 "I'LL",
                                                 "'s",
                                                 "'",
                                                 "''",
                                                 "'t",
                                                 "'RE",
                                                 "s",
                                                 " ",
                                                 " ",
                                                 " ",
                                                 "  ",
                                                 "   ",
                                                 "\t",
                                                 "\n",
                                                 "\n",
                                                 "\n\n",
                                                 "\r\n",
                                                 " \n",
                                                 "\n ",
                                                 "\n  \n",
                                                 "\r",
                                                 "0",
                                                 "7",
                                                 "12",
                                                 "123",
                                                 "1234",
                                                 "2024",
                                                 ".",
                                                 ",",
                                                 "!",
                                                 "?!",
                                                 "...",
                                                 "(",
                                                 ")",
                                                 "\"",
                                                 "/",
                                                 "-",
                                                 "_",
                                                 "<",
                                                 ">",
                                                 "<|",
                                                 "|>",
                                                 "#",
                                                 "\x01",
                                                 "\x04",
                                                 "\x1c",
                                                 "\x7f",
                                                 "é",
                                                 "Grüße",
                                                 "ſ",
                                                 "İ",
                                                 "ß",
                                                 "привет",
                                                 "Ω",
                                                 "שלום",
                                                 "مرحبا",
                                                 "你好",
                                                 "世界",
                                                 "，",
                                                 "。",
                                                 "！",
                                                 "日本語",
                                                 "ガ",
                                                 "한국어",
                                                 "ไทย",
                                                 "हिन्दी",
                                                 "٣٤٥",
                                                 "½",
                                                 "²",
                                                 "Ⅷ",
                                                 "①",
                                                 "e\xCC\x81",
                                                 "\xCC\x88",
                                                 "\xCC\x81",
                                                 "\xE1\xBE\xBE",
                                                 "\xE2\x84\xAA",
                                                 "\xE1\xBF\xAF",
                                                 "\xC2\xA0",
                                                 "\xE2\x80\x83",
                                                 "\xE3\x80\x80",
                                                 "\xE2\x80\x8B",
                                                 "\xE2\x80\x8D",
                                                 "\xEF\xBB\xBF",
                                                 "\xE1\xA0\x8E",
                                                 "\xC2\x85",
                                                 "\xE2\x80\xA8",
                                                 "😀",
                                                 "👩‍👩‍👧",
                                                 "\xE2\x96\x81",
                                                 "\xE2\x96\x81\xE2\x96\x81",
                                                 "<s>",
                                                 "</s>",
                                                 "<unk>",
                                                 "<|im_start|>",
                                                 "<|im_end|>",
                                                 "<|endoftext|>",
                                                 "weft é",
                                                 "<t>",
                                                 "[w]",
                                                 "<0x0A>"};
  return parts;
}

std::string RandomText(Random* random) {
  const auto pick = [&](size_t below) { return static_cast<size_t>((*random)() % below); };
  // A few parts often: runs, and neighbours that only some rules join.
  std::vector<const std::string*> few;
  for (size_t i = 0; i < 6; ++i) few.push_back(&Parts()[pick(Parts().size())]);
  std::string text;
  const size_t count = pick(120);
  for (size_t i = 0; i < count; ++i) {
    text += pick(3) == 0 ? Parts()[pick(Parts().size())] : *few[pick(few.size())];
  }
  return text;
}

struct Kind {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
};

// The demo model's vocabulary behind each pre-tokenizer that GGUF files name, the small models, and
// variants of these.
std::vector<Kind> AllKinds() {
  std::vector<Kind> kinds;
  const PatchDir dir;
  const auto named = [](absl::string_view text) {
    return std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') +
           std::string(text);
  };
  const auto add = [&kinds](std::string name, const std::string& path) {
    auto loaded = Tokenizer::FromModel(path);
    INFO(name << ": " << loaded.status().ToString());
    REQUIRE(loaded.ok());
    kinds.push_back({std::move(name), std::move(loaded).value()});
  };
  add("smollm", test::DemoModelOrSkip());
  add("refact", dir.PatchDemo("refact.gguf", named("smollm"), named("refact")));
  for (const std::string name : {"byte_level", "sentence_piece"}) {
    add(name, ModelPath(name));
  }
  for (const TokenizerVariant& variant : TokenizerVariants()) {
    dir.Write("tokenizer.json", variant.json);
    add(variant.name, dir.path());
  }
  return kinds;
}

TEST_CASE("A text encoded in pieces has the ids and offsets of the whole text", "[router][text]") {
  const uint64_t seed = test::Seed(20261120);
  INFO("seed " << seed);
  Random random(seed);
  for (const Kind& kind : AllKinds()) {
    size_t cut = 0;
    for (int round = 0; round < 400; ++round) {
      const std::string text = RandomText(&random);
      Tokenizer::EncodeOptions options;
      options.offsets = true;
      options.add_special_tokens = random() % 2 == 0;
      options.control_tokens = random() % 4 != 0;
      options.piece_bytes = SIZE_MAX;
      const auto whole = kind.tokenizer->Encode(text, options);
      options.piece_bytes = random() % 40;
      const auto pieces = kind.tokenizer->Encode(text, options);
      INFO(kind.name << ", pieces of " << options.piece_bytes << ": \"" << text << "\"");
      REQUIRE(whole.ok());
      REQUIRE(pieces.ok());
      REQUIRE(pieces->ids == whole->ids);
      REQUIRE(pieces->offsets == whole->offsets);
      cut += text.size();
    }
    CHECK(cut > 0);
  }
}

std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  if (code < 0x800) {
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  }
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
          static_cast<char>(0x80 | (code & 63))};
}

TEST_CASE("Between any two characters a cut changes no id", "[router][text][long]") {
  // Every character of the basic plane beside one of each class that the rules know.
  const std::vector<std::string> rules = {"smollm", "qwen 2", "sentence_piece"};
  for (const Kind& kind : AllKinds()) {
    if (std::find(rules.begin(), rules.end(), kind.name) == rules.end()) continue;
    for (uint32_t first = 1; first < 0x10000; first += 64) {
      std::string text;
      for (uint32_t code = first; code < std::min(first + 64, 0x10000u); ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        const std::string c = Utf8(code);
        for (const char* other : {"a", "7", "!", " ", "\n"})
          absl::StrAppend(&text, other, c, other);
      }
      Tokenizer::EncodeOptions options;
      options.piece_bytes = SIZE_MAX;
      const auto whole = kind.tokenizer->Encode(text, options);
      options.piece_bytes = 0;
      const auto pieces = kind.tokenizer->Encode(text, options);
      if (whole->ids != pieces->ids) FAIL_CHECK(kind.name << ": from U+" << std::hex << first);
    }
  }
}

TEST_CASE("Ordinary text can be cut by every known tokenizer", "[router][text]") {
  std::string prose;
  while (prose.size() < (1u << 20)) prose += "The model reads 12 words, doesn't it?\nIt does. ";
  const std::vector<std::string> not_cut = {"unknown split", "normalized added tokens",
                                            "normalized added token with a blank",
                                            "sentence piece that drops characters"};
  for (const Kind& kind : AllKinds()) {
    const bool cut =
        kind.tokenizer->EncodeBytesMax(prose) < kind.tokenizer->EncodeBytesMax(prose.size()) / 2;
    INFO(kind.name);
    CHECK(cut == (std::find(not_cut.begin(), not_cut.end(), kind.name) == not_cut.end()));
  }
}

TEST_CASE("A text with too many tokens ends early and says how many there are", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  std::string text;
  while (text.size() < (4u << 20)) text += "to be or not to be ";
  Tokenizer::EncodeOptions options;
  options.tokens_max = 300'000;  // above what the bytes alone tell
  REQUIRE(tokenizer.TokensMin(text) <= options.tokens_max);
  const auto refused = tokenizer.Encode(text, options);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(refused.status()) == "prompt");
  const auto count = Tokenizer::TooManyTokens(refused.status());
  REQUIRE(count.has_value());
  CHECK(*count > 300'000);
  CHECK(*count < 310'000);  // one piece further at most

  // The bytes tell more than the limit: not even the first piece is encoded.
  options.tokens_max = 100;
  CHECK(Tokenizer::TooManyTokens(tokenizer.Encode(text, options).status()) ==
        tokenizer.TokensMin(text));

  const auto ids = tokenizer.Encode("a b c", Tokenizer::EncodeOptions());
  options.tokens_max = ids->ids.size();
  CHECK(tokenizer.Encode("a b c", options).ok());
  options.tokens_max = ids->ids.size() - 1;
  CHECK(Tokenizer::TooManyTokens(tokenizer.Encode("a b c", options).status()) == ids->ids.size());
  CHECK(Tokenizer::TooManyTokens(tokenizer.Encode("\xFF", options).status()) == std::nullopt);
}

TEST_CASE("Encoding ends soon after nobody waits for it any more", "[router][text]") {
  std::string text;
  while (text.size() < (8u << 20) - 100) text += "the cat sat on the mat 1 2 3 ";
  std::atomic<bool> cancelled = false;
  Tokenizer::EncodeOptions options;
  options.cancelled = &cancelled;
  std::thread client([&] { cancelled = true; });
  const auto result = DemoTokenizer().Encode(text, options);
  client.join();
  CHECK(absl::IsCancelled(result.status()));
}

TEST_CASE("What encoding needs follows the longest part of a text that cannot be cut",
          "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  const std::string run(1u << 20, 'a');
  std::string words;
  while (words.size() < run.size()) words += "words ";
  CHECK(tokenizer.EncodeBytesMax(run) == tokenizer.EncodeBytesMax(run.size()));
  CHECK(tokenizer.EncodeBytesMax(words) < tokenizer.EncodeBytesMax(words.size()) / 5);
  // Added tokens are boundaries as well.
  const std::string half(run.size() / 2, 'a');
  CHECK(tokenizer.EncodeBytesMax(half + "<|im_end|>" + half) <
        tokenizer.EncodeBytesMax(run) * 2 / 3);
}

}  // namespace
}  // namespace weft::router
