// Fuzz target: an answer of any bytes, in any format, cut anywhere. It gives parts, in their order,
// the same for every cut; content is what went in, in its order; arguments of formats that are
// turned into JSON are the beginning of JSON.
//
// An input is a byte for each: tool format, reasoning format, flags, and a seed of the cuts; the
// rest is the answer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/utf8.h"
#include "router/text/parts/json_scanner.h"
#include "router/text/parts/part_parser.h"
#include "tests/support/fuzz_input.h"
#include "tests/support/splitmix.h"

namespace weft::router {
namespace {

using Kind = AnswerPart::Kind;

const ToolSet& Tools() {
  static const ToolSet& tools =
      *new ToolSet({{"f", R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
                  "b": {"type": "boolean"}, "o": {"type": ["string", "null"]}}})"},
                    {"get_weather", ""}});
  return tools;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

struct Outcome {
  std::vector<AnswerPart> parts;

  // Adds parts, joined with those before.
  void Add(std::vector<AnswerPart> more, bool utf8) {
    for (AnswerPart& part : more) {
      WEFT_CHECK(part.kind == Kind::kToolBegin || !part.text.empty());
      WEFT_CHECK_EQ(part.kind == Kind::kToolBegin, !part.name.empty());
      // Each delta is a JSON string of its own at the client.
      if (utf8) WEFT_CHECK(IsUtf8(part.text));
      if (!parts.empty() && part.kind != Kind::kToolBegin && parts.back().kind == part.kind) {
        WEFT_CHECK_EQ(parts.back().call, part.call);
        parts.back().text += part.text;
      } else {
        parts.push_back(std::move(part));
      }
    }
  }
};

std::unique_ptr<PartParser> Make(const PartParserOptions& options) {
  auto parser = MakePartParser(options);
  WEFT_CHECK_MSG(parser.ok(), parser.status().ToString());
  return *std::move(parser);
}

// Cut by the numbers that `seed` gives; whole where it is 0.
Outcome Run(const PartParserOptions& options, absl::string_view text, uint64_t seed) {
  const bool utf8 = IsUtf8(text);
  const std::unique_ptr<PartParser> parser = Make(options);
  Outcome outcome;
  while (!text.empty()) {
    size_t bytes = text.size();
    if (seed != 0) {
      seed = test::Splitmix(seed) | 1;
      bytes = 0;
      for (uint64_t left = 1 + seed % 5; left > 0 && bytes < text.size(); --left) {
        bytes += std::max<size_t>(1, Utf8CharacterBytes(text.substr(bytes)));
      }
    }
    std::vector<AnswerPart> parts;
    parser->Take(text.substr(0, bytes), &parts);
    text.remove_prefix(std::min(bytes, text.size()));
    outcome.Add(std::move(parts), utf8);
  }
  std::vector<AnswerPart> parts;
  parser->Finish(&parts);
  outcome.Add(std::move(parts), utf8);
  return outcome;
}

// Calls are numbered from 0, and each begins before its arguments.
void CheckOrder(const Outcome& outcome, const PartParserOptions& options) {
  uint32_t calls = 0;
  for (const AnswerPart& part : outcome.parts) {
    if (part.kind == Kind::kToolBegin) {
      WEFT_CHECK_EQ(part.call, calls++);
      WEFT_CHECK(options.tools == nullptr || options.tools->Find(part.name) != nullptr);
    }
    if (part.kind == Kind::kToolArguments) WEFT_CHECK_EQ(part.call + 1, calls);
  }
  WEFT_CHECK(options.parallel_calls || calls <= 1);
  WEFT_CHECK(options.tool_parser != kNoParser || calls == 0);
}

// Content is text of the answer in its order; all of it, where nothing else was found.
void CheckContent(const Outcome& outcome, const PartParserOptions& options,
                  absl::string_view text) {
  std::string content;
  for (const AnswerPart& part : outcome.parts) {
    if (part.kind == Kind::kContent) content += part.text;
  }
  const bool calls =
      std::any_of(outcome.parts.begin(), outcome.parts.end(),
                  [](const AnswerPart& part) { return part.kind == Kind::kToolBegin; });
  if (!calls && options.reasoning_parser == kNoParser) WEFT_CHECK_EQ(content, std::string(text));
  size_t at = 0;
  for (const char c : content) {
    at = text.find(c, at);
    WEFT_CHECK_MSG(at != absl::string_view::npos, content);
    ++at;
  }
}

void CheckMadeJson(const Outcome& outcome) {
  for (const AnswerPart& part : outcome.parts) {
    if (part.kind != Kind::kToolArguments) continue;
    JsonScanner scanner;
    for (size_t i = 0; i < part.text.size(); ++i) {
      WEFT_CHECK(!scanner.in_string() || static_cast<unsigned char>(part.text[i]) >= 0x20);
      const ValueStep step = scanner.Take(part.text[i]);
      WEFT_CHECK(step == ValueStep::kMore || step == ValueStep::kEnd);
      if (step == ValueStep::kEnd) WEFT_CHECK_EQ(i + 1, part.text.size());
    }
  }
}

void RunOne(test::FuzzInput input) {
  const std::vector<absl::string_view> tools = ToolParserNames();
  const std::vector<absl::string_view> reasonings = ReasoningParserNames();
  const size_t tool = input.Byte() % (tools.size() + 1);
  const size_t reasoning = input.Byte() % (reasonings.size() + 1);
  const uint8_t flags = input.Byte();
  const uint64_t seed = input.Byte() | 0x100;
  PartParserOptions options;
  if (tool < tools.size()) options.tool_parser = std::string(tools[tool]);
  if (reasoning < reasonings.size()) options.reasoning_parser = std::string(reasonings[reasoning]);
  if (options.tool_parser == "harmony") options.reasoning_parser = "none";
  if (options.reasoning_parser == "harmony") options.tool_parser = "none";
  options.reasoning_open = (flags & 1) != 0;
  options.parallel_calls = (flags & 2) == 0;
  options.tools = (flags & 4) != 0 ? nullptr : &Tools();

  const absl::string_view text = input.rest();
  const Outcome whole = Run(options, text, 0);
  CheckOrder(whole, options);
  if (options.tool_parser != "harmony" && options.reasoning_parser != "harmony") {
    CheckContent(whole, options, text);
  }
  for (const absl::string_view made :
       {"pythonic", "llama4_pythonic", "qwen3_coder", "glm45", "minimax_m2", "deepseek_v32"}) {
    if (options.tool_parser == made) CheckMadeJson(whole);
  }
  const Outcome cut = Run(options, text, seed);
  WEFT_CHECK_EQ(whole.parts.size(), cut.parts.size());
  for (size_t i = 0; i < whole.parts.size(); ++i) {
    WEFT_CHECK(whole.parts[i].kind == cut.parts[i].kind);
    WEFT_CHECK_EQ(whole.parts[i].call, cut.parts[i].call);
    WEFT_CHECK_EQ(whole.parts[i].name, cut.parts[i].name);
    WEFT_CHECK_EQ(whole.parts[i].text, cut.parts[i].text);
  }
  // Templates are looked at by the same marks.
  DetectParsers(text);
  PromptOpensReasoning(options.reasoning_parser, text);
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::router::RunOne({data, size});
  return 0;
}
