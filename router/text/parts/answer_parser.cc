#include "router/text/parts/answer_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

// Where a JSON list ends, or a call has one bracket too many.
bool IsBetweenCalls(char c) { return c == ',' || c == ';' || c == ']' || c == '}'; }

// Bytes at the end of `text` that may be the beginning of one of `marks`.
size_t PartialMark(absl::string_view text, const std::vector<absl::string_view>& marks) {
  size_t longest = 0;
  for (const absl::string_view mark : marks) {
    for (size_t n = std::min(mark.size() - 1, text.size()); n > longest; --n) {
      if (absl::EndsWith(text, mark.substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace

AnswerParser::Marks AnswerParser::Join(std::vector<std::pair<absl::string_view, Effect>> marks) {
  Marks joined;
  for (const auto& [text, effect] : marks) {
    joined.texts.push_back(text);
    joined.effects.push_back(effect);
  }
  joined.matcher = MarkMatcher(joined.texts);
  return joined;
}

AnswerParser::AnswerParser(const ToolFormat* format, const ReasoningFormat* reasoning,
                           const ToolSet* tools, bool parallel_calls, bool reasoning_open)
    : format_(format), writer_(tools, parallel_calls) {
  std::vector<std::pair<absl::string_view, Effect>> lead, after_call, content, inside;
  if (reasoning != nullptr) {
    for (const absl::string_view open : reasoning->opens) {
      lead.emplace_back(open, Effect::kOpenReasoning);
      inside.emplace_back(open, Effect::kOpenReasoning);
      if (reasoning->anywhere) content.emplace_back(open, Effect::kOpenReasoning);
    }
    for (const absl::string_view close : reasoning->closes) {
      inside.emplace_back(close, Effect::kClose);
    }
  }
  after_call = lead;
  if (format != nullptr) {
    reader_ = MakeCallReader(*format);
    for (const ToolMark& mark : format->marks) {
      if (mark.use == ToolMark::Use::kClose) {
        after_call.emplace_back(mark.text, Effect::kClose);
        continue;
      }
      const Effect effect = mark.entry == CallEntry::kCall ? Effect::kOpenCall : Effect::kOpenFrame;
      lead.emplace_back(mark.text, effect);
      if (mark.use != ToolMark::Use::kOpenFirst) after_call.emplace_back(mark.text, effect);
      if (mark.use == ToolMark::Use::kOpen) content.emplace_back(mark.text, effect);
    }
  }
  lead_marks_ = Join(std::move(lead));
  after_call_marks_ = Join(std::move(after_call));
  content_marks_ = Join(std::move(content));
  reasoning_marks_ = Join(std::move(inside));
  // Without anything that could begin there is nothing to wait for.
  if (lead_marks_.texts.empty() && format == nullptr) state_ = State::kContent;
  if (reasoning_open && reasoning != nullptr) Apply(Effect::kOpenReasoning, {});
}

void AnswerParser::Take(absl::string_view text, std::vector<AnswerPart>* out) {
  writer_.SetOut(out);
  while (!text.empty()) {
    const size_t plain = PlainBytes(text);
    if (plain > 0) {
      Give(text.substr(0, plain));
      text.remove_prefix(plain);
      continue;
    }
    TakeByte(text.front());
    text.remove_prefix(1);
  }
}

size_t AnswerParser::PlainBytes(absl::string_view text) const {
  const bool reasoning = state_ == State::kReasoning;
  if (!reasoning && state_ != State::kContent) return 0;
  const MarkMatcher& matcher = reasoning ? reasoning_marks_.matcher : content_marks_.matcher;
  if (!matcher.held().empty()) return 0;
  const bool all_space = !reasoning && content_marks_.texts.empty();
  size_t count = 0;
  while (count < text.size() && !matcher.MayBegin(text[count]) &&
         (all_space || !IsJsonSpace(text[count]))) {
    ++count;
  }
  return count;
}

void AnswerParser::TakeByte(char c) {
  switch (state_) {
    case State::kLead:
      return TakeInLead(c);
    case State::kReasoning:
      return TakeInReasoning(c);
    case State::kContent:
      return TakeInContent(c);
    case State::kCall:
      return TakeInCall(c);
  }
}

void AnswerParser::TakeInLead(char c) {
  Marks& marks = after_call_ ? after_call_marks_ : lead_marks_;
  if (marks.matcher.held().empty()) {
    if (IsJsonSpace(c)) {
      if (drop_space_) {
        if (content_given_ && gap_.empty()) gap_.push_back(c);
      } else if (!HoldSpace(c)) {
        state_ = State::kContent;
      }
      return;
    }
    if (frame_open_ && IsBetweenCalls(c)) {
      if (c == ']') frame_open_ = false;
      return;
    }
    const bool bare = format_ != nullptr && absl::StrContains(format_->bare, c);
    const bool next = frame_open_ && reader_->MayFollow(c);
    if (bare || next) {
      BeginCall(next ? CallEntry::kNext : CallEntry::kFrame, std::string());
      return TakeInCall(c);
    }
  }
  std::string held = marks.matcher.held();
  std::string released;
  const int mark = marks.matcher.Take(c, &released);
  if (mark != MarkMatcher::kNone) return Apply(marks.effects[mark], marks.texts[mark]);
  if (released.empty()) return;
  marks.matcher.Release();
  held.push_back(c);
  state_ = State::kContent;
  for (const char byte : held) TakeByte(byte);
}

void AnswerParser::TakeInReasoning(char c) {
  if (reasoning_marks_.matcher.held().empty() && IsJsonSpace(c)) {
    if (!reasoning_empty_) HoldSpace(c);
    return;
  }
  std::string released;
  const int mark = reasoning_marks_.matcher.Take(c, &released);
  Give(released);
  if (mark == MarkMatcher::kNone) return;
  if (reasoning_marks_.effects[mark] == Effect::kClose) {
    space_.clear();
    return Lead(false);
  }
  // A model may open what the prompt has opened already; later on the mark is text.
  if (!reasoning_empty_) Give(reasoning_marks_.texts[mark]);
}

void AnswerParser::TakeInContent(char c) {
  if (content_marks_.matcher.held().empty() && IsJsonSpace(c)) {
    if (content_marks_.texts.empty()) return Give(absl::string_view(&c, 1));
    HoldSpace(c);
    return;
  }
  std::string released;
  const int mark = content_marks_.matcher.Take(c, &released);
  Give(released);
  if (mark != MarkMatcher::kNone) Apply(content_marks_.effects[mark], content_marks_.texts[mark]);
}

void AnswerParser::Apply(Effect effect, absl::string_view mark) {
  switch (effect) {
    case Effect::kOpenReasoning:
      DropSpace(std::exchange(space_, std::string()));
      state_ = State::kReasoning;
      reasoning_empty_ = true;
      return;
    case Effect::kOpenFrame:
    case Effect::kOpenCall:
      return BeginCall(effect == Effect::kOpenCall ? CallEntry::kCall : CallEntry::kFrame,
                       std::string(mark));
    case Effect::kClose:
      frame_open_ = false;
      return;
  }
}

void AnswerParser::BeginCall(CallEntry entry, std::string raw) {
  state_ = State::kCall;
  call_begun_ = false;
  call_space_ = std::exchange(space_, std::string());
  raw_ = call_space_ + raw;
  reader_->Begin(entry);
}

void AnswerParser::TakeInCall(char c) {
  const CallReader::Step step = reader_->Take(c, &writer_);
  call_begun_ = call_begun_ || writer_.in_call() || step == CallReader::Step::kDone;
  switch (step) {
    case CallReader::Step::kMore:
      if (call_begun_) {
        raw_.clear();
        DropSpace(std::exchange(call_space_, std::string()));
      } else {
        raw_.push_back(c);
        if (raw_.size() >= kToolCallHeldBytesMax) CallBroke(std::nullopt);
      }
      return;
    case CallReader::Step::kDone:
      raw_.clear();
      frame_open_ = true;
      return Lead(true);
    case CallReader::Step::kBroken:
      return CallBroke(c);
  }
}

void AnswerParser::CallBroke(std::optional<char> c) {
  std::string rest;
  if (call_begun_) {
    raw_.clear();
    rest = reader_->Unused();
    Lead(true);
  } else {
    // Its end may be the beginning of a mark, and of a true call.
    const size_t partial = PartialMark(raw_, content_marks_.texts);
    rest = raw_.substr(raw_.size() - partial);
    raw_.resize(raw_.size() - partial);
    state_ = State::kContent;
    Give(std::exchange(raw_, std::string()));
  }
  if (c.has_value()) rest.push_back(*c);
  for (const char byte : rest) TakeByte(byte);
}

void AnswerParser::Lead(bool after_call) {
  state_ = State::kLead;
  after_call_ = after_call;
  if (!after_call) frame_open_ = false;
  drop_space_ = true;
}

void AnswerParser::DropSpace(std::string space) {
  if (content_given_ && gap_.empty()) gap_ = std::move(space);
}

void AnswerParser::Give(absl::string_view text) {
  if (text.empty()) return;
  const std::string space = std::exchange(space_, std::string());
  if (state_ == State::kReasoning) {
    if (reasoning_empty_ && reasoning_given_) writer_.Reasoning("\n");
    reasoning_empty_ = false;
    reasoning_given_ = true;
    writer_.Reasoning(space);
    writer_.Reasoning(text);
  } else {
    writer_.Content(std::exchange(gap_, std::string()));
    content_given_ = true;
    writer_.Content(space);
    writer_.Content(text);
  }
}

bool AnswerParser::HoldSpace(char c) {
  space_.push_back(c);
  if (space_.size() < kAnswerSpaceHeldBytesMax) return true;
  Give(std::exchange(space_, std::string()));
  return false;
}

void AnswerParser::Finish(std::vector<AnswerPart>* out) {
  writer_.SetOut(out);
  switch (state_) {
    case State::kLead:
      state_ = State::kContent;
      Give((after_call_ ? after_call_marks_ : lead_marks_).matcher.Release());
      break;
    case State::kReasoning:
      Give(reasoning_marks_.matcher.Release());
      return space_.clear();
    case State::kContent:
      Give(content_marks_.matcher.Release());
      break;
    case State::kCall:
      state_ = State::kContent;
      if (call_begun_) {
        reader_->Cut(&writer_);
        writer_.EndCall(false);
      } else {
        Give(std::exchange(raw_, std::string()));
      }
      break;
  }
  Give(std::exchange(space_, std::string()));
}

}  // namespace weft::router
