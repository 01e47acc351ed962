// Tools whose members stand beside their type, as Anthropic and OpenAI's Responses list them, made
// into the list that chat templates are given. Keeps no state; on the thread that reads the
// request.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/doors/chat_json.h"
#include "router/doors/http/fields.h"

namespace weft::router {

// What differs between the two.
struct FlatToolForm {
  // The one type that is served: that of tools which the client runs.
  absl::string_view type;
  // A tool without a type has that one.
  bool type_optional = false;
  // The member with the JSON schema of the arguments.
  absl::string_view schema;
  bool schema_required = false;
  absl::Span<const absl::string_view> accepted;
  absl::Span<const RefusedField> refused;
};

// `tools`; nothing where there are none. Fields that nobody knows are added to *unknown with their
// path.
ToolList ReadFlatTools(FieldReader& fields, const FlatToolForm& form,
                       std::vector<std::string>* unknown);

}  // namespace weft::router
