// The tools of one request, as far as parsers have to know them: their names, and which JSON types
// a parameter may have. Made once a request, read by the parsers of all its choices; immutable, so
// any thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "router/answer_parts.h"

namespace weft::router {

// A set of JSON types. Numbers, objects and arrays need no telling apart: their text shows them.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonString = 1;
inline constexpr JsonTypes kJsonBoolean = 2;
inline constexpr JsonTypes kJsonNull = 4;
inline constexpr JsonTypes kJsonOther = 8;
inline constexpr JsonTypes kJsonAny = 15;

class ToolSet {
 public:
  struct Tool {
    absl::flat_hash_map<std::string, JsonTypes> parameters;
  };

  // Without tools: no name is held against a list, every one is taken for a tool's.
  ToolSet() = default;
  explicit ToolSet(const std::vector<ToolSpec>& tools);

  bool empty() const { return tools_.empty(); }
  // nullptr when there is none of that name.
  const Tool* Find(absl::string_view name) const;
  // kJsonAny where the schema does not say, or `tool` is nullptr.
  static JsonTypes Types(const Tool* tool, absl::string_view parameter);

 private:
  absl::flat_hash_map<std::string, Tool> tools_;
};

}  // namespace weft::router
