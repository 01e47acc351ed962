// Calls as models write them, in the form of each format that has a parser. For tests that hold of
// all formats.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "boost/json/object.hpp"

namespace weft::router {

struct SampleCall {
  std::string name;
  boost::json::object arguments;
};

// All calls of an answer with their marks, as the format's chat template writes them.
std::string WriteCalls(absl::string_view tool_parser, const std::vector<SampleCall>& calls);

// How the format's calls begin: the text that a broken one begins with.
std::string OpeningOf(absl::string_view tool_parser);

// Whether text may stand in front of calls.
bool MayFollowText(absl::string_view tool_parser);

}  // namespace weft::router
