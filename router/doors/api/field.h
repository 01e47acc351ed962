// How a field of a request's body is described: its name and the JSON Schema of what it may hold.
// Only for the description of the API (openapi.h); what a field does is in the readers of each
// door. Pure functions over plain values; ranges come from the constants that the readers use.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/limits.h"
#include "router/doors/http/fields.h"
#include "router/range.h"

namespace weft::router::api {

struct ApiField {
  absl::string_view name;
  // Members of a JSON Schema (draft 2020-12), without braces. Of null, which every field that is
  // not required may be, it says nothing.
  std::string schema;
  bool required = false;
};
using ApiFields = std::vector<ApiField>;

inline ApiField Json(absl::string_view name, absl::string_view schema) {
  return {name, std::string(schema)};
}
inline ApiField Must(ApiField field) {
  field.required = true;
  return field;
}

inline ApiField Flag(absl::string_view name, bool otherwise) {
  return {name, absl::StrCat(R"("type":"boolean","default":)", otherwise ? "true" : "false")};
}
inline ApiField Text(absl::string_view name) { return {name, R"("type":"string")"}; }
inline ApiField Object(absl::string_view name) { return {name, R"("type":"object")"}; }

inline ApiField Whole(absl::string_view name, int64_t low, int64_t high) {
  return {name, absl::StrCat(R"("type":"integer","minimum":)", low, R"(,"maximum":)", high)};
}
inline ApiField Whole(absl::string_view name, int64_t low, int64_t high, int64_t otherwise) {
  ApiField field = Whole(name, low, high);
  absl::StrAppend(&field.schema, R"(,"default":)", otherwise);
  return field;
}
inline ApiField Real(absl::string_view name, const Range& range) {
  return {name,
          absl::StrCat(R"("type":"number",")", range.low_open ? "exclusiveMinimum" : "minimum",
                       "\":", NumberText(range.low), R"(,"maximum":)", NumberText(range.high))};
}
inline ApiField Real(absl::string_view name, const Range& range, double otherwise) {
  ApiField field = Real(name, range);
  absl::StrAppend(&field.schema, R"(,"default":)", NumberText(otherwise));
  return field;
}

// At most `most` entries, each of the schema `items`.
inline ApiField List(absl::string_view name, absl::string_view items, size_t most) {
  return {name, absl::StrCat(R"("type":"array","items":{)", items, R"(},"maxItems":)", most)};
}
inline std::string TokenIdSchema() {
  return absl::StrCat(R"("type":"integer","minimum":0,"maximum":)", kVocabMax - 1);
}

// Taken, and of no effect whatever it holds.
inline ApiField Ignored(absl::string_view name) {
  return {name, R"("description":"accepted, no effect")"};
}

// The members of an object, as a schema.
std::string ObjectSchema(const ApiFields& fields);

// Adds fields that are known and not served: they may be null or neutral.
void AddRefused(absl::Span<const RefusedField> refused, ApiFields* fields);

void AddFields(const ApiFields& more, ApiFields* fields);

}  // namespace weft::router::api
