// weft: the command. Finds the sub-command and hands over.

#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/flags.h"
#include "common/version.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/serve_options.h"

namespace {

constexpr char kUsage[] =
    "weft: serves large language models\n"
    "\n"
    "  weft serve    start a router and its shards on this host\n"
    "  weft chat     talk to a server in the terminal\n"
    "  weft bench    measure a server, a model's steps or its kernels\n"
    "  weft inspect  what is in a model, and what memory it needs\n"
    "  weft convert  safetensors and tokenizer.json for models that lack them\n"
    "  weft key      makes, lists and revokes API keys\n"
    "\n"
    "weft COMMAND --help lists the flags of a command.\n";

struct Command {
  const char* name;
  int (*run)(int, char**);
  // Its flags have no variables; serve and inspect look at theirs themselves.
  bool by_line_alone;
};

constexpr Command kCommands[] = {
    {"serve", weft::launcher::RunServe, false}, {"chat", weft::launcher::RunChat, true},
    {"bench", weft::launcher::RunBench, true},  {"inspect", weft::launcher::RunInspect, false},
    {"key", weft::launcher::RunKey, true},      {"convert", weft::launcher::RunConvert, true},
};

int Run(const Command& command, int argc, char** argv) {
  if (command.by_line_alone) {
    const std::string program = absl::StrCat("weft ", command.name);
    weft::launcher::WarnOfVariables(program, weft::Flags(program, ""));
  }
  return command.run(argc, argv);
}

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
    if (std::strcmp(argv[1], command.name) == 0) return Run(command, argc - 1, argv + 1);
  }
  std::fprintf(stderr, "weft: unknown command \"%s\"\n\n%s", argv[1], kUsage);
  return weft::kExitStartup;
}
