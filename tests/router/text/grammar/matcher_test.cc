#include "router/text/grammar/matcher.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "grammar_fixture.h"

namespace weft::router {
namespace {

using Kind = GrammarSpec::Kind;

struct Plain {
  explicit Plain(const std::vector<std::string>& more = {}) : tokenizer(PlainTokens(more)) {
    eos = tokenizer->vocab_size() - 1;
    engine = *GrammarEngine::Create(*tokenizer, {eos});
  }

  std::unique_ptr<GrammarMatcher> Matcher(const GrammarSpec& spec,
                                          const GrammarEngine::Mark& mark = {}) {
    auto grammar = engine->Compile(spec, "grammar");
    INFO(grammar.status().ToString());
    REQUIRE(grammar.ok());
    return *engine->NewMatcher(*grammar, mark);
  }

  void Feed(GrammarMatcher& matcher, absl::string_view text) {
    for (const char c : text) {
      INFO(text << " at " << c);
      REQUIRE(*matcher.Consume(static_cast<uint8_t>(c)));
    }
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<GrammarEngine> engine;
  TokenId eos = 0;
};

const GrammarSpec kObject =
    SchemaSpec(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},)"
               R"("required":["a"],"additionalProperties":false})");

TEST_CASE("A mask and Consume agree, and the end is known", "[grammar]") {
  Plain plain;
  auto matcher = plain.Matcher(kObject);
  auto mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, '{'));
  CHECK_FALSE(Allows(mask, ' '));
  CHECK_FALSE(Allows(mask, plain.eos));
  CHECK_FALSE(*matcher->Consume('}'));
  CHECK_FALSE(*matcher->Consume(plain.eos));
  CHECK_FALSE(*matcher->Consume(100'000));
  plain.Feed(*matcher, R"({"a": 1)");
  CHECK(matcher->size() == 7);
  CHECK_FALSE(*matcher->MayStop());
  plain.Feed(*matcher, "}");
  CHECK(*matcher->MayStop());
  mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, plain.eos));
  for (TokenId id = 0; id < plain.eos; ++id) {
    INFO(id);
    CHECK_FALSE(Allows(mask, id));
  }
  CHECK(*matcher->MustStop());
  CHECK(*matcher->Consume(plain.eos));
  CHECK_FALSE(*matcher->Consume(plain.eos));
}

TEST_CASE("A rollback leads to where the sequence was", "[grammar]") {
  Plain plain;
  const std::string text = R"({"a": 12, "b": true})";
  auto matcher = plain.Matcher(kObject);
  plain.Feed(*matcher, text);
  REQUIRE(*matcher->Consume(plain.eos));
  CHECK(matcher->Rollback(100).code() == absl::StatusCode::kInvalidArgument);
  for (size_t kept = 0; kept <= text.size(); ++kept) {
    INFO(kept);
    auto fresh = plain.Matcher(kObject);
    plain.Feed(*fresh, absl::string_view(text).substr(0, kept));
    auto back = *matcher->Fork();
    REQUIRE(back->Rollback(text.size() + 1 - kept).ok());
    CHECK(back->size() == kept);
    CHECK(MaskOf(*back, *plain.tokenizer) == MaskOf(*fresh, *plain.tokenizer));
    plain.Feed(*back, absl::string_view(text).substr(kept));
    CHECK(*back->MustStop());
  }
}

TEST_CASE("Forks go their own ways", "[grammar]") {
  Plain plain;
  auto matcher = plain.Matcher(kObject);
  plain.Feed(*matcher, R"({"a":)");
  auto fork = *matcher->Fork();
  plain.Feed(*fork, "7}");
  CHECK(*fork->MustStop());
  CHECK_FALSE(*matcher->MayStop());
  plain.Feed(*matcher, "-3}");
  CHECK(matcher->size() == 8);
  CHECK(fork->size() == 7);
}

TEST_CASE("All ids of the same bytes are allowed, and none without bytes", "[grammar]") {
  Plain plain({"true", "tr", "true", "", std::string(1500, 'x'), "{", "\xff"});
  auto matcher = plain.Matcher(TextSpec(Kind::kRegex, "true|x*"));
  const auto mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, 256));
  CHECK(Allows(mask, 257));
  CHECK(Allows(mask, 258));
  CHECK_FALSE(Allows(mask, 259));
  CHECK_FALSE(Allows(mask, 260));
  CHECK_FALSE(Allows(mask, 261));
  CHECK_FALSE(Allows(mask, 262));
  CHECK(Allows(mask, plain.eos));
  CHECK_FALSE(Allows(mask, plain.eos - 1));
  CHECK(*matcher->Consume(258));
}

TEST_CASE("Characters may be cut anywhere, and only whole ones end a text", "[grammar]") {
  Plain plain;
  auto matcher = plain.Matcher(TextSpec(Kind::kRegex, "[\u00e9\u4f60]+"));
  REQUIRE(*matcher->Consume(0xE4));
  CHECK_FALSE(*matcher->MayStop());
  CHECK_FALSE(*matcher->Consume(0xE4));
  REQUIRE(*matcher->Consume(0xBD));
  CHECK_FALSE(*matcher->Consume(0xA1));
  REQUIRE(*matcher->Consume(0xA0));
  CHECK(*matcher->MayStop());
  CHECK_FALSE(*matcher->MustStop());
}

TEST_CASE("What is forced is told, and nothing is forced", "[grammar]") {
  Plain plain({"\"al"});
  auto matcher = plain.Matcher(SchemaSpec(R"({"enum":["alpha","alps"]})"));
  CHECK(*matcher->ForcedText() == "\"alp");
  const auto mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, '"'));
  CHECK(Allows(mask, 256));
  CHECK(matcher->size() == 0);
}

TEST_CASE("A sequence is consumed again within milliseconds", "[grammar]") {
  const Tokenizer& tokenizer = DemoTokens();
  auto grammar = *DemoGrammars().Compile(
      SchemaSpec(R"({"type":"array","items":{"type":"object","properties":{)"
                 R"("name":{"type":"string"},"n":{"type":"integer"}},"required":["name","n"]}})"),
      "grammar");
  std::string text = "[";
  std::vector<TokenId> ids;
  for (int i = 0; ids.size() < 2000; ++i) {
    if (i > 0) text += ", ";
    text +=
        "{\"name\": \"entry number " + std::to_string(i) + "\", \"n\": " + std::to_string(i) + "}";
    if (i % 50 == 0) ids = Canonical(tokenizer, text);
  }
  ids.resize(2000);
  for (int round = 0; round < 2; ++round) {
    auto matcher = *DemoGrammars().NewMatcher(grammar);
    const auto start = std::chrono::steady_clock::now();
    REQUIRE_FALSE(Accepts(*matcher, tokenizer, ids, /*with_masks=*/false));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    std::printf("2,000 tokens consumed again in %.1f ms\n", took.count());
    CHECK(matcher->size() == 2000);
    CHECK(took.count() < 500);
  }
}

TEST_CASE("Matchers of one grammar run on many threads", "[grammar]") {
  const Tokenizer& tokenizer = DemoTokens();
  auto grammar = *DemoGrammars().Compile(SchemaSpec(Schemas()[0].schema), "grammar");
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        for (const std::string& instance : Schemas()[0].instances) {
          auto matcher = *DemoGrammars().NewMatcher(grammar);
          good[t] += Accepts(*matcher, tokenizer, Canonical(tokenizer, instance)) ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : good) CHECK(count == 100);
}

TEST_CASE("A cache keeps what fits, the last used longest", "[grammar]") {
  const auto tokenizer = PlainTokens();
  GrammarOptions options;
  options.cache_bytes = 600u << 10;
  auto engine = *GrammarEngine::Create(*tokenizer, {tokenizer->vocab_size() - 1}, options);
  const auto number = [](int i) { return TextSpec(Kind::kRegex, "a{" + std::to_string(i) + "}"); };
  for (int i = 1; i < 30; ++i) {
    REQUIRE(engine->Compile(number(i), "grammar").ok());
    REQUIRE(engine->Compile(number(1), "grammar").ok());
  }
  const auto stats = engine->ReadCache();
  CHECK(stats.hits == 29);
  CHECK(stats.misses == 29);
  CHECK(stats.bytes <= options.cache_bytes);
  CHECK(stats.entries > 1);
  CHECK(stats.entries < 29);
  // What left the cache lives as long as its matchers.
  auto matcher = *engine->NewMatcher(*engine->Compile(number(2), "grammar"));
  CHECK(*matcher->Consume('a'));
}

TEST_CASE("A grammar begins behind its mark of text, in whatever tokens it comes", "[grammar]") {
  Plain plain({"</think>", "</th", ">{", ">\n\n", "\n\n", "k></think>"});
  const auto make = [&] { return plain.Matcher(kObject, {"</think>", {}}); };
  auto matcher = make();
  auto mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, 'x'));
  CHECK(Allows(mask, plain.eos - 1));
  CHECK_FALSE(Allows(mask, plain.eos));
  CHECK_FALSE(*matcher->Consume(plain.eos));
  plain.Feed(*matcher, "I think < that </thi</thin");
  // "k>" completes it; ">{" behind "k" would take the grammar's first byte with it.
  plain.Feed(*matcher, "k");
  mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, '>'));
  CHECK_FALSE(Allows(mask, 258));
  CHECK_FALSE(*matcher->Consume(258));
  CHECK(Allows(mask, 259));
  CHECK_FALSE(*matcher->MayStop());
  REQUIRE(*matcher->Consume(259));
  CHECK(Allows(MaskOf(*matcher, *plain.tokenizer), '{'));
  CHECK_FALSE(Allows(MaskOf(*matcher, *plain.tokenizer), 'x'));
  // One token of blanks may stand between.
  REQUIRE(*matcher->Consume(260));
  CHECK_FALSE(*matcher->Consume(260));
  plain.Feed(*matcher, R"({"a":1})");
  CHECK(*matcher->MustStop());
  const size_t size = matcher->size();
  for (size_t back = 1; back <= size; ++back) {
    INFO(back);
    auto other = *matcher->Fork();
    REQUIRE(other->Rollback(back).ok());
    CHECK(other->size() == size - back);
    CHECK_FALSE(*other->MayStop());
  }
  for (const TokenId id : {TokenId{256}, TokenId{261}}) {
    auto other = make();
    REQUIRE(*other->Consume(id));
    plain.Feed(*other, R"({"a":1})");
    CHECK(*other->MustStop());
  }
}

TEST_CASE("A mark that opens counts when the answer begins with it alone", "[grammar]") {
  Plain plain({"<think>", "</think>", "\n\n"});
  const TokenId open = 256;
  const auto make = [&] { return plain.Matcher(kObject, {"</think>", {}, open}); };
  auto at_once = make();
  auto mask = MaskOf(*at_once, *plain.tokenizer);
  CHECK(Allows(mask, open));
  CHECK(Allows(mask, '{'));
  CHECK_FALSE(Allows(mask, 'x'));
  // Nothing has been opened, so that blanks are the grammar's.
  CHECK_FALSE(Allows(mask, 258));
  plain.Feed(*at_once, R"({"a":)");
  CHECK_FALSE(Allows(MaskOf(*at_once, *plain.tokenizer), open));
  CHECK_FALSE(*at_once->Consume(open));
  REQUIRE(at_once->Rollback(5).ok());
  CHECK(Allows(MaskOf(*at_once, *plain.tokenizer), open));

  auto matcher = make();
  REQUIRE(*matcher->Consume(open));
  mask = MaskOf(*matcher, *plain.tokenizer);
  CHECK(Allows(mask, 'x'));
  CHECK_FALSE(Allows(mask, plain.eos));
  plain.Feed(*matcher, "So.");
  REQUIRE(*matcher->Consume(257));
  REQUIRE(*matcher->Consume(258));
  CHECK_FALSE(Allows(MaskOf(*matcher, *plain.tokenizer), 'x'));
  plain.Feed(*matcher, R"({"a":1})");
  CHECK(*matcher->MustStop());
  const size_t size = matcher->size();
  for (size_t back = 1; back <= size; ++back) {
    INFO(back);
    auto other = *matcher->Fork();
    REQUIRE(other->Rollback(back).ok());
    CHECK(other->size() == size - back);
    CHECK_FALSE(*other->MayStop());
    // Within the thought, in front of it and behind it: what comes next is as on the way there.
    mask = MaskOf(*other, *plain.tokenizer);
    CHECK(Allows(mask, open) == (back == size || (size - back >= 1 && size - back <= 4)));
  }
}

TEST_CASE("A grammar begins behind its mark of tokens", "[grammar]") {
  Plain plain;
  const TokenId tool = plain.eos - 1;
  auto matcher = plain.Matcher(kObject, {"", {tool, 'a', tool, 'b'}});
  for (const TokenId id : {TokenId{'{'}, tool, TokenId{'a'}, tool, TokenId{'a'}, tool}) {
    REQUIRE(*matcher->Consume(id));
    CHECK(Allows(MaskOf(*matcher, *plain.tokenizer), 'z'));
  }
  REQUIRE(*matcher->Consume('b'));
  CHECK_FALSE(Allows(MaskOf(*matcher, *plain.tokenizer), 'z'));
  plain.Feed(*matcher, R"({"a":1})");
  CHECK(*matcher->MustStop());
  REQUIRE(matcher->Rollback(9).ok());
  CHECK(Allows(MaskOf(*matcher, *plain.tokenizer), 'z'));
  CHECK(*matcher->Consume('b'));
  CHECK(Allows(MaskOf(*matcher, *plain.tokenizer), 'z'));
}

TEST_CASE("An engine needs a token that ends an answer", "[grammar]") {
  const auto tokenizer = PlainTokens();
  CHECK_FALSE(GrammarEngine::Create(*tokenizer, {}).ok());
  CHECK_FALSE(GrammarEngine::Create(*tokenizer, {100'000}).ok());
}

}  // namespace
}  // namespace weft::router
