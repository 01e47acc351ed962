// What an engine says of texts without a step: token ids, texts of ids, templates that are gone.

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/template_host.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

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
  const test::TempDir dir;
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

TEST_CASE("A text that finds the queue of texts full is refused at once with a time to come back",
          "[router][engine]") {
  std::atomic<int> begun{0};
  std::atomic<int> ran{0};
  EngineRig rig({});
  const std::string rejections = "weft_admission_rejections_total{reason=\"queue_requests\"}";
  const double rejected_before = MetricValue(rig.probe(), rejections);
  Gate gate;
  const auto push = [&] {
    return rig.engine().Run(1, [&begun, &ran, wait = gate.waiter()] {
      begun.fetch_add(1);
      wait();
      ran.fetch_add(1);
    });
  };
  // Both threads for short texts are held, and as many wait as may.
  constexpr int kThreads = 2;
  constexpr int kTaken = static_cast<int>(kTextJobsMax) + kThreads;
  for (int i = 0; i < kThreads; ++i) REQUIRE(push());
  EngineRig::WaitUntil("both threads are held", [&] { return begun.load() == kThreads; });
  for (int i = kThreads; i < kTaken; ++i) REQUIRE(push());
  REQUIRE_FALSE(push());
  const absl::Status status =
      Detokenize(rig.engine(), {97}, rig.engine().EnterText(Anonymous(), 1)).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(ErrorReason(status) == "TEXT_QUEUE_FULL");
  CHECK(RetryAfter(status) == absl::Seconds(1));
  CHECK(MetricValue(rig.probe(), rejections) - rejected_before >= 1);
  gate.Open();
  EngineRig::WaitUntil("all that were taken have run", [&] { return ran.load() == kTaken; });
  // The refused one gave its permit back, and texts are read again.
  CHECK(rig.engine().WaitIdle(absl::Seconds(10)));
  CHECK(Detokenize(rig.engine(), {97}, rig.engine().EnterText(Anonymous(), 1)).ok());
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
