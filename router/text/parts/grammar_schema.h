// What a grammar of calls has to know of the tools' schemas: their parameters one by one, for
// formats that write them one by one. Pure.

#pragma once

#include <string>
#include <vector>

#include "boost/json/object.hpp"
#include "boost/json/value.hpp"
#include "router/text/parts/tool_set.h"

namespace weft::router {

struct GrammarTool {
  std::string name;
  // A JSON object.
  boost::json::value schema;
};

// A property of a tool's arguments.
struct GrammarParameter {
  std::string name;
  // With the definitions of the whole, which it may refer to.
  boost::json::object schema;
  bool required = false;
};

// In the order of the schema.
std::vector<GrammarParameter> ParametersOf(const GrammarTool& tool);

// What a parser takes a parameter of this schema for.
JsonTypes TypesOf(const boost::json::object& schema);

}  // namespace weft::router
