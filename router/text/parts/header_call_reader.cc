#include "router/text/parts/header_call_reader.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

using Family = ToolFormat::Family;

std::vector<absl::string_view> FrameMarks(Family family) {
  if (family == Family::kDeepSeek) return {"<｜tool▁call▁begin｜>"};
  if (family == Family::kKimi) return {"<|tool_call_begin|>"};
  return {};
}

std::vector<absl::string_view> Separators(Family family) {
  if (family == Family::kDeepSeek) return {"<｜tool▁sep｜>"};
  if (family == Family::kKimi) return {"<|tool_call_argument_begin|>"};
  return {"[ARGS]", "[CALL_ID]"};
}

// Kimi writes functions.NAME:INDEX.
absl::string_view KimiName(absl::string_view id) {
  absl::ConsumePrefix(&id, "functions.");
  const size_t colon = id.rfind(':');
  if (colon == absl::string_view::npos || colon + 1 == id.size()) return id;
  for (const char c : id.substr(colon + 1)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return id;
  }
  return id.substr(0, colon);
}

}  // namespace

HeaderCallReader::HeaderCallReader(Family family)
    : family_(family), frame_(FrameMarks(family)), separators_(Separators(family)) {}

void HeaderCallReader::Begin(CallEntry entry) {
  name_.clear();
  frame_.Release();
  separators_.Release();
  arguments_ = ArgumentsReader();
  state_ = entry == CallEntry::kCall ? State::kName : State::kFrame;
  if (family_ == Family::kMistral) {
    state_ = entry == CallEntry::kNext ? State::kJson : State::kMistral;
    json_.Begin(entry);
  }
}

bool HeaderCallReader::MayFollow(char c) const { return family_ == Family::kMistral && c == '{'; }

CallReader::Step HeaderCallReader::Take(char c, PartWriter* writer) {
  switch (state_) {
    case State::kFrame:
      return TakeInFrame(c);
    case State::kMistral:
      if (IsJsonSpace(c)) return Step::kMore;
      if (c != '{' && c != '[') {
        state_ = State::kName;
        return TakeInName(c, writer);
      }
      state_ = State::kJson;
      [[fallthrough]];
    case State::kJson:
      return json_.Take(c, writer);
    case State::kName:
    case State::kId:
      return TakeInName(c, writer);
    case State::kKind:
      if (IsJsonSpace(c)) return Step::kMore;
      if (c == '{') {
        // A tool of the kind's name: this was the name after all.
        const Step step = BeginCall(name_, writer);
        return step == Step::kMore ? TakeArguments(c, writer) : step;
      }
      name_.clear();
      state_ = State::kNameLine;
      [[fallthrough]];
    case State::kNameLine:
      if (c == '\n' || c == '`') {
        const Step step = BeginCall(absl::StripAsciiWhitespace(name_), writer);
        state_ = State::kFence;
        return step;
      }
      if (c == '<' || name_.size() > kCalledNameBytesMax) return Broken(writer);
      name_.push_back(c);
      return Step::kMore;
    case State::kFence:
      if (IsJsonSpace(c) || absl::string_view("`json").find(c) != absl::string_view::npos) {
        return Step::kMore;
      }
      state_ = State::kArguments;
      [[fallthrough]];
    case State::kArguments:
      return TakeArguments(c, writer);
  }
  return Step::kBroken;
}

CallReader::Step HeaderCallReader::TakeInFrame(char c) {
  if (frame_.held().empty() && IsJsonSpace(c)) return Step::kMore;
  std::string other;
  if (frame_.Take(c, &other) != MarkMatcher::kNone) return To(State::kName);
  return other.empty() ? Step::kMore : Step::kBroken;
}

CallReader::Step HeaderCallReader::TakeInName(char c, PartWriter* writer) {
  // Some of Mistral's models leave [ARGS] out.
  if (family_ == Family::kMistral && state_ == State::kName && c == '{' &&
      separators_.held().empty()) {
    const Step step = BeginCall(absl::StripAsciiWhitespace(name_), writer);
    return step == Step::kMore ? TakeArguments(c, writer) : step;
  }
  std::string text;
  const int separator = separators_.Take(c, &text);
  // No name has a byte that may begin a mark: another one is there, or text.
  for (const char other : text) {
    if (other == '<' || other == '[') return Broken(writer);
  }
  name_.append(text);
  if (name_.size() > kCalledNameBytesMax) return Broken(writer);
  return separator == MarkMatcher::kNone ? Step::kMore : EndName(separator, writer);
}

CallReader::Step HeaderCallReader::EndName(int separator, PartWriter* writer) {
  if (state_ == State::kId) {
    return separator == 0 ? To(State::kArguments) : Step::kMore;
  }
  const absl::string_view name = absl::StripAsciiWhitespace(name_);
  if (family_ == Family::kDeepSeek && name == "function") {
    name_ = "function";
    return To(State::kKind);
  }
  const Step step = BeginCall(family_ == Family::kKimi ? KimiName(name) : name, writer);
  if (step != Step::kMore) return step;
  name_.clear();
  if (separator == 1) return To(State::kId);
  return To(family_ == Family::kDeepSeek ? State::kFence : State::kArguments);
}

CallReader::Step HeaderCallReader::BeginCall(absl::string_view name, PartWriter* writer) {
  if (!writer->BeginCall(name)) return Step::kBroken;
  return To(State::kArguments);
}

CallReader::Step HeaderCallReader::TakeArguments(char c, PartWriter* writer) {
  std::string out;
  const ValueStep step = arguments_.Take(c, &out);
  writer->Arguments(out);
  switch (step) {
    case ValueStep::kMore:
      return Step::kMore;
    case ValueStep::kEnd:
      writer->EndCall(true);
      return Step::kDone;
    default:
      return Broken(writer);
  }
}

CallReader::Step HeaderCallReader::Broken(PartWriter* writer) {
  if (writer->in_call()) writer->EndCall(false);
  return Step::kBroken;
}

void HeaderCallReader::Cut(PartWriter* writer) {
  if (state_ == State::kJson) return json_.Cut(writer);
  if (state_ != State::kArguments) return;
  std::string out;
  arguments_.Cut(&out);
  writer->Arguments(out);
}

}  // namespace weft::router
