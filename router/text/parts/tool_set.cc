#include "router/text/parts/tool_set.h"

#include "boost/json/parse.hpp"
#include "boost/json/value.hpp"

namespace weft::router {
namespace {

namespace json = boost::json;

// Subschemas that are looked at for one parameter: references may go in circles.
constexpr int kSubschemasMax = 64;

JsonTypes TypeOfName(absl::string_view name) {
  if (name == "string") return kJsonString;
  if (name == "boolean") return kJsonBoolean;
  if (name == "null") return kJsonNull;
  return kJsonOther;
}

JsonTypes TypeOfValue(const json::value& value) {
  if (value.is_string()) return kJsonString;
  if (value.is_bool()) return kJsonBoolean;
  if (value.is_null()) return kJsonNull;
  return kJsonOther;
}

absl::string_view View(const json::string& text) { return {text.data(), text.size()}; }

class TypeReader {
 public:
  explicit TypeReader(const json::value& root) : root_(root) {}

  JsonTypes Read(const json::value& schema) {
    const json::object* const object = schema.if_object();
    if (object == nullptr || --left_ < 0) return kJsonAny;
    JsonTypes types = OfKeywords(*object);
    if (const json::value* const nullable = object->if_contains("nullable")) {
      if (nullable->is_bool() && nullable->get_bool()) types |= kJsonNull;
    }
    return types;
  }

 private:
  JsonTypes OfKeywords(const json::object& schema) {
    if (const json::value* const type = schema.if_contains("type")) return OfType(*type);
    if (const json::value* const value = schema.if_contains("const")) return TypeOfValue(*value);
    if (const json::value* const values = schema.if_contains("enum")) {
      JsonTypes types = 0;
      if (values->is_array()) {
        for (const json::value& value : values->get_array()) types |= TypeOfValue(value);
      }
      if (types != 0) return types;
    }
    if (const json::value* const reference = schema.if_contains("$ref")) {
      return OfReference(*reference);
    }
    for (const char* const keyword : {"anyOf", "oneOf"}) {
      if (const json::value* const branches = schema.if_contains(keyword)) {
        JsonTypes types = 0;
        if (branches->is_array()) {
          for (const json::value& branch : branches->get_array()) types |= Read(branch);
        }
        if (types != 0) return types;
      }
    }
    if (const json::value* const parts = schema.if_contains("allOf")) {
      JsonTypes types = kJsonAny;
      if (parts->is_array()) {
        for (const json::value& part : parts->get_array()) types &= Read(part);
      }
      if (types != 0) return types;
    }
    if (schema.contains("properties") || schema.contains("items")) return kJsonOther;
    return kJsonAny;
  }

  static JsonTypes OfType(const json::value& type) {
    if (type.is_string()) return TypeOfName(View(type.get_string()));
    JsonTypes types = 0;
    if (type.is_array()) {
      for (const json::value& one : type.get_array()) {
        if (one.is_string()) types |= TypeOfName(View(one.get_string()));
      }
    }
    return types == 0 ? kJsonAny : types;
  }

  // References within the document alone.
  JsonTypes OfReference(const json::value& reference) {
    if (!reference.is_string()) return kJsonAny;
    const absl::string_view text = View(reference.get_string());
    if (text.empty() || text.front() != '#') return kJsonAny;
    json::error_code error;
    const json::value* const target =
        root_.find_pointer(json::string_view(text.data() + 1, text.size() - 1), error);
    return target == nullptr ? kJsonAny : Read(*target);
  }

  const json::value& root_;
  int left_ = kSubschemasMax;
};

ToolSet::Tool ReadTool(absl::string_view schema) {
  ToolSet::Tool tool;
  json::error_code error;
  json::parse_options options;
  options.max_depth = 64;
  const json::value root =
      json::parse(json::string_view(schema.data(), schema.size()), error, {}, options);
  if (error || !root.is_object()) return tool;
  const json::value* const properties = root.get_object().if_contains("properties");
  if (properties == nullptr || !properties->is_object()) return tool;
  for (const json::key_value_pair& property : properties->get_object()) {
    tool.parameters.emplace(std::string(property.key().data(), property.key().size()),
                            TypeReader(root).Read(property.value()));
  }
  return tool;
}

}  // namespace

ToolSet::ToolSet(const std::vector<ToolSpec>& tools) {
  for (const ToolSpec& tool : tools) tools_.emplace(tool.name, ReadTool(tool.parameters));
}

const ToolSet::Tool* ToolSet::Find(absl::string_view name) const {
  const auto tool = tools_.find(name);
  return tool == tools_.end() ? nullptr : &tool->second;
}

JsonTypes ToolSet::Types(const Tool* tool, absl::string_view parameter) {
  if (tool == nullptr) return kJsonAny;
  const auto types = tool->parameters.find(parameter);
  return types == tool->parameters.end() ? kJsonAny : types->second;
}

}  // namespace weft::router
