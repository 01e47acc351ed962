#include "tests/router/text/parts/parse.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace weft::router {

using Kind = AnswerPart::Kind;

std::vector<AnswerPart> Joined(const std::vector<AnswerPart>& parts) {
  std::vector<AnswerPart> joined;
  for (const AnswerPart& part : parts) {
    if (!joined.empty() && part.kind != Kind::kToolBegin && joined.back().kind == part.kind &&
        joined.back().call == part.call) {
      joined.back().text += part.text;
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

std::string Show(const std::vector<AnswerPart>& parts) {
  std::string shown;
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case Kind::kContent:
        absl::StrAppend(&shown, "content(", part.text, ")\n");
        break;
      case Kind::kReasoning:
        absl::StrAppend(&shown, "reasoning(", part.text, ")\n");
        break;
      case Kind::kToolBegin:
        absl::StrAppend(&shown, part.name, "()\n");
        break;
      case Kind::kToolArguments:
        if (absl::string_view(shown).substr(shown.size() - std::min<size_t>(3, shown.size())) ==
            "()\n") {
          shown.resize(shown.size() - 2);
        } else {
          absl::StrAppend(&shown, "arguments of ", part.call, "(");
        }
        absl::StrAppend(&shown, part.text, ")\n");
        break;
    }
  }
  if (!shown.empty()) shown.pop_back();
  return shown;
}

std::vector<AnswerPart> ParsePieces(const PartParserOptions& options,
                                    const std::vector<std::string>& pieces) {
  auto parser = MakePartParser(options);
  REQUIRE(parser.ok());
  std::vector<AnswerPart> parts;
  for (const std::string& piece : pieces) (*parser)->Take(piece, &parts);
  (*parser)->Finish(&parts);
  return Joined(parts);
}

std::vector<std::string> Characters(absl::string_view text) {
  std::vector<std::string> characters;
  while (!text.empty()) {
    const size_t bytes = std::max<size_t>(1, Utf8CharacterBytes(text));
    characters.emplace_back(text.data(), bytes);
    text.remove_prefix(bytes);
  }
  return characters;
}

std::string Parse(const PartParserOptions& options, absl::string_view text) {
  const std::string whole = Show(ParsePieces(options, {std::string(text)}));
  const std::vector<std::string> characters = Characters(text);
  CHECK(Show(ParsePieces(options, characters)) == whole);
  std::string front;
  for (const std::string& character : characters) {
    front += character;
    CAPTURE(front);
    CHECK(Show(ParsePieces(options, {front, std::string(text.substr(front.size()))})) == whole);
  }
  return whole;
}

const std::vector<ToolSpec>& SampleToolSpecs() {
  static const auto& tools = *new std::vector<ToolSpec>({
      {"get_weather",
       R"({"type": "object", "properties": {
         "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
         "tags": {"type": "array", "items": {"type": "string"}}, "place": {"type": "object"},
         "unit": {"type": ["string", "null"]}, "limit": {"type": "number"}},
         "required": ["city"]})"},
      {"search", R"({"type": "object", "properties": {"query": {"type": "string"}},
         "required": ["query"]})"},
      {"now", R"({"type": "object", "properties": {}})"},
      {"write", R"({"type": "object", "properties": {"path": {"type": "string"},
         "text": {"type": "string"}}, "required": ["path", "text"]})"},
  });
  return tools;
}

const ToolSet& SampleTools() {
  static const ToolSet& tools = *new ToolSet(SampleToolSpecs());
  return tools;
}

PartParserOptions ToolOptions(absl::string_view tool_parser, absl::string_view reasoning_parser) {
  PartParserOptions options;
  options.tool_parser = std::string(tool_parser);
  options.reasoning_parser = std::string(reasoning_parser);
  options.tools = &SampleTools();
  return options;
}

void CheckCases(const PartParserOptions& options, const std::vector<PartCase>& cases) {
  for (const PartCase& one : cases) {
    CAPTURE(options.tool_parser, options.reasoning_parser, one.what, one.text);
    CHECK(Parse(options, one.text) == one.shown);
  }
}

}  // namespace weft::router
