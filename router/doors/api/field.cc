#include "router/doors/api/field.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::router::api {

std::string ObjectSchema(const ApiFields& fields) {
  std::vector<std::string> properties;
  std::vector<std::string> required;
  for (const ApiField& field : fields) {
    properties.push_back(absl::StrCat("\"", field.name, "\":{", field.schema, "}"));
    if (field.required) required.push_back(absl::StrCat("\"", field.name, "\""));
  }
  std::string schema =
      absl::StrCat(R"("type":"object","properties":{)", absl::StrJoin(properties, ","), "}");
  if (!required.empty()) {
    absl::StrAppend(&schema, R"(,"required":[)", absl::StrJoin(required, ","), "]");
  }
  return schema;
}

void AddRefused(absl::Span<const RefusedField> refused, ApiFields* fields) {
  for (const RefusedField& field : refused) {
    // JSON Schema has no word for a field that may be null alone but this.
    const std::string values =
        field.neutral.empty()
            ? R"("type":"null")"
            : absl::StrCat(R"("enum":[)", absl::StrJoin(absl::StrSplit(field.neutral, '|'), ","),
                           "]");
    fields->push_back({field.name, absl::StrCat(values, R"(,"description":"not served")")});
  }
}

void AddFields(const ApiFields& more, ApiFields* fields) {
  fields->insert(fields->end(), more.begin(), more.end());
}

}  // namespace weft::router::api
