// An answer with parts, as a model writes it, and what tests of such answers do with events.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "boost/json/parse.hpp"
#include "boost/json/value.hpp"
#include "tests/router/doors/fake_entrance.h"

namespace weft::router {

// A thought, two words, and calls of f and g, cut where a tokenizer might. For the parsers hermes
// and think.
inline Script CallingScript() {
  return {{Started()},
          {Token(1, "<think>"), Token(2, "So."), Token(3, "</think>")},
          {Token(4, "Let me"), Token(5, " see."), Token(6, "<tool_call>")},
          {Token(7, "\n{\"name\": \"f\", \"argu"), Token(8, "ments\": {\"a\":")},
          {Token(9, " 1}}\n"), Token(10, "</tool_call>"), Token(11, "<tool_call>")},
          {Token(12, "{\"name\": \"g\", \"arguments\": {}}"),
           Finished(FinishReason::kEosToken, 12, "</tool_call>")}};
}

// The JSON of a stream's events.
inline std::vector<boost::json::value> EventsOf(const std::string& body) {
  std::vector<boost::json::value> events;
  for (const absl::string_view line : absl::StrSplit(body, '\n')) {
    if (!absl::StartsWith(line, "data: {")) continue;
    const absl::string_view event = line.substr(6);
    events.push_back(boost::json::parse({event.data(), event.size()}));
  }
  return events;
}

inline std::string TextOf(const boost::json::value& value) {
  return std::string(value.as_string());
}

}  // namespace weft::router
