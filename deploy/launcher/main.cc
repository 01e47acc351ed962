// weft: the command. Finds the sub-command and hands over.

#include <cstdio>
#include <cstring>

#include "common/exit_code.h"
#include "common/version.h"
#include "deploy/launcher/commands.h"

namespace {

constexpr char kUsage[] =
    "weft: serves large language models\n"
    "\n"
    "  weft serve    start a router and its shards on this host\n"
    "  weft chat     talk to a server in the terminal\n"
    "  weft bench    measure a server, a model's steps or its kernels\n"
    "  weft inspect  what is in a model, and what memory it needs\n"
    "  weft key      makes, lists and revokes API keys\n"
    "\n"
    "weft COMMAND --help lists the flags of a command.\n";

struct Command {
  const char* name;
  int (*run)(int, char**);
};

constexpr Command kCommands[] = {
    {"serve", weft::launcher::RunServe}, {"chat", weft::launcher::RunChat},
    {"bench", weft::launcher::RunBench}, {"inspect", weft::launcher::RunInspect},
    {"key", weft::launcher::RunKey},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    std::fputs(kUsage, argc < 2 ? stderr : stdout);
    return argc < 2 ? weft::kExitStartup : weft::kExitOk;
  }
  if (std::strcmp(argv[1], "--version") == 0) {
    std::printf("weft %s (%s)\n", weft::Version(), weft::Revision());
    return weft::kExitOk;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(argv[1], command.name) == 0) return command.run(argc - 1, argv + 1);
  }
  std::fprintf(stderr, "weft: unknown command \"%s\"\n\n%s", argv[1], kUsage);
  return weft::kExitStartup;
}
