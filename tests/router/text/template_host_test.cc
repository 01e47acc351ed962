// The server of template workers dies: chats are refused until another runs, and the host says when
// none can.

#include "router/text/template_host.h"

#include <signal.h>
#include <catch2/catch.hpp>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "router/errors.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

ChatPrompt Hello() {
  ChatPrompt prompt;
  prompt.messages = {{"user", "Hello"}};
  return prompt;
}

template <typename Condition>
void WaitUntil(const std::string& what, Condition condition) {
  INFO(what);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!condition()) REQUIRE(absl::Now() < end);
}

// A host whose program is a file of its own, which a test may take away.
struct OwnProgram {
  OwnProgram() {
    options.program = dir.path() + "/server";
    options.restart_delay = absl::Milliseconds(1);
    Put();
  }
  void Put() const { std::filesystem::copy_file(WEFT_TEMPLATE_SERVER, options.program); }
  void Take() const { std::filesystem::remove(options.program); }

  test::TempDir dir;
  TemplateHostOptions options;
};

TEST_CASE("A server of template workers that was killed is started again", "[router][text]") {
  const auto host = StartTemplates();
  const auto chat = ChatTemplate::Create(host.get(), &DemoTokenizer(), "x", {});
  REQUIRE(chat.ok());
  for (int round = 0; round < 3; ++round) {
    const pid_t server = host->server();
    REQUIRE(kill(server, SIGKILL) == 0);
    WaitUntil("another server", [&] { return host->server() > 0 && host->server() != server; });
    // Until then, and while the dead one's workers end, a chat is served or told to come back.
    WaitUntil("a chat", [&] {
      const auto rendered = (*chat)->Render(Hello());
      if (rendered.ok()) return true;
      CHECK(absl::IsUnavailable(rendered.status()));
      return false;
    });
    CHECK(host->Health().ok());
  }
}

TEST_CASE("Without a server of template workers chats are told when to come back",
          "[router][text]") {
  OwnProgram own;
  own.options.restart_delay = absl::Hours(1);
  const auto host = TemplateHost::Start(own.options);
  REQUIRE(host.ok());
  const auto chat = ChatTemplate::Create(host->get(), &DemoTokenizer(), "x", {});
  REQUIRE(chat.ok());
  REQUIRE(kill((*host)->server(), SIGKILL) == 0);
  absl::Status status;
  WaitUntil("an end", [&] { return !(status = (*chat)->Render(Hello()).status()).ok(); });
  CHECK(absl::IsUnavailable(status));
  CHECK(RetryAfter(status).has_value());
  CHECK(ErrorReason(status) == "TEMPLATES_GONE");
  CHECK(absl::IsUnavailable(ChatTemplate::Create(host->get(), &DemoTokenizer(), "x", {}).status()));
}

TEST_CASE("A server of template workers that cannot be started is bad health until it can",
          "[router][text]") {
  const OwnProgram own;
  const auto host = TemplateHost::Start(own.options);
  REQUIRE(host.ok());
  const auto chat = ChatTemplate::Create(host->get(), &DemoTokenizer(), "x", {});
  REQUIRE(chat.ok());
  CHECK((*host)->Health().ok());
  own.Take();
  REQUIRE(kill((*host)->server(), SIGKILL) == 0);
  WaitUntil("bad health", [&] { return !(*host)->Health().ok(); });
  CHECK(absl::StrContains((*host)->Health().message(), "chat templates"));
  CHECK(absl::StrContains((*host)->Health().message(), "No such file"));
  own.Put();
  WaitUntil("good health", [&] { return (*host)->Health().ok(); });
  WaitUntil("a chat", [&] { return (*chat)->Render(Hello()).ok(); });
}

TEST_CASE("A program that cannot be executed is named at the start", "[router][text]") {
  TemplateHostOptions options;
  options.program = "/nowhere/at/all";
  const absl::Status status = TemplateHost::Start(options).status();
  CHECK(absl::IsInternal(status));
  CHECK(absl::StrContains(status.message(), "/nowhere/at/all"));
}

TEST_CASE("A server of template workers ends with its host", "[router][text]") {
  auto host = StartTemplates();
  const pid_t server = host->server();
  REQUIRE(kill(server, 0) == 0);
  host.reset();
  CHECK(kill(server, 0) != 0);
}

}  // namespace
}  // namespace weft::router
