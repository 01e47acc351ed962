#include "router/text/grammar/spec.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using Kind = GrammarSpec::Kind;

absl::string_view View(const boost::json::string& text) { return {text.data(), text.size()}; }

GrammarSpec OneText(Kind kind, std::string text) { return {kind, {std::move(text)}, false}; }

absl::StatusOr<const boost::json::object*> AsObject(const boost::json::value& value,
                                                    absl::string_view field) {
  if (!value.is_object()) return FieldError(field, "expected an object");
  return &value.as_object();
}

// A schema as it stands in a body: an object, a boolean, or a string that holds one.
absl::StatusOr<GrammarSpec> Schema(const boost::json::value& value, bool closed,
                                   absl::string_view field) {
  GrammarSpec spec;
  if (value.is_string()) {
    spec = OneText(Kind::kJsonSchema, std::string(View(value.as_string())));
  } else if (value.is_object() || value.is_bool()) {
    spec = OneText(Kind::kJsonSchema, boost::json::serialize(value));
  } else {
    return FieldError(field, "expected a JSON schema: an object, or a string that holds one");
  }
  spec.closed_objects = closed;
  return spec;
}

// OpenAI's wrapping: {"name": ..., "schema": ..., "strict": ...}.
absl::StatusOr<GrammarSpec> WrappedSchema(const boost::json::object& wrapped, bool closed,
                                          absl::string_view field) {
  const boost::json::value* const schema = wrapped.if_contains("schema");
  if (schema == nullptr) return FieldError(absl::StrCat(field, ".schema"), "is missing");
  const boost::json::value* const strict = wrapped.if_contains("strict");
  if (strict != nullptr && !strict->is_null()) {
    if (!strict->is_bool()) {
      return FieldError(absl::StrCat(field, ".strict"), "expected true, false or null");
    }
    closed = closed || strict->as_bool();
  }
  return Schema(*schema, closed, absl::StrCat(field, ".schema"));
}

absl::StatusOr<GrammarSpec> Text(Kind kind, const boost::json::value& value,
                                 absl::string_view field) {
  if (!value.is_string() || value.as_string().empty()) {
    return FieldError(field, "expected a string that is not empty");
  }
  return OneText(kind, std::string(View(value.as_string())));
}

absl::StatusOr<GrammarSpec> Choice(const boost::json::value& value, absl::string_view field) {
  if (!value.is_array() || value.as_array().empty()) {
    return FieldError(field, "expected an array of at least one string");
  }
  GrammarSpec spec;
  spec.kind = Kind::kChoice;
  for (const boost::json::value& text : value.as_array()) {
    if (!text.is_string() || text.as_string().empty()) {
      return FieldError(field, "expected strings that are not empty");
    }
    spec.texts.emplace_back(View(text.as_string()));
  }
  return spec;
}

// The document itself, or a string that holds it.
absl::StatusOr<GrammarSpec> StructuralTag(const boost::json::value& value,
                                          absl::string_view field) {
  if (value.is_string()) return Text(Kind::kStructuralTag, value, field);
  WEFT_RETURN_IF_ERROR(AsObject(value, field).status());
  return OneText(Kind::kStructuralTag, boost::json::serialize(value));
}

absl::StatusOr<absl::string_view> TypeOf(const boost::json::object& object,
                                         absl::string_view field) {
  const boost::json::value* const type = object.if_contains("type");
  if (type == nullptr || !type->is_string()) {
    return FieldError(absl::StrCat(field, ".type"), "expected a string");
  }
  return View(type->as_string());
}

// vLLM's name of a kind of grammar, without "guided_".
absl::StatusOr<GrammarSpec> ByName(absl::string_view name, const boost::json::value& value,
                                   absl::string_view field) {
  if (name == "json") return Schema(value, /*closed=*/false, field);
  if (name == "regex") return Text(Kind::kRegex, value, field);
  if (name == "choice") return Choice(value, field);
  if (name == "grammar") return Text(Kind::kLark, value, field);
  if (name == "structural_tag") return StructuralTag(value, field);
  if (name == "json_object") {
    if (!value.is_bool()) return FieldError(field, "expected true or false");
    if (!value.as_bool()) return absl::NotFoundError("no grammar");
    return GrammarSpec();
  }
  return FieldError(field,
                    "is no kind of grammar; expected json, json_object, regex, choice, "
                    "grammar or structural_tag");
}

}  // namespace

absl::string_view GrammarKindName(Kind kind) {
  switch (kind) {
    case Kind::kJsonSchema:
      return "json_schema";
    case Kind::kJsonObject:
      return "json_object";
    case Kind::kLark:
      return "lark";
    case Kind::kRegex:
      return "regex";
    case Kind::kChoice:
      return "choice";
    case Kind::kStructuralTag:
      break;
  }
  return "structural_tag";
}

absl::StatusOr<GrammarSpec> GrammarFromTgi(const boost::json::value& value,
                                           absl::string_view field) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object* const object, AsObject(value, field));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view type, TypeOf(*object, field));
  if (type == "json_object") {
    const boost::json::value* const given = object->if_contains("value");
    if (given == nullptr || given->is_null()) return GrammarSpec();
  }
  const boost::json::value* const given = object->if_contains("value");
  const std::string value_field = absl::StrCat(field, ".value");
  if (given == nullptr) return FieldError(value_field, "is missing");
  if (type == "regex") return Text(Kind::kRegex, *given, value_field);
  // TGI's own older name: json_object beside a schema is json.
  if (type == "json" || type == "json_object") return Schema(*given, /*closed=*/true, value_field);
  if (type == "json_schema") {
    if (given->is_object() && given->as_object().contains("schema")) {
      return WrappedSchema(given->as_object(), /*closed=*/true, value_field);
    }
    return Schema(*given, /*closed=*/true, value_field);
  }
  return FieldError(absl::StrCat(field, ".type"),
                    "expected json, json_schema, json_object or regex");
}

absl::StatusOr<GrammarSpec> GrammarFromResponseFormat(const boost::json::value& value,
                                                      absl::string_view field) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object* const object, AsObject(value, field));
  WEFT_ASSIGN_OR_RETURN(const absl::string_view type, TypeOf(*object, field));
  if (type == "text") return absl::NotFoundError("no grammar");
  // TGI's chats give its own grammars here, whose text or schema is a `value`.
  const boost::json::value* const given = object->if_contains("value");
  if (type == "json" || type == "regex" || (given != nullptr && !given->is_null())) {
    return GrammarFromTgi(value, field);
  }
  if (type == "json_object") return GrammarSpec();
  if (type == "structural_tag") return StructuralTag(value, field);
  if (type != "json_schema") {
    return FieldError(absl::StrCat(field, ".type"),
                      "expected text, json_object, json_schema, structural_tag, json or regex");
  }
  const boost::json::value* const wrapped = object->if_contains("json_schema");
  if (wrapped == nullptr) return WrappedSchema(*object, /*closed=*/false, field);
  const std::string inner = absl::StrCat(field, ".json_schema");
  WEFT_ASSIGN_OR_RETURN(const boost::json::object* const schema, AsObject(*wrapped, inner));
  return WrappedSchema(*schema, /*closed=*/false, inner);
}

absl::StatusOr<GrammarSpec> GrammarFromStructuredOutputs(const boost::json::value& value,
                                                         absl::string_view field) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object* const object, AsObject(value, field));
  constexpr absl::string_view kNames[] = {"json",   "json_object", "regex",
                                          "choice", "grammar",     "structural_tag"};
  absl::StatusOr<GrammarSpec> found = absl::NotFoundError("no grammar");
  absl::string_view first;
  for (const absl::string_view name : kNames) {
    const boost::json::value* const given = object->if_contains({name.data(), name.size()});
    if (given == nullptr || given->is_null()) continue;
    if (!first.empty()) {
      return FieldError(field, absl::StrCat("has ", first, " and ", name, "; expected one"));
    }
    absl::StatusOr<GrammarSpec> spec = ByName(name, *given, absl::StrCat(field, ".", name));
    // json_object: false is as good as none.
    if (absl::IsNotFound(spec.status())) continue;
    if (!spec.ok()) return spec;
    first = name;
    found = std::move(spec);
  }
  return found;
}

absl::StatusOr<GrammarSpec> GrammarFromGuided(absl::string_view name,
                                              const boost::json::value& value) {
  absl::string_view kind = name;
  constexpr absl::string_view kPrefix = "guided_";
  if (kind.substr(0, kPrefix.size()) == kPrefix) kind.remove_prefix(kPrefix.size());
  return ByName(kind, value, name);
}

}  // namespace weft::router
