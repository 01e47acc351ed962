// What an engine says of texts without a step: token ids, texts of ids, templates that are gone.

#include <signal.h>
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
