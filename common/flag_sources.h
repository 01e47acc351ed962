// Which commands read environment variables and a configuration file beside their command line: a
// property of the command, so that what is set for a server changes nothing in a client that is
// started beside it. One table; pure; any thread.

#pragma once

#include "absl/strings/string_view.h"

namespace weft {

struct FlagSources {
  // WEFT_<NAME> for each flag.
  bool environment = false;
  // --config, and keys of that file.
  bool file = false;
};

// Of the program that is typed as `program`; one that is not in the table has its command line
// alone. Only where a flag means what it means to `weft serve` may it come from the environment:
// `weft bench load` calls a model's name --model, and the --name of `weft key` is nobody's
// setting.
constexpr FlagSources SourcesOf(absl::string_view program) {
  struct Row {
    absl::string_view program;
    FlagSources sources;
  };
  constexpr Row kRows[] = {
      {"weft serve", {.environment = true, .file = true}},
      {"weft-router", {.environment = true, .file = true}},
      {"weft-shard", {.environment = true, .file = true}},
      {"weft inspect", {.environment = true, .file = false}},
  };
  for (const Row& row : kRows) {
    if (row.program == program) return row.sources;
  }
  return {};
}

}  // namespace weft
