#include "router/doors/http/json.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "boost/json/stream_parser.hpp"
#include "router/text/parts/json_text.h"

namespace weft::router {
namespace {

// Length of the UTF-8 character that begins at `bytes`, or 0 when there is none (RFC 3629: no
// overlong forms, no surrogates, at most U+10FFFF).
size_t CharacterBytes(const unsigned char* bytes, size_t left) {
  const unsigned char lead = bytes[0];
  const auto tail = [&](size_t i) { return i < left && (bytes[i] & 0xc0) == 0x80; };
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return tail(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    if (!tail(1) || !tail(2)) return 0;
    if (lead == 0xe0 && bytes[1] < 0xa0) return 0;
    if (lead == 0xed && bytes[1] > 0x9f) return 0;
    return 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (lead == 0xf0 && bytes[1] < 0x90) return 0;
    if (lead == 0xf4 && bytes[1] > 0x8f) return 0;
    return 4;
  }
  return 0;
}

template <typename T>
void AppendNumber(T value, std::string* out) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out->append(buffer, result.ptr - buffer);
}

}  // namespace

absl::StatusOr<boost::json::value> ParseJson(absl::string_view text) {
  boost::json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code error;
  const size_t read = parser.write_some(text.data(), text.size(), error);
  if (!error && read < text.size()) error = boost::json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not valid JSON: ", error.message(), " at byte ", read));
  }
  return parser.release();
}

void AppendJsonString(absl::string_view text, std::string* out) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  out->push_back('"');
  size_t run = 0;  // start of what can be copied as it is
  size_t at = 0;
  while (at < text.size()) {
    const unsigned char byte = bytes[at];
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
      ++at;
      continue;
    }
    const size_t length = byte < 0x80 ? 0 : CharacterBytes(bytes + at, text.size() - at);
    if (length > 0) {
      at += length;
      continue;
    }
    out->append(text.data() + run, at - run);
    if (byte < 0x80) {
      AppendJsonByte(text[at], out);
    } else {
      out->append("\xef\xbf\xbd");
    }
    run = ++at;
  }
  out->append(text.data() + run, at - run);
  out->push_back('"');
}

JsonWriter& JsonWriter::Key(absl::string_view name) {
  Comma();
  out_->push_back('"');
  out_->append(name.data(), name.size());
  out_->append("\":");
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(absl::string_view text) {
  Comma();
  AppendJsonString(text, out_);
  return *this;
}

JsonWriter& JsonWriter::Unsigned(uint64_t value) {
  Comma();
  AppendNumber(value, out_);
  return *this;
}

JsonWriter& JsonWriter::Signed(int64_t value) {
  Comma();
  AppendNumber(value, out_);
  return *this;
}

JsonWriter& JsonWriter::Float(float value) {
  if (!std::isfinite(value)) return Null();
  Comma();
  AppendNumber(value, out_);
  return *this;
}

JsonWriter& JsonWriter::Raw(absl::string_view json) {
  Comma();
  out_->append(json.data(), json.size());
  return *this;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Comma();
  out_->push_back(bracket);
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_->push_back(bracket);
  comma_ = true;
  return *this;
}

}  // namespace weft::router
