// What every sub-command does around its work: parse the flags, print help, run, and turn an error
// into one line on stderr and an exit code. Called by the RunX functions of commands.h. And flags
// that are lists or addresses.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flags.h"

namespace weft::launcher {

// kExitOk when `body` (or printing the help) succeeded, kExitStartup otherwise. SIGPIPE is ignored
// for the process.
int RunCommand(Flags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> body);

// Numbers above 0 with commas between them. INVALID_ARGUMENT, naming the flag, otherwise.
absl::StatusOr<std::vector<uint32_t>> ParseNumbers(const std::string& flag,
                                                   const std::string& text);

// OK for "host:port" with a port that can be connected to, "[::1]:80" too. INVALID_ARGUMENT, naming
// --connect and what is missing, otherwise.
absl::Status CheckConnect(const std::string& address);

}  // namespace weft::launcher
