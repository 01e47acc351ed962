// One engine, one shard, no faults: streams, their texts and how they end.

#include <catch2/catch.hpp>
#include <random>

#include "absl/synchronization/notification.h"
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
  ChatPrompt conversation;
  conversation.messages = {{"user", "hi"}, {"assistant", "ho"}};
  chat.prompt = std::move(conversation);
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
  const Grown grown(rig.probe(), {"weft_num_preemptions_total"});
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
  CHECK(grown("weft_num_preemptions_total") > 0);
}

}  // namespace
}  // namespace weft::router
