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
  LogLastWords(absl::StrCat(flags.app().get_name(), ": ", status.message()));
  return kExitStartup;
}

absl::StatusOr<std::vector<uint32_t>> ParseNumbers(const std::string& flag,
                                                   const std::string& text) {
  std::vector<uint32_t> values;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint32_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || value == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": \"", part, "\" is no number > 0"));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace weft::launcher
