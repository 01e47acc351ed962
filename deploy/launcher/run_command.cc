#include "deploy/launcher/run_command.h"

#include <signal.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/exit_code.h"
#include "common/log.h"

namespace weft::launcher {

int RunCommand(Flags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> body) {
  signal(SIGPIPE, SIG_IGN);
  std::string help;
  absl::Status status = flags.Parse(argc, argv, &help);
  if (status.ok() && !help.empty()) {
    std::fputs(help.c_str(), stdout);
    return kExitOk;
  }
  if (status.ok()) status = body();
  if (status.ok()) return kExitOk;
  LogLastWords(absl::StrCat(flags.program(), ": ", status.message()));
  return kExitStartup;
}

absl::StatusOr<std::vector<uint32_t>> ParseNumbers(const std::string& flag,
                                                   const std::string& text) {
  std::vector<uint32_t> values;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint32_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || value == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": \"", part,
                       "\" is no number above 0; expected numbers with commas, as in 1,8,32"));
    }
    values.push_back(value);
  }
  return values;
}

absl::Status CheckConnect(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string::npos && address.find(']', colon) == std::string::npos;
  if (!has_port || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--connect: ", address, " lacks the port; expected host:port, as in 127.0.0.1:8081"));
  }
  uint32_t port = 0;
  const std::string text = address.substr(colon + 1);
  if (!absl::SimpleAtoi(text, &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--connect: the port \"", text, "\" of ", address, " is not in 1 .. 65535"));
  }
  if (colon == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--connect: ", address, " lacks the host; expected host:port"));
  }
  return absl::OkStatus();
}

}  // namespace weft::launcher
