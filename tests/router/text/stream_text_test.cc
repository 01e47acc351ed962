// What the last word of an answer says of its times and counts.

#include "router/text/stream_text.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "router/text/tokenizer.h"
#include "tests/common/temp_dir.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

class NoSink : public AnswerSink {
 public:
  Waker* OnNews() override { return nullptr; }
};

class NoTokens : public TokenTable {
 public:
  absl::string_view Bytes(TokenId) const override { return ""; }
  bool IsSpecial(TokenId) const override { return false; }
};

TEST_CASE("An answer's times are those of its stages, one after the other", "[router][text]") {
  const test::TempDir dir;
  WriteByteModel(dir);
  const auto tokenizer = Tokenizer::FromModel(dir.path());
  REQUIRE(tokenizer.ok());
  ManualClock clock(1000);
  Admission admission({}, &clock);
  const NoTokens tokens;
  auto permit = admission.Enter(Anonymous(), 0);
  REQUIRE(permit.ok());
  const auto answer =
      std::make_shared<Answer>(1, "req-1", "", *std::move(permit), &tokens, nullptr);
  StreamText stream(Detokenizer(tokenizer->get()), StopMatcher({}, false), "");
  StreamBegin begin;
  begin.writer = AnswerWriter(answer, std::make_shared<NoSink>());
  begin.head.prompt_tokens = 10;
  begin.head.cached_tokens = 4;
  begin.head.seed = 42;
  begin.times.arrival_us = 1000;
  begin.times.prepared_us = 1300;
  begin.times.planned_us = 2000;
  begin.times.first_token_us = 5000;
  stream.Begin(std::move(begin));
  Probe probe;
  stream.AddToken('a', nullptr, clock, &probe);
  clock.AdvanceUs(8000);
  absl::Status failure;
  SECTION("of one that is complete") {}
  SECTION("of one that failed") { failure = absl::InternalError("lost"); }
  stream.AddEnd({1, failure, FinishReason::kLength}, clock, &probe);
  std::vector<std::shared_ptr<AnswerSink>> retired;
  stream.writer().Publish(&retired);
  REQUIRE(answer->Fetch());
  AnswerToken token;
  REQUIRE(answer->Next(&token));
  REQUIRE(answer->end() != nullptr);
  const AnswerEnd& end = *answer->end();
  CHECK(end.status == failure);
  CHECK(end.validation_us == 300);
  CHECK(end.queue_us == 700);
  CHECK(end.inference_us == 7000);
  CHECK(end.prompt_tokens == 10);
  CHECK(end.output_tokens == 1);
  CHECK(end.seed == 42);
}

}  // namespace
}  // namespace weft::router
