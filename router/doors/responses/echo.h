// The members of an answer of /v1/responses that say what was asked for, as OpenAI repeats them.
// Pure functions.

#pragma once

#include <cstddef>
#include <string>

#include "boost/json/object.hpp"
#include "router/request.h"

namespace weft::router {

// A longer member, as JSON, is left out: an answer repeats it up to three times.
inline constexpr size_t kEchoBytesMax = 32u << 10;

// JSON members with commas between, without braces, of a body that was found good. Those that were
// not given, or are too long, have their neutral values.
std::string EchoOfRequest(const boost::json::object& body, const GenerateInput& input,
                          bool parallel_calls, const std::string& reasoning_effort);

}  // namespace weft::router
