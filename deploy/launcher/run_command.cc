#include "deploy/launcher/run_command.h"

#include <signal.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::launcher {

int RunCommand(Flags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> body) {
  signal(SIGPIPE, SIG_IGN);
  std::string help;
  absl::Status status = flags.Parse(argc, argv, &help);
  if (status.ok() && !help.empty()) {
    std::fputs(help.c_str(), stdout);
    return 0;
  }
  if (status.ok()) status = body();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", flags.app().get_name().c_str(),
               std::string(status.message()).c_str());
  return 1;
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
