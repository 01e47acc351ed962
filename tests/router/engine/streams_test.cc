// One engine, one shard, no faults: streams, texts, ends, limits.

#include <signal.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/template_host.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

std::string AsText(const std::vector<TokenId>& ids) {
  std::string text;
  for (TokenId id : ids) text.push_back(static_cast<char>(id));
  return text;
}

TEST_CASE("A stream has exactly the tokens, text and counts of its answer", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(11, 70, 50);
  input.correlation_id = "one";
  const std::vector<TokenId> expected = rig.Expected(input);
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(sink->ids() == expected);
  CHECK(sink->text() == AsText(expected));
  CHECK(sink->name() == "one");
  CHECK(sink->started().prompt_tokens == 70);
  CHECK(sink->started().seed == 11);
  CHECK(sink->finished().reason == FinishReason::kLength);
  CHECK(sink->finished().output_tokens == 50);
  // One wake-up for each delivery, a moment after it.
  EngineRig::WaitUntil("it was woken", [&] { return sink->wakes() == sink->deliveries(); });
  rig.CheckClean();
}

TEST_CASE("Text, ids and chat prompts give the answers of their ids", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput ids = MakeInput(5, 10, 8);
  GenerateInput text = ids;
  text.prompt = AsText(std::get<std::vector<TokenId>>(ids.prompt));
  text.echo_prompt = true;
  GenerateInput chat = ids;
  chat.prompt = ChatPrompt{{{"user", "hi"}, {"assistant", "ho"}}, true};
  GenerateInput as_ids = ids;
  as_ids.prompt = std::vector<TokenId>();
  for (char c : std::string("user:hi;assistant:ho;")) {
    std::get<std::vector<TokenId>>(as_ids.prompt).push_back(static_cast<TokenId>(c));
  }
  auto text_sink = rig.Submit(text);
  auto chat_sink = rig.Submit(chat);
  text_sink->WaitEnd();
  chat_sink->WaitEnd();
  CHECK(text_sink->ids() == rig.Expected(ids));
  CHECK(text_sink->text() == std::get<std::string>(text.prompt) + AsText(rig.Expected(ids)));
  CHECK(chat_sink->ids() == rig.Expected(as_ids));
  rig.CheckClean();
}

std::vector<TokenId> ChatIds(Core& core, const std::string& content) {
  absl::StatusOr<Admission::Permit> permit = core.EnterText(Anonymous(), content.size());
  REQUIRE(permit.ok());
  absl::Notification done;
  std::vector<TokenId> ids;
  ChatPrompt chat;
  chat.messages = {{"user", content}};
  core.Tokenize(chat, /*add_special_tokens=*/false, *std::move(permit), /*call=*/nullptr,
                [&](absl::StatusOr<TokenizeResult> result) {
                  if (result.ok()) ids = result->ids;
                  done.Notify();
                });
  done.WaitForNotification();
  return ids;
}

TEST_CASE("Control tokens in a message are read as such where the operator allows it",
          "[router][engine]") {
  constexpr TokenId kEos = 256;
  const std::string content = "a<eos>b";
  const std::string prefix = "user:";
  for (const bool allowed : {false, true}) {
    RigOptions options;
    options.engine.allow_control_tokens = allowed;
    EngineRig rig(options);
    const std::vector<TokenId> ids = ChatIds(rig.engine(), content);
    std::vector<TokenId> expected(prefix.begin(), prefix.end());
    if (allowed) {
      expected.insert(expected.end(), {'a', kEos, 'b'});
    } else {
      expected.insert(expected.end(), content.begin(), content.end());
    }
    expected.push_back(';');
    CHECK(ids == expected);
  }
}

TEST_CASE("A truncated prompt keeps its last tokens", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(5, 40, 8);
  GenerateInput cut = input;
  auto& ids = std::get<std::vector<TokenId>>(cut.prompt);
  ids.erase(ids.begin(), ids.end() - 7);
  input.truncate_prompt_tokens = 7;
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(cut));
  CHECK(sink->started().prompt_tokens == 7);
}

TEST_CASE("An EOS token ends an answer unless it is ignored", "[router][engine]") {
  RigOptions options;
  options.shape.vocabulary.eos_permille = 100;
  EngineRig rig(options);
  rig.WaitReady();
  GenerateInput input = MakeInput(3, 20, 200);
  const std::vector<TokenId> expected = rig.Expected(input);
  REQUIRE(expected.size() < 200);
  auto sink = rig.Submit(input);
  input.ignore_eos = true;
  auto ignoring = rig.Submit(input);
  sink->WaitEnd();
  ignoring->WaitEnd();
  CHECK(sink->ids() == expected);
  CHECK(sink->finished().reason == FinishReason::kEosToken);
  CHECK(sink->tokens().back().special);
  CHECK(sink->tokens().back().text.empty());
  CHECK(ignoring->ids().size() == 200);
  CHECK(ignoring->finished().reason == FinishReason::kLength);
  rig.CheckClean();
}

TEST_CASE("A stop string ends the answer in doors of it and frees the sequence",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(21, 30, 400);
  const std::string full = AsText(rig.Expected(input));
  const std::string stop = full.substr(40, 3);
  const size_t at = full.find(stop);
  input.stop_sequences = {"never there", stop};
  auto sink = rig.Submit(input);
  input.include_stop_sequence = true;
  auto including = rig.Submit(input);
  sink->WaitEnd();
  including->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(sink->text() == full.substr(0, at));
  CHECK(sink->finished().reason == FinishReason::kStopSequence);
  CHECK(sink->finished().stop_sequence == stop);
  CHECK(sink->finished().output_tokens == at + 3);
  CHECK(including->text() == full.substr(0, at + 3));
  rig.CheckClean();
  // It stopped, it did not run to its length.
  CHECK(rig.shard(0).stats().steps < 200);
}

TEST_CASE("Log-probabilities and token texts come with their tokens", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(8, 12, 6);
  input.sampling.logprobs = true;
  input.sampling.top_logprobs = 2;
  auto plain = rig.Submit(MakeInput(9, 12, 6));
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  plain->WaitEnd();
  REQUIRE(sink->tokens().size() == 6);
  for (const AnswerToken& token : sink->tokens()) {
    CHECK(token.has_logprob);
    CHECK(token.logprob == -static_cast<float>(token.id) / 64);
    CHECK(token.bytes == std::string(1, static_cast<char>(token.id)));
    REQUIRE(token.top.size() == 2);
    CHECK(token.top[0].bytes == "a");
  }
  for (const AnswerToken& token : plain->tokens()) CHECK(!token.has_logprob);
}

TEST_CASE("Two hundred streams, a third of them vanishing, leave nothing behind",
          "[router][engine]") {
  RigOptions options;
  options.shape.kv_blocks = 160;  // too few for all: some wait, some are preempted
  options.shape.running_max = 32;
  options.shape.context_tokens = 512;
  options.shape.vocabulary.eos_permille = 5;
  EngineRig rig(options);
  rig.WaitReady();
  const uint64_t seed = 20261120;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  struct Stream {
    GenerateInput input;
    std::shared_ptr<FakeSink> sink;
    bool vanishes;
    size_t vanish_after;
  };
  std::vector<Stream> streams;
  for (uint64_t i = 0; i < 200; ++i) {
    Stream stream;
    stream.input = MakeInput(i % 40, 1 + random() % 200, 1 + static_cast<uint32_t>(random() % 120));
    stream.input.priority = static_cast<int32_t>(random() % 3);
    if (i % 5 == 0) stream.input.sampling.repetition_penalty = 1.1f;
    stream.vanishes = random() % 3 == 0;
    stream.vanish_after = random() % 20;
    stream.sink = rig.Submit(stream.input);
    if (stream.vanishes && stream.vanish_after == 0) {
      stream.sink->Cancel(CancelReason::kClientGone);
    }
    streams.push_back(std::move(stream));
  }
  for (Stream& stream : streams) {
    if (!stream.vanishes) continue;
    stream.sink->WaitTokens(stream.vanish_after);
    stream.sink->Cancel(CancelReason::kClientGone);
  }
  int cancelled = 0;
  for (Stream& stream : streams) {
    stream.sink->WaitEnd();
    const std::vector<TokenId> expected = rig.Expected(stream.input);
    const std::vector<TokenId> ids = stream.sink->ids();
    if (stream.sink->status().ok()) {
      CHECK(ids == expected);
    } else {
      CHECK(absl::IsCancelled(stream.sink->status()));
      CHECK(stream.vanishes);
      REQUIRE(ids.size() <= expected.size());
      CHECK(std::equal(ids.begin(), ids.end(), expected.begin()));
      ++cancelled;
    }
  }
  CHECK(cancelled >= 10);
  rig.CheckClean();
  const testing::MockShardStats stats = rig.shard(0).stats();
  CHECK(stats.mixed_steps > 0);
  CHECK(stats.prefix_hits > 0);
  CHECK(MetricValue(rig.probe(), "weft_num_preemptions_total") > 0);
}

TEST_CASE("Requests over the queue limit are refused at once with a time to come back",
          "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 2;
  options.engine.running_max = 2;
  options.engine.queue_requests_max = 3;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 20; ++i) sinks.push_back(rig.Submit(MakeInput(i, 10, 60)));
  int refused = 0;
  for (uint64_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitEnd();
    if (sinks[i]->status().ok()) {
      CHECK(sinks[i]->ids() == rig.Expected(MakeInput(i, 10, 60)));
      continue;
    }
    ++refused;
    CHECK(absl::IsResourceExhausted(sinks[i]->status()));
    CHECK(ErrorReason(sinks[i]->status()) == "QUEUE_FULL");
    CHECK(RetryAfter(sinks[i]->status()) >= absl::Seconds(1));
  }
  CHECK(refused >= 13);
  CHECK(refused < 20);
  rig.CheckClean();
}

TEST_CASE("The queue's tokens are limited apart from its requests", "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.engine.queue_tokens_max = 100;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  auto running = rig.Submit(MakeInput(0, 90, 100));
  running->WaitTokens(1);
  auto waiting = rig.Submit(MakeInput(1, 90, 2));
  EngineRig::WaitUntil("it waits",
                       [&] { return MetricValue(rig.probe(), "weft_num_requests_waiting") == 1; });
  auto refused = rig.Submit(MakeInput(2, 20, 2));
  refused->WaitEnd();
  CHECK(ErrorReason(refused->status()) == "QUEUE_TOKENS_FULL");
  running->WaitEnd();
  waiting->WaitEnd();
  CHECK(waiting->status().ok());
  rig.CheckClean();
}

TEST_CASE("What only the model decides is refused by field", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  const auto field = [&](const GenerateInput& input) {
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    CHECK(absl::IsInvalidArgument(sink->status()));
    return ErrorField(sink->status()).value_or("none");
  };
  CHECK(field(MakeInput(0, 1024, 1)) == "prompt");
  CHECK(field(MakeInput(0, 1000, 25)) == "max_tokens");
  GenerateInput input = MakeInput(0, 10, 5);
  input.prompt = std::vector<TokenId>{1, 2, 257};
  CHECK(field(input) == "prompt");
  input.prompt = std::vector<TokenId>();
  CHECK(field(input) == "prompt");
  input = MakeInput(0, 10, 5);
  input.sampling.logit_bias = {{300, 1.0f}};
  CHECK(field(input) == "logit_bias");
  CHECK(rig.shard(0).stats().steps == 0);
  // Without a limit an answer may be as long as the context leaves.
  GenerateInput open = MakeInput(0, 1000, 0);
  open.max_tokens.reset();
  auto sink = rig.Submit(open);
  sink->WaitEnd();
  CHECK(sink->ids().size() == 24);
}

TEST_CASE("Requests of one correlation id run side by side, and a cancel ends them all",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(0, 10, 900);
  input.correlation_id = "mine";
  auto first = rig.Submit(input);
  auto second = rig.Submit(input);
  input.correlation_id = "other";
  input.max_tokens = 20;
  auto third = rig.Submit(input);
  Tenant somebody = *Anonymous();
  somebody.index = 7;
  CHECK(!rig.engine().Cancel(somebody, "mine"));  // a tenant ends its own alone
  CHECK(rig.engine().Cancel(*Anonymous(), "mine"));
  first->WaitEnd();
  second->WaitEnd();
  CHECK(absl::IsCancelled(first->status()));
  CHECK(absl::IsCancelled(second->status()));
  CHECK(!rig.engine().Cancel(*Anonymous(), "mine"));
  third->WaitEnd();
  CHECK(third->status().ok());
  rig.CheckClean();
}

TEST_CASE("A request that waits too long for its first step ends and frees its place",
          "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  options.engine.queue_timeout_s = 1;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  auto running = rig.Submit(MakeInput(0, 10, 900));
  running->WaitTokens(1);
  auto waiting = rig.Submit(MakeInput(1, 10, 5));
  waiting->WaitEnd();
  CHECK(ErrorReason(waiting->status()) == "QUEUE_TIMEOUT");
  CHECK(RetryAfter(waiting->status()).has_value());
  CHECK(!running->ended());
  running->WaitEnd();
  CHECK(running->status().ok());
  CHECK(MetricValue(rig.probe(),
                    "weft_requests_cancelled_total{by=\"queue_timeout\",phase=\"queue\"}") == 1);
  rig.CheckClean();
}

TEST_CASE("Texts and unread answers share one budget, and whoever is alone fits",
          "[router][engine]") {
  RigOptions options;
  options.engine.text_bytes_max = 100'000;
  EngineRig rig(options);
  rig.WaitReady();
  absl::StatusOr<Admission::Permit> large = rig.engine().Enter(Anonymous(), 1'000'000);
  REQUIRE(large.ok());
  const absl::StatusOr<Admission::Permit> second = rig.engine().Enter(Anonymous(), 10);
  REQUIRE(!second.ok());
  CHECK(ErrorReason(second.status()) == "TEXT_BYTES_FULL");
  large->Release();
  CHECK(rig.engine().Enter(Anonymous(), 10).ok());
}

TEST_CASE("A deadline ends a request wherever it is", "[router][engine]") {
  RigOptions options;
  options.shape.running_max = 1;
  options.engine.running_max = 1;
  EngineRig rig(options);
  rig.WaitReady();
  const int64_t now_us = MonotonicClock().NowUs();
  GenerateInput running = MakeInput(0, 10, 900);
  running.deadline_us = now_us + 200'000;
  GenerateInput waiting = MakeInput(1, 10, 5);
  waiting.deadline_us = now_us + 100'000;
  GenerateInput past = MakeInput(2, 10, 5);
  past.deadline_us = now_us - 1;
  auto a = rig.Submit(running);
  a->WaitTokens(1);
  auto b = rig.Submit(waiting);
  auto c = rig.Submit(past);
  for (auto& sink : {a, b, c}) {
    sink->WaitEnd();
    CHECK(absl::IsDeadlineExceeded(sink->status()));
  }
  CHECK(MonotonicClock().NowUs() - now_us < 2'000'000);
  CHECK(b->ids().empty());
  rig.CheckClean();
}

TEST_CASE("Draining finishes what runs, refuses what comes, and ends what is left at the deadline",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  auto quick = rig.Submit(MakeInput(0, 10, 30));
  auto slow = rig.Submit(MakeInput(1, 10, 1000));
  slow->WaitTokens(1);
  rig.engine().StartDrain(absl::Milliseconds(400));
  CHECK(rig.engine().Status().state == ServerState::kDraining);
  auto late = rig.Submit(MakeInput(2, 10, 30));
  late->WaitEnd();
  CHECK(ErrorReason(late->status()) == "DRAINING");
  CHECK(rig.engine().WaitIdle(absl::Seconds(20)));
  CHECK(quick->ids() == rig.Expected(MakeInput(0, 10, 30)));
  REQUIRE(slow->ended());
  CHECK(absl::IsUnavailable(slow->status()));
}

TEST_CASE("Shutting down ends every request once", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < 50; ++i) sinks.push_back(rig.Submit(MakeInput(i, 10, 900)));
  rig.engine().Shutdown();
  for (auto& sink : sinks) {
    REQUIRE(sink->ended());
    CHECK(absl::IsUnavailable(sink->status()));
  }
  auto late = rig.Submit(MakeInput(0, 10, 5));
  CHECK(late->ended());
  // The shard was left and waits for the next router.
  CHECK(rig.shard(0).epoch() == 0);
}

TEST_CASE("Tokenize and Detokenize answer from a text worker", "[router][engine]") {
  EngineRig rig({});
  absl::StatusOr<TokenizeResult> result;
  absl::StatusOr<std::string> text;
  absl::Notification tokenized;
  absl::Notification detokenized;
  absl::StatusOr<Admission::Permit> one = rig.engine().EnterText(Anonymous(), 2);
  absl::StatusOr<Admission::Permit> two = rig.engine().EnterText(Anonymous(), 8);
  REQUIRE((one.ok() && two.ok()));
  rig.engine().Tokenize(std::string("ab"), true, *std::move(one), nullptr,
                        [&](absl::StatusOr<TokenizeResult> answer) {
                          result = std::move(answer);
                          tokenized.Notify();
                        });
  rig.engine().Detokenize({97, 98}, true, *std::move(two), nullptr,
                          [&](absl::StatusOr<std::string> answer) {
                            text = std::move(answer);
                            detokenized.Notify();
                          });
  tokenized.WaitForNotification();
  detokenized.WaitForNotification();
  REQUIRE(result.ok());
  CHECK(result->ids == std::vector<TokenId>{97, 98});
  CHECK(result->tokens == std::vector<std::string>{"a", "b"});
  REQUIRE(text.ok());
  CHECK(*text == "ab");
}

// What a Detokenize of `ids` under `permit` answers.
absl::StatusOr<std::string> Detokenize(Core& engine, std::vector<TokenId> ids,
                                       absl::StatusOr<Admission::Permit> permit) {
  REQUIRE(permit.ok());
  absl::StatusOr<std::string> text;
  absl::Notification done;
  engine.Detokenize(std::move(ids), true, *std::move(permit), nullptr,
                    [&](absl::StatusOr<std::string> answer) {
                      text = std::move(answer);
                      done.Notify();
                    });
  done.WaitForNotification();
  return text;
}

TEST_CASE("The text of ids is bounded like a prompt, by the field that holds them",
          "[router][engine]") {
  EngineRig rig({});
  const std::vector<TokenId> most(kPromptBytesMax, 'a');
  const std::vector<TokenId> more(kPromptBytesMax + 1, 'a');
  const auto text = Detokenize(rig.engine(), most, rig.engine().EnterText(Anonymous(), 1));
  REQUIRE(text.ok());
  CHECK(text->size() == kPromptBytesMax);
  const absl::Status status =
      Detokenize(rig.engine(), more, rig.engine().EnterText(Anonymous(), 1)).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(ErrorField(status) == "ids");
  CHECK(absl::StrContains(status.message(), absl::StrCat(kPromptBytesMax, " bytes")));
  rig.WaitReady();
  GenerateInput input = MakeInput(0, 10, 5);
  input.prompt = more;
  input.echo_prompt = true;
  const auto sink = rig.Submit(std::move(input));
  sink->WaitEnd();
  CHECK(ErrorField(sink->status()) == "prompt");
  CHECK(absl::StrContains(sink->status().message(), "bytes of text"));
}

TEST_CASE("A server that cannot run chat templates is not ready and says so", "[router][engine]") {
  const TempDir dir;
  TemplateHostOptions host_options;
  host_options.program = dir.path() + "/server";
  host_options.restart_delay = absl::Milliseconds(1);
  std::filesystem::copy_file(WEFT_TEMPLATE_SERVER, host_options.program);
  const auto host = TemplateHost::Start(host_options);
  REQUIRE(host.ok());
  RigOptions options;
  options.engine.template_host = host->get();
  EngineRig rig(std::move(options));
  rig.WaitReady();
  std::filesystem::remove(host_options.program);
  REQUIRE(kill((*host)->server(), SIGKILL) == 0);
  EngineRig::WaitUntil("it is not ready",
                       [&] { return rig.engine().Status().state == ServerState::kRecovering; });
  CHECK(absl::StrContains(rig.engine().Status().detail, "chat templates"));
  // Prompts of ids and of text are served.
  auto sink = rig.Submit(MakeInput(1, 10, 5));
  sink->WaitEnd();
  CHECK(sink->status().ok());
  std::filesystem::copy_file(WEFT_TEMPLATE_SERVER, host_options.program);
  rig.WaitReady();
}

TEST_CASE("The text of ids counts among the bytes of texts", "[router][engine]") {
  RigOptions options;
  options.engine.text_bytes_max = 1u << 20;
  EngineRig rig(std::move(options));
  const std::vector<TokenId> ids(400'000, 'a');
  const absl::StatusOr<Admission::Permit> other = rig.engine().EnterText(Anonymous(), 1000);
  REQUIRE(other.ok());
  CHECK(absl::IsResourceExhausted(
      Detokenize(rig.engine(), ids, rig.engine().EnterText(Anonymous(), 1)).status()));
}

}  // namespace
}  // namespace weft::router
