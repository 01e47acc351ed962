// JSON both ways for the HTTP doors: a writer that appends to a string without building a tree, and
// a parser with limits. Used on io_context threads; stateless but for the writer's comma.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"

namespace weft::router {

// Depth of nesting that a body may have.
inline constexpr size_t kJsonDepthMax = 32;

// Parses a whole body: RFC 8259, valid UTF-8 only, no comments, no trailing commas. Of duplicate
// keys the last one counts. INVALID_ARGUMENT with the byte position otherwise.
absl::StatusOr<boost::json::value> ParseJson(absl::string_view text);

// Appends `text` as a JSON string, quotes included. Control characters, quote and backslash are
// escaped, UTF-8 goes through as it is, and a byte that is no UTF-8 becomes U+FFFD.
void AppendJsonString(absl::string_view text, std::string* out);

// Appends JSON to a string. Commas are written by it; the nesting is the caller's business.
class JsonWriter {
 public:
  // `out` must outlive the writer.
  explicit JsonWriter(std::string* out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  // `name` is a literal that needs no escape.
  JsonWriter& Key(absl::string_view name);
  JsonWriter& String(absl::string_view text);
  JsonWriter& Unsigned(uint64_t value);
  JsonWriter& Signed(int64_t value);
  // Shortest text that reads back as the same float; a value that is not finite becomes null.
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Null() { return Raw("null"); }
  // Appends a value that is JSON already.
  JsonWriter& Raw(absl::string_view json);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Comma() {
    if (comma_) out_->push_back(',');
    comma_ = true;
  }

  std::string* const out_;
  // A value stands before the place of writing.
  bool comma_ = false;
};

}  // namespace weft::router
