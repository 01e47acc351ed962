#include "deploy/launcher/run_command.h"

#include <signal.h>

#include <cstdio>
#include <string>

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

}  // namespace weft::launcher
