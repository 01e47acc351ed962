#include "router/text/parts/python_reader.h"

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

constexpr size_t kWordBytesMax = 64;
// Within the object of arguments.
constexpr size_t kDepthMax = kToolArgumentsDepthMax - 1;

bool IsWordByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' ||
         c == '-';
}

// JSON of a word, or of a number as Python writes it (1_000, .5, 5., +1); empty when it is none.
std::string JsonOfWord(absl::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  std::string number;
  for (const char c : word) {
    if (c == '_') continue;
    if (c == '+' && number.empty()) continue;
    const bool digit = absl::ascii_isdigit(static_cast<unsigned char>(c));
    const bool behind_point = !number.empty() && number.back() == '.';
    if (c == '.' && (number.empty() || number == "-")) number.push_back('0');
    if (behind_point && !digit) number.push_back('0');
    number.push_back(c);
  }
  if (!number.empty() && number.back() == '.') number.push_back('0');
  JsonScanner scanner;
  for (const char c : number) {
    if (scanner.Take(c) != ValueStep::kMore) return {};
  }
  return scanner.CanEnd() ? number : std::string();
}

}  // namespace

ValueStep PythonReader::Take(char c, std::string* out) {
  switch (state_) {
    case State::kString:
      if (c == '\\') return To(State::kEscape);
      if (c != quote_) {
        AppendJsonByte(c, out);
        return ValueStep::kMore;
      }
      out->push_back('"');
      if (key_) return To(State::kColon);
      return EndValue();
    case State::kEscape:
      return TakeEscaped(c, out);
    case State::kHex:
      return TakeHex(c, out);
    case State::kWord:
      if (!IsWordByte(c)) return EndWord(c, out);
      if (word_.size() == kWordBytesMax) return ValueStep::kBroken;
      word_.push_back(c);
      return ValueStep::kMore;
    case State::kDone:
      return ValueStep::kBroken;
    default:
      break;
  }
  if (IsJsonSpace(c)) return ValueStep::kMore;
  switch (state_) {
    case State::kColon:
      if (c != ':') return ValueStep::kBroken;
      out->append(": ");
      return To(State::kValue);
    case State::kNext:
      return TakeNext(c, out);
    case State::kElement:
    case State::kKey:
      if (c == ']' || c == ')' || c == '}') return Close(c, out);
      [[fallthrough]];
    default:
      return BeginValue(c, out);
  }
}

ValueStep PythonReader::BeginValue(char c, std::string* out) {
  key_ = state_ == State::kKey;
  const bool quote = c == '"' || c == '\'';
  if (key_ && !quote) return ValueStep::kBroken;
  const bool bracket = c == '[' || c == '(' || c == '{';
  if (!quote && !bracket && !IsWordByte(c)) return ValueStep::kBroken;
  if (bracket && open_.size() == kDepthMax) return ValueStep::kBroken;
  if (comma_) out->append(", ");
  comma_ = false;
  if (quote) {
    out->push_back('"');
    quote_ = c;
    return To(State::kString);
  }
  if (bracket) {
    open_.push_back(c);
    out->push_back(c == '{' ? '{' : '[');
    return To(c == '{' ? State::kKey : State::kElement);
  }
  word_.assign(1, c);
  return To(State::kWord);
}

ValueStep PythonReader::TakeNext(char c, std::string* out) {
  if (c != ',') return Close(c, out);
  comma_ = true;
  return To(open_.back() == '{' ? State::kKey : State::kElement);
}

ValueStep PythonReader::Close(char c, std::string* out) {
  const char open = c == ']' ? '[' : c == ')' ? '(' : c == '}' ? '{' : '\0';
  if (open_.empty() || open_.back() != open) return ValueStep::kBroken;
  open_.pop_back();
  comma_ = false;
  out->push_back(c == ')' ? ']' : c);
  return EndValue();
}

ValueStep PythonReader::EndWord(char c, std::string* out) {
  const std::string json = JsonOfWord(word_);
  if (json.empty()) return ValueStep::kBroken;
  out->append(json);
  if (EndValue() == ValueStep::kEnd) return ValueStep::kEndBefore;
  return Take(c, out);
}

ValueStep PythonReader::EndValue() {
  if (!open_.empty()) return To(State::kNext);
  state_ = State::kDone;
  return ValueStep::kEnd;
}

ValueStep PythonReader::TakeEscaped(char c, std::string* out) {
  state_ = State::kString;
  char plain = 0;
  switch (c) {
    case 'x':
    case 'u':
    case 'U':
      hex_left_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      unit_is_half_ = c == 'u';
      code_point_ = 0;
      return To(State::kHex);
    case '\n':
      return ValueStep::kMore;
    case '\\':
    case '\'':
    case '"':
      plain = c;
      break;
    case 'n':
      plain = '\n';
      break;
    case 't':
      plain = '\t';
      break;
    case 'r':
      plain = '\r';
      break;
    case 'b':
      plain = '\b';
      break;
    case 'f':
      plain = '\f';
      break;
    case 'a':
      plain = '\a';
      break;
    case 'v':
      plain = '\v';
      break;
    case '0':
      break;
    default:
      // Python leaves the backslash of an escape that it does not know.
      AppendJsonByte('\\', out);
      plain = c;
  }
  AppendJsonByte(plain, out);
  return ValueStep::kMore;
}

ValueStep PythonReader::TakeHex(char c, std::string* out) {
  const int digit = HexValue(c);
  if (digit < 0) return ValueStep::kBroken;
  code_point_ = code_point_ << 4 | static_cast<uint32_t>(digit);
  if (--hex_left_ > 0) return ValueStep::kMore;
  state_ = State::kString;
  if (unit_is_half_ && code_point_ >= 0xD800 && code_point_ <= 0xDFFF) {
    // Two halves in a row make a character in JSON as well.
    static constexpr char kHex[] = "0123456789abcdef";
    out->append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out->push_back(kHex[code_point_ >> shift & 15]);
    return ValueStep::kMore;
  }
  std::string text;
  AppendUtf8(code_point_, &text);
  AppendJsonBytes(text, out);
  return ValueStep::kMore;
}

}  // namespace weft::router
