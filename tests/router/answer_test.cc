// The log between an answer's writer and its reader.

#include "router/answer.h"

#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/thread.h"
#include "router/prompt_scores.h"
#include "tests/router/anonymous.h"

namespace weft::router {
namespace {

class LetterTokens : public TokenTable {
 public:
  LetterTokens() {
    for (int i = 0; i < 256; ++i) texts_.push_back(absl::StrCat("<", i, ">"));
  }
  absl::string_view Bytes(TokenId id) const override { return texts_[id % 256]; }
  bool IsSpecial(TokenId id) const override { return id == 2; }

 private:
  std::vector<std::string> texts_;
};

class CountingSink : public AnswerSink {
 public:
  Waker* OnNews() override {
    ++news;
    return nullptr;
  }
  int news = 0;
};

class CountingRegistry : public AnswerRegistry {
 public:
  void OnAnswerGone(const Answer& answer) override { gone.push_back(answer.id()); }
  void OnCancelled(SequenceId sequence) override { cancelled.push_back(sequence); }
  std::vector<std::string> gone;
  std::vector<SequenceId> cancelled;
};

struct Fixture {
  Fixture() {
    auto permit = admission.Enter(Anonymous(), 0);
    answer = std::make_shared<Answer>(7, "req-1", "", *std::move(permit), &tokens, &registry);
    writer = AnswerWriter(answer, sink);
  }

  ManualClock clock{1};
  Admission admission{{}, &clock};
  LetterTokens tokens;
  CountingRegistry registry;
  std::shared_ptr<CountingSink> sink = std::make_shared<CountingSink>();
  std::shared_ptr<Answer> answer;
  AnswerWriter writer;
  std::vector<std::shared_ptr<AnswerSink>> retired;
};

TEST_CASE("What is written is read, in order and once", "[router][answer]") {
  Fixture f;
  f.writer.Head({3, 1, 42, "", {}});
  f.writer.Token(5, "Hel");
  f.writer.Token(2, "", -0.5f, {{{9, -0.1f}, {2, -0.5f}}});
  CHECK(!f.answer->Fetch());  // nothing is seen before it is published
  f.writer.Publish(&f.retired);
  f.writer.Token(6, std::string(100'000, 'x'));
  AnswerEnd end;
  end.reason = FinishReason::kStopSequence;
  end.text = "tail";
  f.writer.End(end);
  f.writer.Publish(&f.retired);
  CHECK(f.sink->news == 2);
  CHECK(f.admission.bytes() > 100'000);

  REQUIRE(f.answer->Fetch());
  REQUIRE(f.answer->head() != nullptr);
  CHECK(f.answer->head()->seed == 42);
  AnswerToken token;
  REQUIRE(f.answer->Next(&token));
  CHECK((token.id == 5 && token.text == "Hel" && token.bytes == "<5>" && !token.has_logprob));
  REQUIRE(f.answer->Next(&token));
  CHECK((token.id == 2 && token.special && token.has_logprob && token.logprob == -0.5f));
  REQUIRE(token.top.size() == 2);
  CHECK((token.top[0].id == 9 && token.top[0].logprob == -0.1f && token.top[0].bytes == "<9>"));
  CHECK(f.answer->end() == nullptr);  // not before the last token
  REQUIRE(f.answer->Next(&token));
  CHECK((token.text.size() == 100'000 && token.top.empty()));
  CHECK(!f.answer->Next(&token));
  REQUIRE(f.answer->end() != nullptr);
  CHECK(f.answer->end()->text == "tail");
  CHECK(f.admission.bytes() == 0);
}

TEST_CASE("The permit comes back when writer and reader have both let go", "[router][answer]") {
  const bool reader_first = GENERATE(false, true);
  Fixture f;
  f.writer.Token(1, "abc");
  f.writer.Publish(&f.retired);
  CHECK(f.admission.bytes() > 0);
  if (reader_first) {
    f.answer->Close();
    CHECK(f.admission.bytes() == 0);
    f.answer.reset();
    CHECK(f.admission.waiting() == 1);
    f.writer.Token(1, "not kept for anybody");
    f.writer.Publish(&f.retired);
    CHECK(f.admission.bytes() == 0);
    f.writer.Fail(absl::CancelledError("gone"));
  } else {
    f.writer.Fail(absl::CancelledError("gone"));
    CHECK(f.admission.waiting() == 0);
    CHECK(f.admission.written() == 1);
    CHECK(f.admission.bytes() > 0);
    CHECK(f.registry.gone.empty());
    f.answer.reset();
  }
  CHECK(f.admission.WaitIdle(absl::ZeroDuration()));
  CHECK(f.admission.bytes() == 0);
  CHECK(f.registry.gone == std::vector<std::string>{"req-1"});
}

TEST_CASE("A writer that goes away without an end ends its answer with an error",
          "[router][answer]") {
  Fixture f;
  { AnswerWriter dropped = std::move(f.writer); }
  REQUIRE(f.answer->Fetch());
  REQUIRE(f.answer->end() != nullptr);
  CHECK(absl::IsInternal(f.answer->end()->status));
  CHECK(f.sink->news == 1);
}

TEST_CASE("The first cause of a cancel counts and is told once", "[router][answer]") {
  Fixture f;
  CHECK(f.answer->Cancel(CancelReason::kDeadline));
  CHECK(!f.answer->Cancel(CancelReason::kClientGone));
  CHECK(f.answer->cancelled() == CancelReason::kDeadline);
  CHECK(f.registry.cancelled == std::vector<SequenceId>{7});
}

TEST_CASE("Writer and reader may run at the same time", "[router][answer]") {
  constexpr uint32_t kTokens = 20'000;
  const uint64_t seed = 20261121;
  INFO("seed " << seed);
  Fixture f;
  Thread writer("writer", [&] {
    std::mt19937_64 random(seed);
    std::vector<std::shared_ptr<AnswerSink>> retired;
    for (uint32_t i = 0; i < kTokens; ++i) {
      f.writer.Token(i, absl::StrCat(i));
      if (random() % 4 == 0) f.writer.Publish(&retired);
    }
    f.writer.End({});
    f.writer.Publish(&retired);
  });
  AnswerToken token;
  uint32_t read = 0;
  bool good = true;
  while (f.answer->end() == nullptr) {
    if (!f.answer->Fetch()) std::this_thread::yield();
    while (f.answer->Next(&token)) good &= token.id == read && token.text == absl::StrCat(read++);
  }
  writer.Join();
  CHECK(good);
  CHECK(read == kTokens);
  CHECK(f.admission.bytes() == 0);
}

TEST_CASE("A prompt's scores are counted on the permit as long as the answer is there",
          "[router][answer]") {
  Fixture f;
  auto scores = std::make_shared<PromptScores>(std::vector<TokenId>(1000), 0, &f.tokens);
  for (int i = 0; i < 999; ++i) scores->Add(-1, 1, {});
  AnswerHead head;
  head.prompt_scores = std::move(scores);
  f.writer.Head(std::move(head));
  f.writer.Publish(&f.retired);
  CHECK(f.admission.bytes() > 12'000);
  CHECK(f.admission.bytes() < 24'000);
  f.writer.Fail(absl::CancelledError("gone"));
  f.answer.reset();
  CHECK(f.admission.bytes() == 0);
}

TEST_CASE("Every token that is published is charged to the answer's tenant", "[router][answer]") {
  ManualClock clock{1};
  Admission admission{{}, &clock};
  LetterTokens tokens;
  auto tenant = std::make_shared<Tenant>(*Anonymous());
  tenant->limits.tokens_per_minute = 60;
  tenant->meter = std::make_shared<TenantMeter>("team", tenant->limits, &clock);
  auto permit = admission.Enter(tenant, 0);
  REQUIRE(permit.ok());
  AnswerWriter writer(
      std::make_shared<Answer>(7, "req-1", "", *std::move(permit), &tokens, nullptr),
      std::make_shared<CountingSink>());
  std::vector<std::shared_ptr<AnswerSink>> retired;
  // 59 of the minute's 60 tokens, many at a time, and the last one with the end.
  for (const int count : {40, 0, 19}) {
    for (int i = 0; i < count; ++i) writer.Token(5, "x");
    writer.Publish(&retired);
  }
  CHECK(tenant->meter->Enter().ok());
  writer.Token(5, "x");
  writer.End({});
  writer.Publish(&retired);
  CHECK(absl::IsResourceExhausted(tenant->meter->Enter().status()));
}

}  // namespace
}  // namespace weft::router
