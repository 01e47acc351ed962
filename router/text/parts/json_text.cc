#include "router/text/parts/json_text.h"

namespace weft::router {

void AppendJsonByte(char c, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      break;
  }
  if (byte >= 0x20) {
    out->push_back(c);
    return;
  }
  out->append("\\u00");
  out->push_back(kHex[byte >> 4]);
  out->push_back(kHex[byte & 15]);
}

void AppendJsonBytes(absl::string_view text, std::string* out) {
  for (const char c : text) AppendJsonByte(c, out);
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) code_point = 0xFFFD;
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void JsonStringReader::Take(char c, std::string* out) {
  switch (state_) {
    case State::kPlain:
      if (c == '\\') {
        state_ = State::kEscape;
        return;
      }
      break;
    case State::kEscape:
      TakeEscaped(c, out);
      return;
    case State::kHex:
      if (HexValue(c) >= 0) {
        unit_ = unit_ << 4 | static_cast<uint32_t>(HexValue(c));
        if (++digits_ == 4) {
          state_ = State::kPlain;
          TakeUnit(unit_, out);
        }
        return;
      }
      state_ = State::kPlain;
      break;
  }
  Finish(out);
  out->push_back(c);
}

void JsonStringReader::TakeEscaped(char c, std::string* out) {
  state_ = State::kPlain;
  if (c == 'u') {
    state_ = State::kHex;
    digits_ = 0;
    unit_ = 0;
    return;
  }
  Finish(out);
  switch (c) {
    case 'b':
      out->push_back('\b');
      return;
    case 'f':
      out->push_back('\f');
      return;
    case 'n':
      out->push_back('\n');
      return;
    case 'r':
      out->push_back('\r');
      return;
    case 't':
      out->push_back('\t');
      return;
    default:
      out->push_back(c);
  }
}

void JsonStringReader::TakeUnit(uint32_t unit, std::string* out) {
  if (high_ != 0 && unit >= 0xDC00 && unit <= 0xDFFF) {
    AppendUtf8(0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00), out);
    high_ = 0;
    return;
  }
  Finish(out);
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    high_ = unit;
  } else {
    AppendUtf8(unit, out);
  }
}

void JsonStringReader::Finish(std::string* out) {
  if (high_ != 0) AppendUtf8(0xFFFD, out);
  high_ = 0;
}

}  // namespace weft::router
