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
      {"weft doctor", {.environment = true, .file = true}},
      {"weft-router", {.environment = true, .file = true}},
      {"weft-shard", {.environment = true, .file = true}},
      {"weft inspect", {.environment = true, .file = false}},
  };
  for (const Row& row : kRows) {
    if (row.program == program) return row.sources;
  }
  return {};
}

// Variables that are no flag's and that weft's programs, scripts and tests read all the same.
constexpr const char* kOtherVariables[] = {"WEFT_API_KEY",
                                           "WEFT_BIN_DIR",
                                           "WEFT_CACHE",
                                           "WEFT_CARGO_TARGET_DIR",
                                           "WEFT_CMAKE",
                                           "WEFT_CUDA",
                                           "WEFT_DEMO_MODEL",
                                           "WEFT_FUZZ_WORKER_STDERR",
                                           "WEFT_NCCL",
                                           "WEFT_REQUIRE",
                                           "WEFT_REWRITE_TRANSCRIPTS",
                                           "WEFT_ROOT",
                                           "WEFT_ROUTER_SIM_LOG",
                                           "WEFT_ROUTER_SIM_SECONDS",
                                           "WEFT_ROUTER_SIM_SEEDS",
                                           "WEFT_ROUTER_SIM_TRACE",
                                           "WEFT_SEED",
                                           "WEFT_SIM_SEEDS",
                                           "WEFT_SOURCE_DIR",
                                           "WEFT_TOOLS",
                                           "WEFT_WRITE_GOLDENS"};

// What Kubernetes sets in every container of a namespace that has a service called weft.
constexpr bool IsServiceVariable(absl::string_view name) {
  return name == "WEFT_PORT" || name.substr(0, 10) == "WEFT_PORT_" ||
         name.substr(0, 13) == "WEFT_SERVICE_";
}

}  // namespace weft
