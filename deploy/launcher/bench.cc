// weft bench: what it can measure.

#include <cstdio>
#include <cstring>

#include "common/exit_code.h"
#include "deploy/launcher/commands.h"

namespace weft::launcher {

int RunBench(int argc, char** argv) {
  const char* const what = argc >= 2 ? argv[1] : "";
  if (std::strcmp(what, "load") == 0) return RunBenchLoad(argc - 1, argv + 1);
  if (std::strcmp(what, "offline") == 0) return RunBenchOffline(argc - 1, argv + 1);
  if (std::strcmp(what, "step") == 0) return RunBenchStep(argc - 1, argv + 1);
  if (std::strcmp(what, "tune") == 0) return RunBenchTune(argc - 1, argv + 1);
  const bool help = std::strcmp(what, "--help") == 0;
  std::fputs(
      "weft bench load     sends streamed HTTP requests to a running server and reports what came "
      "back\n"
      "weft bench offline  hands a running server all gRPC requests at once: its throughput\n"
      "weft bench step     times steps of a shard's model without a server\n"
      "weft bench tune     measures which kernels a model's matrix products are fastest with\n"
      "\n"
      "weft bench COMMAND --help lists the flags of each.\n",
      help ? stdout : stderr);
  return help ? kExitOk : kExitStartup;
}

}  // namespace weft::launcher
