#include "router/text/parts/json_call_reader.h"

#include <utility>

#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

// No key that means something is longer.
constexpr size_t kKeyBytesMax = 16;

}  // namespace

void JsonCallReader::Begin(CallEntry entry) {
  *this = JsonCallReader();
  if (entry != CallEntry::kFrame) state_ = State::kObject;
}

CallReader::Step JsonCallReader::Take(char c, PartWriter* writer) {
  if (state_ == State::kValue) return TakeValue(c, writer);
  if (state_ == State::kInKey) return TakeKey(c, writer);
  if (IsJsonSpace(c)) return Step::kMore;
  switch (state_) {
    case State::kFrame:
      if (c == '[' && !list_) {
        list_ = true;
        return Step::kMore;
      }
      [[fallthrough]];
    case State::kObject:
      return c == '{' ? To(State::kFirstKey) : Broken(writer);
    case State::kFirstKey:
      if (c == '}') return EndObject(writer);
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Broken(writer);
      text_.clear();
      key_reader_ = JsonStringReader();
      // A scanner finds the key's end: its escapes are those of any string.
      scanner_ = JsonScanner();
      scanner_.Take(c);
      return To(State::kInKey);
    case State::kColon:
      if (c != ':') return Broken(writer);
      scanner_ = JsonScanner();
      text_.clear();
      return To(State::kValue);
    case State::kNext:
      if (c == '}') return EndObject(writer);
      return c == ',' ? To(State::kKey) : Broken(writer);
    default:
      return Broken(writer);
  }
}

CallReader::Step JsonCallReader::TakeKey(char c, PartWriter* writer) {
  // Neither key nor name goes over a line: its end is missing.
  if (static_cast<unsigned char>(c) < 0x20) return Broken(writer);
  switch (scanner_.Take(c)) {
    case ValueStep::kMore:
      if (text_.size() < kKeyBytesMax) key_reader_.Take(c, &text_);
      return Step::kMore;
    case ValueStep::kEnd:
      break;
    default:
      return Broken(writer);
  }
  role_ = Role::kOther;
  if (text_ == "name" && !has_name_) role_ = Role::kName;
  if ((text_ == "arguments" || text_ == "parameters") && !has_arguments_) {
    role_ = Role::kArguments;
    has_arguments_ = true;
  }
  return To(State::kColon);
}

CallReader::Step JsonCallReader::TakeValue(char c, PartWriter* writer) {
  const ValueStep step = role_ == Role::kArguments ? TakeArguments(c, writer) : scanner_.Take(c);
  if (role_ == Role::kName) {
    // A name is a string, and a short one.
    if (text_.empty() && IsJsonSpace(c)) return Step::kMore;
    if (step == ValueStep::kBroken || (text_.empty() && c != '"') ||
        static_cast<unsigned char>(c) < 0x20 || text_.size() > kCalledNameBytesMax) {
      return Broken(writer);
    }
    text_.push_back(c);
    if (step == ValueStep::kEnd && !EndName(writer)) return Step::kBroken;
  }
  switch (step) {
    case ValueStep::kMore:
      return Step::kMore;
    case ValueStep::kEnd:
      return To(State::kNext);
    case ValueStep::kEndBefore:
      state_ = State::kNext;
      return Take(c, writer);
    case ValueStep::kBroken:
      break;
  }
  return Broken(writer);
}

ValueStep JsonCallReader::TakeArguments(char c, PartWriter* writer) {
  if (!writer->in_call()) return arguments_.Take(c, &early_arguments_);
  std::string out;
  const ValueStep step = arguments_.Take(c, &out);
  writer->Arguments(out);
  return step;
}

bool JsonCallReader::EndName(PartWriter* writer) {
  std::string name;
  JsonStringReader reader;
  for (size_t i = 1; i + 1 < text_.size(); ++i) reader.Take(text_[i], &name);
  reader.Finish(&name);
  if (!writer->BeginCall(name)) return false;
  has_name_ = true;
  writer->Arguments(std::exchange(early_arguments_, std::string()));
  return true;
}

CallReader::Step JsonCallReader::EndObject(PartWriter* writer) {
  if (!has_name_) return Step::kBroken;
  writer->EndCall(true);
  return Step::kDone;
}

CallReader::Step JsonCallReader::Broken(PartWriter* writer) {
  if (writer->in_call()) writer->EndCall(false);
  return Step::kBroken;
}

void JsonCallReader::Cut(PartWriter* writer) {
  if (state_ != State::kValue || role_ != Role::kArguments) return;
  std::string out;
  arguments_.Cut(&out);
  writer->Arguments(out);
}

}  // namespace weft::router
