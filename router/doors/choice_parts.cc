#include "router/doors/choice_parts.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/doors/door_context.h"
#include "router/text/parts/part_parser.h"

namespace weft::router {
namespace {

// Mistral's templates take ids of nine letters and digits alone; Kimi's count the calls of a tool's
// name. The others take any.
std::string NewCallId(const PartsSpec& spec, const AnswerPart& part) {
  if (spec.tool_parser == "mistral") return NewRequestId().substr(0, 9);
  if (spec.tool_parser == "kimi_k2") return absl::StrCat("functions.", part.name, ":", part.call);
  return absl::StrCat("call_", NewRequestId().substr(0, 24));
}

}  // namespace

PartsContext::PartsContext(std::shared_ptr<const PartsSpec> spec)
    : spec_(std::move(spec)), tools_(spec_ == nullptr ? std::vector<ToolSpec>() : spec_->tools) {}

void ChoiceParts::Begin(const PartsContext& context, const AnswerHead& head) {
  spec_ = context.spec();
  if (spec_ == nullptr) return;
  PartParserOptions options;
  options.tool_parser = spec_->tools.empty() ? std::string(kNoParser) : spec_->tool_parser;
  options.reasoning_parser = spec_->reasoning_parser;
  options.reasoning_open = head.reasoning_open;
  options.tools = &context.tools();
  options.parallel_calls = spec_->parallel_calls;
  absl::StatusOr<std::unique_ptr<PartParser>> parser = MakePartParser(options);
  WEFT_CHECK_MSG(parser.ok(), parser.status().ToString());
  parser_ = *std::move(parser);
  if (head.resumed.has_value()) Parse(head.resumed->text, /*last=*/false);
}

void ChoiceParts::Parse(absl::string_view text, bool last) {
  parts_.clear();
  if (!text.empty()) parser_->Take(text, &parts_);
  if (last) parser_->Finish(&parts_);
  // Where nothing but calls may come, other text is a call that was cut off before its name.
  if (spec_->calls != PartsSpec::Calls::kAuto) {
    parts_.erase(std::remove_if(parts_.begin(), parts_.end(),
                                [](const AnswerPart& part) {
                                  return part.kind == AnswerPart::Kind::kContent;
                                }),
                 parts_.end());
  }
  for (const AnswerPart& part : parts_) {
    if (part.kind == AnswerPart::Kind::kToolBegin) BeginCall(part);
  }
}

void ChoiceParts::BeginCall(const AnswerPart& part) {
  WEFT_CHECK_EQ(part.call, calls_.size());
  calls_.push_back({NewCallId(*spec_, part), part.name, ""});
}

const std::vector<AnswerPart>& ChoiceParts::Take(const AnswerToken* token, const AnswerEnd* end) {
  if (parser_ != nullptr) {
    std::string text;
    if (token != nullptr) text += token->text;
    if (end != nullptr) text += end->text;
    const bool was_reasoning = parser_->InReasoning();
    Parse(text, end != nullptr);
    if (token != nullptr && (was_reasoning || parser_->InReasoning())) ++reasoning_tokens_;
    return parts_;
  }
  parts_.resize(1);
  AnswerPart& part = parts_.front();
  part.text.clear();
  if (token != nullptr) part.text += token->text;
  if (end != nullptr) part.text += end->text;
  if (part.text.empty()) parts_.clear();
  return parts_;
}

void ChoiceParts::Keep() {
  for (const AnswerPart& part : parts_) {
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        content_ += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        reasoning_ += part.text;
        break;
      case AnswerPart::Kind::kToolBegin:
        break;
      case AnswerPart::Kind::kToolArguments:
        calls_[part.call].arguments += part.text;
        break;
    }
  }
}

}  // namespace weft::router
