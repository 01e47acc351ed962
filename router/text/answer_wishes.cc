#include "router/text/answer_wishes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/parts/formats.h"
#include "router/text/parts/part_parser.h"
#include "router/text/parts/tool_grammar.h"

namespace weft::router {
namespace {

ToolGrammarOptions::Choice ChoiceOf(PartsSpec::Calls calls) {
  switch (calls) {
    case PartsSpec::Calls::kAuto:
      return ToolGrammarOptions::Choice::kAuto;
    case PartsSpec::Calls::kRequired:
      return ToolGrammarOptions::Choice::kRequired;
    case PartsSpec::Calls::kNamed:
      return ToolGrammarOptions::Choice::kNamed;
  }
  return ToolGrammarOptions::Choice::kAuto;
}

// The schema of the content beside calls that may be made.
absl::StatusOr<std::string> ContentSchema(const GenerateInput& input) {
  if (!input.grammar.has_value()) return std::string();
  switch (input.grammar->kind) {
    case GrammarSpec::Kind::kJsonSchema:
      return input.grammar->texts.front();
    case GrammarSpec::Kind::kJsonObject:
      return std::string("{\"type\":\"object\"}");
    default:
      return FieldError(input.grammar_field,
                        "beside tools must be a JSON schema: other grammars know no calls");
  }
}

}  // namespace

absl::Status AddToolGrammar(const Tokenizer& tokenizer, GenerateInput* input) {
  if (input->parts == nullptr || input->parts->tools.empty()) return absl::OkStatus();
  const PartsSpec& parts = *input->parts;
  // A grammar of the content alone would forbid the calls.
  if (!parts.HoldsCalls() && !input->grammar.has_value()) return absl::OkStatus();
  ToolGrammarOptions options;
  options.choice = ChoiceOf(parts.calls);
  options.name = parts.named;
  options.parallel_calls = parts.parallel_calls;
  options.control_token = [&tokenizer](absl::string_view mark) -> std::optional<uint32_t> {
    const TokenId id = tokenizer.FindToken(mark);
    if (id == kNoToken || !tokenizer.IsSpecial(id)) return std::nullopt;
    return id;
  };
  std::vector<ToolSpec> tools = parts.tools;
  if (parts.calls == PartsSpec::Calls::kAuto) {
    WEFT_ASSIGN_OR_RETURN(options.content_schema, ContentSchema(*input));
    // Of those that are not strict any object fits.
    for (ToolSpec& tool : tools) {
      if (!tool.strict) tool.parameters.clear();
    }
  }
  const absl::StatusOr<std::string> lark = ToolGrammar(parts.tool_parser, tools, options);
  if (!lark.ok()) return FieldError("tools", lark.status().message());
  input->grammar.emplace();
  input->grammar->kind = GrammarSpec::Kind::kLark;
  input->grammar->texts = {*lark};
  // What may be wrong with it are the tools' schemas.
  input->grammar_field = "tools";
  return absl::OkStatus();
}

std::optional<GrammarEngine::Mark> ReasoningMark(const Tokenizer& tokenizer, const PartsSpec& parts,
                                                 bool tool_grammar, absl::string_view prompt) {
  GrammarEngine::Mark mark;
  if (parts.reasoning_parser == kHarmony) {
    // Its grammar of calls has the reasoning in it.
    if (tool_grammar) return std::nullopt;
    mark.text = "<|channel|>final<|message|>";
    return mark;
  }
  const ReasoningFormat* const format = FindReasoningFormat(parts.reasoning_parser);
  if (format == nullptr) return std::nullopt;
  mark.text = std::string(format->closes.front());
  if (PromptOpensReasoning(parts.reasoning_parser, prompt)) return mark;
  for (const absl::string_view open : format->opens) {
    mark.open = tokenizer.FindToken(open);
    if (mark.open != kNoToken) return mark;
  }
  return std::nullopt;
}

}  // namespace weft::router
