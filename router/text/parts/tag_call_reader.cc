#include "router/text/parts/tag_call_reader.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

std::vector<absl::string_view> NotEmpty(absl::string_view mark) {
  if (mark.empty()) return {};
  return {mark};
}

}  // namespace

TagCallReader::TagCallReader(const TagForm& form)
    : form_(form),
      value_close_line_(absl::StrCat("\n", form.value_close)),
      frame_(NotEmpty(form.call_open)),
      between_({form.parameter_open, form.call_close}),
      value_(form.lines ? std::vector<absl::string_view>{form.value_close, value_close_line_}
                        : std::vector<absl::string_view>{form.value_close}) {}

void TagCallReader::Begin(CallEntry entry) {
  state_ = entry == CallEntry::kCall ? State::kName : State::kFrame;
  text_.clear();
  tail_at_ = 0;
  has_parameter_ = false;
  frame_.Release();
  between_.Release();
  value_.Release();
}

CallReader::Step TagCallReader::Take(char c, PartWriter* writer) {
  switch (state_) {
    case State::kFrame: {
      if (frame_.held().empty() && IsJsonSpace(c)) return Step::kMore;
      std::string other;
      if (frame_.Take(c, &other) != MarkMatcher::kNone) return To(State::kName);
      return other.empty() ? Step::kMore : Step::kBroken;
    }
    case State::kName:
      return TakeInName(c, writer);
    case State::kNameTail:
      return TakeTail(form_.name_tail, c, writer);
    case State::kBetween:
      return TakeBetween(c, writer);
    case State::kKey:
      return TakeInKey(c, writer);
    case State::kKeyTail:
      return TakeTail(form_.key_tail, c, writer);
    case State::kAttributes:
      if (c == '>') return BeginValue(writer);
      if (c == '<' || text_.size() >= kCalledNameBytesMax) return Broken(writer);
      text_.push_back(c);
      return Step::kMore;
    case State::kFirstOfValue:
      state_ = State::kValue;
      if (c == '\n') return Step::kMore;
      [[fallthrough]];
    case State::kValue:
      return TakeInValue(c, writer);
  }
  return Step::kBroken;
}

CallReader::Step TagCallReader::TakeInName(char c, PartWriter* writer) {
  if (form_.name_stops.find(c) == absl::string_view::npos) {
    if (c == '<' || c == '{' || text_.size() >= kCalledNameBytesMax) return Step::kBroken;
    // GLM puts a line feed behind its opening mark at times.
    if (text_.empty() && IsJsonSpace(c)) return Step::kMore;
    text_.push_back(c);
    return Step::kMore;
  }
  if (text_.empty() && c == '\n') return Step::kMore;
  if (!writer->BeginCall(absl::StripAsciiWhitespace(text_))) return Step::kBroken;
  if (!form_.name_tail.empty()) return To(State::kNameTail);
  To(State::kBetween);
  return c == '<' ? TakeBetween(c, writer) : Step::kMore;
}

CallReader::Step TagCallReader::TakeTail(absl::string_view tail, char c, PartWriter* writer) {
  if (tail[tail_at_] == ' ') {
    if (IsJsonSpace(c)) return Step::kMore;
    ++tail_at_;
  }
  if (c != tail[tail_at_]) {
    // What has been taken of a tag in vain may begin another.
    const size_t blank = tail.substr(0, tail_at_).rfind(' ');
    const bool first_tag = blank == absl::string_view::npos;
    strays_ = first_tag && form_.key_stop == '<' ? "<" : "";
    absl::StrAppend(&strays_, tail.substr(0, tail_at_).substr(first_tag ? 0 : blank + 1));
    return Broken(writer);
  }
  if (++tail_at_ < tail.size()) return Step::kMore;
  return state_ == State::kNameTail ? To(State::kBetween) : BeginValue(writer);
}

CallReader::Step TagCallReader::TakeBetween(char c, PartWriter* writer) {
  if (between_.held().empty() && IsJsonSpace(c)) return Step::kMore;
  const std::string held = between_.held();
  std::string other;
  const int mark = between_.Take(c, &other);
  if (mark == 0) {
    text_.clear();
    return To(State::kKey);
  }
  if (mark == 1) {
    writer->Arguments(has_parameter_ ? "}" : "{}");
    writer->EndCall(true);
    return Step::kDone;
  }
  if (other.empty()) return Step::kMore;
  strays_ = held;
  return Broken(writer);
}

CallReader::Step TagCallReader::TakeInKey(char c, PartWriter* writer) {
  if (c != form_.key_stop) {
    if (c == '<' || text_.size() >= kCalledNameBytesMax) return Broken(writer);
    text_.push_back(c);
    return Step::kMore;
  }
  key_ = std::exchange(text_, std::string());
  if (!form_.key_tail.empty()) return To(State::kKeyTail);
  return form_.attributes ? To(State::kAttributes) : BeginValue(writer);
}

CallReader::Step TagCallReader::BeginValue(PartWriter* writer) {
  std::string out = has_parameter_ ? ", \"" : "{\"";
  const absl::string_view key = absl::StripAsciiWhitespace(key_);
  AppendJsonBytes(key, &out);
  out.append("\": ");
  writer->Arguments(out);
  has_parameter_ = true;
  JsonTypes types = writer->Types(key);
  if (form_.attributes && absl::StrContains(text_, "string=\"true\"")) types = kJsonString;
  if (form_.attributes && absl::StrContains(text_, "string=\"false\"")) {
    types = types == kJsonString ? kJsonAny : types;
  }
  parameter_.Begin(types, writer);
  return To(form_.lines ? State::kFirstOfValue : State::kValue);
}

CallReader::Step TagCallReader::TakeInValue(char c, PartWriter* writer) {
  std::string text;
  const bool ended = value_.Take(c, &text) != MarkMatcher::kNone;
  if (!parameter_.Take(text, writer)) return Broken(writer);
  if (!ended) return Step::kMore;
  parameter_.End(writer);
  return To(State::kBetween);
}

CallReader::Step TagCallReader::Broken(PartWriter* writer) {
  if (writer->in_call()) writer->EndCall(false);
  return Step::kBroken;
}

void TagCallReader::Cut(PartWriter* writer) {
  // The beginning of a closing tag is left out: it is one more likely than not.
  if (state_ == State::kValue) parameter_.Cut(writer);
}

}  // namespace weft::router
