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
  StreamText stream(Detokenizer(tokenizer->get()), StopMatcher({}, false), {});
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

// What a stream of these ids gives: all its text, and its end.
struct Streamed {
  std::string text;
  AnswerEnd end;
};
Streamed StreamIds(absl::string_view ids, std::vector<std::string> stops, bool include_stop,
                   StreamText::Wishes wishes) {
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
  wishes.include_stop = include_stop;
  StreamText stream(Detokenizer(tokenizer->get()), StopMatcher(std::move(stops), include_stop),
                    std::move(wishes));
  StreamBegin begin;
  begin.writer = AnswerWriter(answer, std::make_shared<NoSink>());
  stream.Begin(std::move(begin));
  Probe probe;
  for (const char id : ids) {
    stream.AddToken(static_cast<unsigned char>(id), nullptr, clock, &probe);
  }
  stream.AddEnd({1, absl::OkStatus(), FinishReason::kEosToken}, clock, &probe);
  std::vector<std::shared_ptr<AnswerSink>> retired;
  stream.writer().Publish(&retired);
  REQUIRE(answer->Fetch());
  Streamed out;
  for (AnswerToken token; answer->Next(&token);) out.text += token.text;
  REQUIRE(answer->end() != nullptr);
  out.end = *answer->end();
  out.text += out.end.text;
  return out;
}

TEST_CASE("A stop token ends the answer by name, with its text only where it is wanted",
          "[router][text]") {
  StreamText::Wishes wishes;
  wishes.stop_token_ids = {'c', 'x'};
  Streamed streamed = StreamIds("abc", {}, false, wishes);
  CHECK(streamed.text == "ab");
  CHECK(streamed.end.reason == FinishReason::kStopToken);
  CHECK(streamed.end.stop_token == 'c');
  CHECK(streamed.end.output_tokens == 3);
  streamed = StreamIds("abc", {}, true, wishes);
  CHECK(streamed.text == "abc");
  CHECK(streamed.end.reason == FinishReason::kStopToken);
  // Another token was the model's own end.
  streamed = StreamIds("abd", {}, false, wishes);
  CHECK(streamed.text == "abd");
  CHECK(streamed.end.reason == FinishReason::kEosToken);
  CHECK(streamed.end.stop_token == kNoToken);
}

TEST_CASE("Stop strings are looked for behind the least length alone", "[router][text]") {
  StreamText::Wishes wishes;
  Streamed streamed = StreamIds("abab", {"ab"}, false, wishes);
  CHECK(streamed.text == "");
  CHECK(streamed.end.reason == FinishReason::kStopSequence);
  wishes.min_tokens = 2;
  streamed = StreamIds("abab", {"ab"}, false, wishes);
  CHECK(streamed.text == "ab");
  CHECK(streamed.end.output_tokens == 4);
  // One that begins within it is none.
  wishes.min_tokens = 1;
  streamed = StreamIds("abcab", {"ab"}, false, wishes);
  CHECK(streamed.text == "abc");
  wishes.min_tokens = 9;
  streamed = StreamIds("abab", {"ab"}, false, wishes);
  CHECK(streamed.text == "abab");
  CHECK(streamed.end.reason == FinishReason::kEosToken);
}

}  // namespace
}  // namespace weft::router
