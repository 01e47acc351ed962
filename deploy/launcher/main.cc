// weft: the command. Finds the sub-command and hands over.

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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
    "  weft pull     fetches a model from a hub into the cache\n"
    "  weft inspect  what is in a model, and what memory it needs\n"
    "  weft doctor   would weft serve start here? GPUs, memory, limits, ports, files\n"
    "  weft convert  safetensors and tokenizer.json for models that lack them\n"
    "  weft key      makes, lists and revokes API keys\n"
    "  weft trace    a timeline of a running server's steps, for Perfetto\n"
    "  weft replay   plays a recording of the scheduler (--record) again and compares\n"
    "\n"
    "weft COMMAND --help lists the flags of a command.\n";

struct Command {
  const char* name;
  int (*run)(int, char**);
  // Its flags have no variables; serve, inspect and doctor look at theirs themselves.
  bool by_line_alone;
};

constexpr Command kCommands[] = {
    {"serve", weft::launcher::RunServe, false},  {"chat", weft::launcher::RunChat, true},
    {"bench", weft::launcher::RunBench, true},   {"inspect", weft::launcher::RunInspect, false},
    {"key", weft::launcher::RunKey, true},       {"convert", weft::launcher::RunConvert, true},
    {"replay", weft::launcher::RunReplay, true}, {"doctor", weft::launcher::RunDoctor, false},
    {"trace", weft::launcher::RunTrace, true},   {"pull", weft::launcher::RunPull, true},
};

int Run(const Command& command, int argc, char** argv) {
  if (command.by_line_alone) {
    const std::string program = absl::StrCat("weft ", command.name);
    weft::launcher::WarnOfVariables(program, weft::Flags(program, ""));
  }
  return command.run(argc, argv);
}

// What nobody got is no success: a full disk behind standard output, say. A reader of a pipe may
// have had enough.
int WithOutput(int code) {
  const bool broken_before = std::ferror(stdout) != 0;
  const bool broken_now = std::fflush(stdout) != 0;
  if (!(broken_before || broken_now) || code != weft::kExitOk) return code;
  // Why an earlier write failed is not known any more.
  const std::string reason = broken_now ? absl::StrCat(": ", std::strerror(errno)) : "";
  struct stat info {};
  if (fstat(STDOUT_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode))) {
    return code;
  }
  std::fprintf(stderr, "weft: standard output: not all of it could be written%s\n", reason.c_str());
  return weft::kExitStartup;
}

int RunNamed(int argc, char** argv) {
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

}  // namespace

int main(int argc, char** argv) { return WithOutput(RunNamed(argc, argv)); }
