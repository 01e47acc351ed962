// A grammar engine whose slow part is made later: whoever needs it first makes it, all others wait,
// and what is wrong with it is each request's error.

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "common/thread.h"
#include "grammar_fixture.h"
#include "router/errors.h"

namespace weft::router {
namespace {

TEST_CASE("Grammars can be compiled before anybody has prepared them", "[grammar]") {
  const std::unique_ptr<Tokenizer> tokenizer = PlainTokens();
  const TokenId eos = tokenizer->vocab_size() - 1;
  const std::unique_ptr<GrammarEngine> engine = GrammarEngine::CreateLater(*tokenizer, {eos});
  std::vector<absl::Status> compiled(4);
  std::vector<Thread> threads;
  for (absl::Status& status : compiled) {
    threads.emplace_back("compiles", [&engine, &status] {
      status = engine->Compile(TextSpec(GrammarSpec::Kind::kRegex, "ab+"), "regex").status();
    });
  }
  for (Thread& thread : threads) thread.Join();
  for (const absl::Status& status : compiled) CHECK(status.ok());
  CHECK(engine->Prepare().ok());
  const auto grammar = engine->Compile(TextSpec(GrammarSpec::Kind::kRegex, "ab+"), "regex");
  auto matcher = *engine->NewMatcher(*grammar);
  CHECK(*matcher->Consume('a'));
  CHECK_FALSE(*matcher->Consume('a'));
}

TEST_CASE("An engine that cannot be prepared refuses each grammar by its field", "[grammar]") {
  const std::unique_ptr<Tokenizer> tokenizer = PlainTokens();
  const std::unique_ptr<GrammarEngine> engine = GrammarEngine::CreateLater(*tokenizer, {});
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused =
        engine->Compile(TextSpec(GrammarSpec::Kind::kRegex, "ab+"), "regex").status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(ErrorField(refused) == "regex");
    CHECK(absl::StrContains(refused.message(), "ids of tokens that end an answer"));
  }
  CHECK(engine->Prepare() == GrammarEngine::Create(*tokenizer, {}).status());
}

}  // namespace
}  // namespace weft::router
