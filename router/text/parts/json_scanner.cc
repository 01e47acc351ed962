#include "router/text/parts/json_scanner.h"

#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

ValueStep JsonScanner::Take(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return TakeInString(c);
    case State::kWord:
      return TakeInWord(c);
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits:
      return TakeInNumber(c);
    case State::kDone:
      return ValueStep::kBroken;
    default:
      break;
  }
  if (IsJsonSpace(c)) return ValueStep::kMore;
  switch (state_) {
    case State::kFirstKey:
      if (c == '}') return Close('{');
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return ValueStep::kBroken;
      key_ = true;
      return To(State::kString);
    case State::kColon:
      return c == ':' ? To(State::kValue) : ValueStep::kBroken;
    case State::kNext:
      return TakeNext(c);
    case State::kFirstElement:
      if (c == ']') return Close('[');
      return BeginValue(c);
    default:
      return BeginValue(c);
  }
}

bool JsonScanner::CanEnd() const {
  return state_ == State::kDone ||
         (open_.empty() && (state_ == State::kZero || state_ == State::kInteger ||
                            state_ == State::kFraction || state_ == State::kExponentDigits));
}

ValueStep JsonScanner::BeginValue(char c) {
  switch (c) {
    case '{':
    case '[':
      return Open(c);
    case '"':
      key_ = false;
      return To(State::kString);
    case '-':
      return To(State::kMinus);
    case '0':
      return To(State::kZero);
    case 't':
      word_ = "rue";
      return To(State::kWord);
    case 'f':
      word_ = "alse";
      return To(State::kWord);
    case 'n':
      word_ = "ull";
      return To(State::kWord);
    default:
      return IsDigit(c) ? To(State::kInteger) : ValueStep::kBroken;
  }
}

ValueStep JsonScanner::TakeNext(char c) {
  if (c == ',') return To(open_.back() == '{' ? State::kKey : State::kValue);
  if (c == '}') return Close('{');
  if (c == ']') return Close('[');
  return ValueStep::kBroken;
}

ValueStep JsonScanner::TakeInString(char c) {
  if (state_ == State::kEscape) {
    if (c == 'u') {
      hex_left_ = 4;
      return To(State::kHex);
    }
    if (absl::string_view("\"\\/bfnrt").find(c) == absl::string_view::npos) {
      return ValueStep::kBroken;
    }
    return To(State::kString);
  }
  if (state_ == State::kHex) {
    if (HexValue(c) < 0) return ValueStep::kBroken;
    return --hex_left_ == 0 ? To(State::kString) : ValueStep::kMore;
  }
  if (c == '\\') return To(State::kEscape);
  if (c != '"') return ValueStep::kMore;
  if (key_) return To(State::kColon);
  return EndValue();
}

ValueStep JsonScanner::TakeInNumber(char c) {
  const bool digit = IsDigit(c);
  switch (state_) {
    case State::kMinus:
      if (c == '0') return To(State::kZero);
      return digit ? To(State::kInteger) : ValueStep::kBroken;
    case State::kPoint:
      return digit ? To(State::kFraction) : ValueStep::kBroken;
    case State::kExponent:
      if (c == '+' || c == '-') return To(State::kExponentSign);
      return digit ? To(State::kExponentDigits) : ValueStep::kBroken;
    case State::kExponentSign:
      return digit ? To(State::kExponentDigits) : ValueStep::kBroken;
    case State::kExponentDigits:
      if (digit) return ValueStep::kMore;
      break;
    default:
      if (digit && state_ != State::kZero) return ValueStep::kMore;
      if (c == '.' && state_ != State::kFraction) return To(State::kPoint);
      if (c == 'e' || c == 'E') return To(State::kExponent);
  }
  if (EndValue() == ValueStep::kEnd) return ValueStep::kEndBefore;
  return Take(c);
}

ValueStep JsonScanner::TakeInWord(char c) {
  if (c != word_.front()) return ValueStep::kBroken;
  word_.remove_prefix(1);
  return word_.empty() ? EndValue() : ValueStep::kMore;
}

ValueStep JsonScanner::Open(char bracket) {
  if (open_.size() == depth_max_) return ValueStep::kBroken;
  open_.push_back(bracket);
  return To(bracket == '{' ? State::kFirstKey : State::kFirstElement);
}

ValueStep JsonScanner::Close(char bracket) {
  if (open_.back() != bracket) return ValueStep::kBroken;
  open_.pop_back();
  return EndValue();
}

ValueStep JsonScanner::EndValue() {
  if (!open_.empty()) return To(State::kNext);
  state_ = State::kDone;
  return ValueStep::kEnd;
}

}  // namespace weft::router
