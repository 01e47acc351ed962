// The texts of tests/goldens/chat: what transformers gives for templates with the features of
// published ones, with tools, documents, further variables, open ends and refusals.

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "published_fixture.h"
#include "router/errors.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

namespace json = boost::json;

TEST_CASE("Conversations render as transformers renders them with the published templates",
          "[router][text]") {
  size_t texts = 0, refusals = 0;
  for (const json::value& one : ChatGoldens().at("cases").as_array()) {
    const std::string name = Text(one.at("template"));
    const std::string title = Text(one.at("conversation"));
    INFO(name << ", " << title);
    const auto rendered = Published(name).Render(GoldenConversation(title));
    if (const json::value* text = one.as_object().if_contains("text")) {
      INFO(rendered.status().ToString());
      CHECK((rendered.ok() ? rendered->text : "") == Text(*text));
      ++texts;
      continue;
    }
    CHECK_FALSE(rendered.ok());
    if (rendered.ok()) continue;
    ++refusals;
    CHECK(ErrorField(rendered.status()).has_value());
    if (const json::value* said = one.as_object().if_contains("raises")) {
      INFO(rendered.status().ToString());
      CHECK(absl::StrContains(rendered.status().message(), Text(*said)));
    }
  }
  CHECK(texts > 700);
  CHECK(refusals > 30);
}

TEST_CASE("What a published template wants a conversation to look like is found out",
          "[router][text]") {
  using NoContent = TemplateTraits::NoContent;
  const std::map<std::string, NoContent> no_contents = {{"left_out", NoContent::kLeftOut},
                                                        {"null", NoContent::kNull},
                                                        {"empty", NoContent::kEmptyText}};
  CHECK(ChatGoldens().at("traits").as_object().size() >= 30);
  for (const auto& entry : ChatGoldens().at("traits").as_object()) {
    const std::string name(entry.key());
    INFO(name);
    const TemplateTraits& traits = Published(name).traits();
    CHECK(traits.text_content == entry.value().at("text_content").as_bool());
    CHECK(traits.part_content == entry.value().at("part_content").as_bool());
    CHECK(traits.text_arguments == entry.value().at("text_arguments").as_bool());
    CHECK(traits.no_content == no_contents.at(Text(entry.value().at("no_content"))));
  }
}

}  // namespace
}  // namespace weft::router
