#include "router/text/parts/harmony_parser.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

constexpr absl::string_view kMarks[] = {"<|start|>", "<|channel|>", "<|message|>",  "<|end|>",
                                        "<|call|>",  "<|return|>",  "<|constrain|>"};
enum Mark { kStart, kChannel, kMessage, kEnd, kCall, kReturn, kConstrain };

// The word behind `key` in a header, up to space or the next control token.
absl::string_view WordBehind(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(key);
  if (at == absl::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  header = absl::StripLeadingAsciiWhitespace(header);
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

}  // namespace

HarmonyParser::HarmonyParser(const ToolSet* tools, bool calls, bool parallel_calls,
                             bool reasoning_open)
    : calls_(calls),
      writer_(tools, parallel_calls),
      marks_({kMarks, kMarks + sizeof(kMarks) / sizeof(kMarks[0])}) {
  if (!reasoning_open) return;
  state_ = State::kBody;
  body_ = Body::kReasoning;
  any_message_ = true;
}

void HarmonyParser::Take(absl::string_view text, std::vector<AnswerPart>* out) {
  writer_.SetOut(out);
  for (const char c : text) TakeByte(c);
}

void HarmonyParser::TakeByte(char c) {
  std::string released;
  const int mark = marks_.Take(c, &released);
  TakeText(released);
  if (mark != MarkMatcher::kNone) TakeMark(mark);
}

void HarmonyParser::TakeText(absl::string_view text) {
  for (const char c : text) {
    const absl::string_view byte(&c, 1);
    if (state_ == State::kHeader) {
      TakeHeader(byte);
      continue;
    }
    if (state_ == State::kLead) {
      // A header may begin with its addressee, " to=functions.f".
      header_.push_back(c);
      const absl::string_view start = absl::StripLeadingAsciiWhitespace(header_);
      if (start == "to=") {
        state_ = State::kHeader;
      } else if (!absl::StartsWith("to=", start) || header_.size() >= kAnswerSpaceHeldBytesMax) {
        DropHeader();
      }
      continue;
    }
    Give(byte);
  }
}

void HarmonyParser::TakeHeader(absl::string_view text) {
  header_.append(text.data(), text.size());
  if (header_.size() > kToolHeaderBytesMax) DropHeader();
}

void HarmonyParser::TakeMark(int mark) {
  const absl::string_view text = kMarks[mark];
  if (state_ == State::kBody) {
    if (mark == kMessage || mark == kConstrain) return Give(text);
    EndBody();
    if (mark != kStart && mark != kChannel) return;
    state_ = State::kHeader;
    return TakeHeader(text);
  }
  if (mark == kMessage) {
    if (state_ == State::kHeader) return BeginBody();
    return TakeText(text);
  }
  if (mark == kStart && state_ == State::kHeader) DropHeader();
  if (mark == kStart || mark == kChannel || mark == kConstrain || state_ == State::kHeader) {
    if (state_ == State::kLead) header_ = std::string(absl::StripAsciiWhitespace(header_));
    state_ = State::kHeader;
    TakeHeader(text);
  }
  // An end without a beginning is nothing; one in a header makes it one without a message.
  if (mark == kEnd || mark == kCall || mark == kReturn) {
    if (state_ == State::kHeader) DropHeader();
    header_.clear();
    state_ = State::kLead;
  }
}

void HarmonyParser::BeginBody() {
  const std::string header = std::exchange(header_, std::string());
  const bool analysis = absl::StartsWith(WordBehind(header, "<|channel|>"), "analysis");
  state_ = State::kBody;
  body_empty_ = true;
  any_message_ = true;
  space_.clear();
  body_ = analysis ? Body::kReasoning : Body::kContent;
  absl::string_view name = WordBehind(header, "to=");
  if (calls_ && absl::ConsumePrefix(&name, "functions.") && writer_.BeginCall(name)) {
    body_ = Body::kCall;
  }
}

void HarmonyParser::EndBody() {
  if (body_ == Body::kCall && writer_.in_call()) writer_.EndCall(true);
  space_.clear();
  header_.clear();
  state_ = State::kLead;
}

void HarmonyParser::DropHeader() {
  const std::string header = std::exchange(header_, std::string());
  state_ = State::kBody;
  body_ = Body::kContent;
  body_empty_ = true;
  for (const char& c : header) Give(absl::string_view(&c, 1));
}

void HarmonyParser::Give(absl::string_view text) {
  if (text.size() == 1 && IsJsonSpace(text.front())) {
    // Of an answer without headers every byte counts; messages begin and end with none.
    if (body_empty_ && any_message_) return;
    space_.append(text.data(), text.size());
    if (space_.size() < kAnswerSpaceHeldBytesMax) return;
    text = {};
  }
  std::string all = std::exchange(space_, std::string());
  all.append(text.data(), text.size());
  switch (body_) {
    case Body::kCall:
      writer_.Arguments(all);
      break;
    case Body::kReasoning:
      if (body_empty_ && has_reasoning_) writer_.Reasoning("\n");
      has_reasoning_ = true;
      writer_.Reasoning(all);
      break;
    case Body::kContent:
      if (body_empty_ && has_content_) writer_.Content("\n");
      has_content_ = true;
      writer_.Content(all);
      break;
  }
  body_empty_ = false;
}

void HarmonyParser::Finish(std::vector<AnswerPart>* out) {
  writer_.SetOut(out);
  const std::string partial_mark = marks_.Release();
  if (state_ != State::kBody || body_ != Body::kCall) TakeText(partial_mark);
  if (state_ != State::kBody) DropHeader();
  if (body_ == Body::kContent && !space_.empty()) {
    const std::string space = std::exchange(space_, std::string());
    writer_.Content(space);
  }
  // The token that ends a call ends the answer, and is not in its text.
  EndBody();
}

}  // namespace weft::router
