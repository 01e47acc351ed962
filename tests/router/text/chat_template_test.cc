#include "router/text/chat_template.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>

#include "absl/strings/match.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/model_text.h"
#include "tests/support/demo_model.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

ChatPrompt OneMessage(const std::string& content) {
  ChatPrompt prompt;
  prompt.messages = {{"user", content}};
  return prompt;
}

// A user error that names "messages" and says `part`.
void CheckRefused(const absl::StatusOr<RenderedChat>& result, const std::string& part) {
  REQUIRE_FALSE(result.ok());
  INFO(result.status().ToString());
  CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(result.status()) == "messages");
  CHECK(absl::StrContains(result.status().message(), part));
}

TEST_CASE("Conversations render as jinja2 renders them in transformers", "[router][text]") {
  for (const boost::json::value& c : Golden("chats").as_array()) {
    const std::string name = Text(c.at("template"));
    ChatPrompt prompt;
    for (const boost::json::value& message : c.at("messages").as_array()) {
      prompt.messages.push_back({Text(message.at("role")), Text(message.at("content"))});
    }
    prompt.add_generation_prompt = c.at("add_generation_prompt").as_bool();
    INFO(name << ": " << c.at("messages"));
    const auto rendered = Compile(Text(Golden("templates").at(name)))->Render(prompt);
    if (const boost::json::value* error = c.as_object().if_contains("error")) {
      CheckRefused(rendered, Text(*error));
      continue;
    }
    INFO(rendered.status().ToString());
    REQUIRE(rendered.ok());
    CHECK(rendered->text == Text(c.at("text")));
    if (const boost::json::value* ids = c.as_object().if_contains("ids")) {
      CHECK(DemoTokenizer().Encode(rendered->text, false)->ids == Ids(*ids));
    }
  }
}

TEST_CASE("The demo model's chat prompt about the capital of France has 37 tokens",
          "[router][text]") {
  const auto text = LoadModelText(test::DemoModelOrSkip());
  REQUIRE(text.ok());
  const auto prompt =
      Compile(text->chat_template)->Render(OneMessage("What is the capital of France?"));
  REQUIRE(prompt.ok());
  CHECK(DemoTokenizer().Encode(prompt->text, false)->ids.size() == 37);
}

TEST_CASE("strftime_now gives today's date", "[router][text]") {
  const auto before = std::time(nullptr);
  const auto rendered = Compile("{{ strftime_now('%Y-%m-%d') }}")->Render(OneMessage(""));
  const auto after = std::time(nullptr);
  REQUIRE(rendered.ok());
  const auto date = [](std::time_t time) {
    char text[16];
    std::tm parts;
    localtime_r(&time, &parts);
    std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
    return std::string(text);
  };
  // Midnight may pass in between.
  CHECK((rendered->text == date(before) || rendered->text == date(after)));
}

TEST_CASE("A template's exception is a user error with its words", "[router][text]") {
  CheckRefused(Compile("{{ raise_exception('no system role') }}")->Render(OneMessage("")),
               "no system role");
}

TEST_CASE("A template that fails on a conversation is a user error", "[router][text]") {
  ChatPrompt empty;
  CheckRefused(Compile("{{ messages[0]['role'].upper() }}")->Render(empty), "line 1");
}

TEST_CASE("A template that does not compile is refused with its line", "[router][text]") {
  for (const char* source : {"a\n{% for x in %}", "{{ 1 +", "{% if %}", "{% nosuchtag %}"}) {
    const auto made = ChatTemplate::Create(&Templates(), &DemoTokenizer(), source, {});
    REQUIRE_FALSE(made.ok());
    INFO(made.status().ToString());
    CHECK(absl::StrContains(made.status().message(), "line"));
  }
}

TEST_CASE("A template that runs away is stopped", "[router][text]") {
  const auto start = std::chrono::steady_clock::now();
  CheckRefused(Compile("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                       "{% endfor %}")
                   ->Render(OneMessage("")),
               "instructions");
  CheckRefused(Compile("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")->Render(OneMessage("")),
               "");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() < 5.0);  // 10 ms when quiet
}

TEST_CASE("A template's output is bounded", "[router][text]") {
  const auto chat = Compile("{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}");
  CHECK(chat->Render(OneMessage(std::string(800, 'x')))->text.size() == 9999 * 800);
  CheckRefused(chat->Render(OneMessage(std::string(1000, 'x'))),
               std::to_string(kTemplateOutputBytesMax));
  CheckRefused(Compile("{{ 'x' * 100000000000 }}")->Render(OneMessage("")), "too large");
}

TEST_CASE("A template cannot read files or other templates", "[router][text]") {
  CheckRefused(Compile("{% include '/etc/passwd' %}")->Render(OneMessage("")), "");
}

TEST_CASE("Text that looks like a template stays text", "[router][text]") {
  const auto rendered = Compile("{{ messages[0].content }}")->Render(OneMessage("{{ 7 * 7 }}"));
  CHECK(rendered->text == "{{ 7 * 7 }}");
}

}  // namespace
}  // namespace weft::router
