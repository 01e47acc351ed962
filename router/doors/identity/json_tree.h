// A JSON document in which every value knows its line, for files that people write: Boost.JSON's
// parser fed line by line into a small tree. Used by readers of configuration at start-up and on
// reload; stateless.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft::router {

struct JsonNode {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  // The line it ends on (of an array or object: begins on), from 1.
  int line = 1;
  bool truth = false;
  double number = 0;
  // Set when the number is written as one that fits.
  absl::optional<int64_t> integer;
  std::string text;
  std::vector<JsonNode> items;
  // Of an object: the name of each item.
  std::vector<std::string> names;

  // The member of that name, or null.
  const JsonNode* Find(absl::string_view name) const;
};

// "an object", "a number" ...
absl::string_view KindName(JsonNode::Kind kind);

// Parses a whole file: RFC 8259, valid UTF-8, no comments; at most kJsonTreeDepthMax levels and
// kJsonTreeValuesMax values. An object with two members of one name is refused.
// INVALID_ARGUMENT "path:line:column: what" otherwise.
inline constexpr size_t kJsonTreeDepthMax = 8;
inline constexpr size_t kJsonTreeValuesMax = 200'000;
absl::StatusOr<JsonNode> ParseJsonTree(const std::string& path, absl::string_view text);

}  // namespace weft::router
