// Makes the parser of an answer by the names of its formats, tells their names, and guesses them
// from a chat template. Pure; any thread.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/text/parts/part.h"
#include "router/text/parts/tool_set.h"

namespace weft::router {

// The name of no parser.
inline constexpr absl::string_view kNoParser = "none";

struct PartParserOptions {
  // One of ToolParserNames(), or kNoParser: text that looks like a call is content.
  std::string tool_parser = std::string(kNoParser);
  // One of ReasoningParserNames(), or kNoParser: marks of reasoning are content.
  std::string reasoning_parser = std::string(kNoParser);
  // The rendered prompt ends inside of reasoning (PromptOpensReasoning).
  bool reasoning_open = false;
  // Outlives the parser. Calls to other tools are content; of an empty set every name is a tool.
  const ToolSet* tools = nullptr;
  // Without, calls behind the first are left out.
  bool parallel_calls = true;
};

// INVALID_ARGUMENT with the known names for another one, and for "harmony" beside another format:
// it is a format of whole answers. Its reasoning is told apart whether or not
// reasoning_parser names it.
absl::StatusOr<std::unique_ptr<PartParser>> MakePartParser(const PartParserOptions& options);

// Known names in order of the alphabet, without kNoParser.
std::vector<absl::string_view> ToolParserNames();
std::vector<absl::string_view> ReasoningParserNames();

struct DetectedParsers {
  absl::string_view tool_parser = kNoParser;
  absl::string_view reasoning_parser = kNoParser;
};

// The formats of a chat template (its source) by the marks that published ones write; a template
// that takes tools and shows no known format has "json". Any text gives an answer.
DetectedParsers DetectParsers(absl::string_view template_source);

// Whether the answer to this prompt begins inside of reasoning: the prompt ends with its opening
// mark. False of unknown names.
bool PromptOpensReasoning(absl::string_view reasoning_parser, absl::string_view prompt);

}  // namespace weft::router
