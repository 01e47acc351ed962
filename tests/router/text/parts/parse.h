// Runs an answer through a parser and shows what came out, for tables of cases. Every answer is
// parsed whole, character by character and cut at each place; all have to give the same.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/text/parts/part_parser.h"

namespace weft::router {

// Parts with neighbours of the same kind joined, and a call's arguments behind its beginning.
std::vector<AnswerPart> Joined(const std::vector<AnswerPart>& parts);

// The same in words, a line each: content(…), reasoning(…), NAME(ARGUMENTS).
std::string Show(const std::vector<AnswerPart>& parts);

// The joined parts of `pieces` in a row.
std::vector<AnswerPart> ParsePieces(const PartParserOptions& options,
                                    const std::vector<std::string>& pieces);

// The UTF-8 characters of a text.
std::vector<std::string> Characters(absl::string_view text);

// Show of the whole text; checks that each cut gives the same.
std::string Parse(const PartParserOptions& options, absl::string_view text);

// Tools that the tables call: get_weather(city string, days integer, metric boolean, tags array,
// place object), search(query string), now() and write(path string, text string).
const ToolSet& SampleTools();
const std::vector<ToolSpec>& SampleToolSpecs();

PartParserOptions ToolOptions(absl::string_view tool_parser,
                              absl::string_view reasoning_parser = kNoParser);

struct PartCase {
  std::string what;
  std::string text;
  std::string shown;
};

// Checks each case of a table.
void CheckCases(const PartParserOptions& options, const std::vector<PartCase>& cases);

}  // namespace weft::router
