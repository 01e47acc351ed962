#include "router/text/parts/pythonic_call_reader.h"

#include "absl/strings/ascii.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

bool MayBeginName(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }

// Tools may have dots and dashes in their names.
bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

}  // namespace

void PythonicCallReader::Begin(CallEntry entry) {
  *this = PythonicCallReader();
  list_ = entry != CallEntry::kFrame;
}

bool PythonicCallReader::MayFollow(char c) const { return MayBeginName(c); }

CallReader::Step PythonicCallReader::Take(char c, PartWriter* writer) {
  if (state_ == State::kValue) return TakeValue(c, writer);
  if (state_ == State::kName) {
    if (c == '(') {
      if (!writer->BeginCall(text_)) return Step::kBroken;
      return To(State::kFirstKey);
    }
    if (!IsNameByte(c) || text_.size() == kCalledNameBytesMax) return Broken(writer);
    text_.push_back(c);
    return Step::kMore;
  }
  if (state_ == State::kInKey && IsNameByte(c)) {
    if (text_.size() == kCalledNameBytesMax) return Broken(writer);
    text_.push_back(c);
    return Step::kMore;
  }
  if (IsJsonSpace(c)) {
    if (state_ == State::kInKey) state_ = State::kEquals;
    return Step::kMore;
  }
  switch (state_) {
    case State::kFrame:
      if (c == '[' && !list_) {
        list_ = true;
        return Step::kMore;
      }
      if (!list_ || !MayBeginName(c)) return Broken(writer);
      text_.assign(1, c);
      return To(State::kName);
    case State::kFirstKey:
    case State::kKey:
      if (c == ')') return EndCall(writer);
      if (!MayBeginName(c)) return Broken(writer);
      text_.assign(1, c);
      return To(State::kInKey);
    case State::kInKey:
    case State::kEquals: {
      if (c != '=') return Broken(writer);
      std::string out = has_arguments_ ? ", \"" : "{\"";
      AppendJsonBytes(text_, &out);
      out.append("\": ");
      writer->Arguments(out);
      has_arguments_ = true;
      value_ = PythonReader();
      return To(State::kValue);
    }
    case State::kNext:
      if (c == ',') return To(State::kKey);
      return c == ')' ? EndCall(writer) : Broken(writer);
    default:
      return Broken(writer);
  }
}

CallReader::Step PythonicCallReader::TakeValue(char c, PartWriter* writer) {
  std::string out;
  const ValueStep step = value_.Take(c, &out);
  writer->Arguments(out);
  switch (step) {
    case ValueStep::kMore:
      return Step::kMore;
    case ValueStep::kEnd:
      return To(State::kNext);
    case ValueStep::kEndBefore:
      state_ = State::kNext;
      return Take(c, writer);
    default:
      return Broken(writer);
  }
}

CallReader::Step PythonicCallReader::EndCall(PartWriter* writer) {
  writer->Arguments(has_arguments_ ? "}" : "{}");
  writer->EndCall(true);
  return Step::kDone;
}

CallReader::Step PythonicCallReader::Broken(PartWriter* writer) {
  if (writer->in_call()) writer->EndCall(false);
  return Step::kBroken;
}

}  // namespace weft::router
