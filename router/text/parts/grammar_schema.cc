#include "router/text/parts/grammar_schema.h"

#include <utility>

#include "boost/json/serialize.hpp"

namespace weft::router {
namespace {

namespace json = boost::json;

// The schema of a part, with the definitions that it may refer to.
json::object WithDefinitions(const json::value& schema, const json::value& root) {
  json::object part;
  if (schema.is_object()) part = schema.get_object();
  for (const char* const key : {"$defs", "definitions"}) {
    const json::value* const definitions = root.get_object().if_contains(key);
    if (definitions != nullptr && !part.contains(key)) part[key] = *definitions;
  }
  return part;
}

}  // namespace

std::vector<GrammarParameter> ParametersOf(const GrammarTool& tool) {
  std::vector<GrammarParameter> parameters;
  const json::object& schema = tool.schema.get_object();
  const json::value* const properties = schema.if_contains("properties");
  const json::value* const required = schema.if_contains("required");
  if (properties == nullptr || !properties->is_object()) return parameters;
  for (const json::key_value_pair& property : properties->get_object()) {
    GrammarParameter parameter;
    parameter.name.assign(property.key().data(), property.key().size());
    parameter.schema = WithDefinitions(property.value(), tool.schema);
    if (required != nullptr && required->is_array()) {
      for (const json::value& name : required->get_array()) {
        if (name.is_string() && name.get_string() == property.key()) parameter.required = true;
      }
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

JsonTypes TypesOf(const json::object& schema) {
  const json::value whole = {{"properties", {{"x", schema}}}};
  const ToolSet tools(std::vector<ToolSpec>{{"f", json::serialize(whole)}});
  return ToolSet::Types(tools.Find("f"), "x");
}

}  // namespace weft::router
