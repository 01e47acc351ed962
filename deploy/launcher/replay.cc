// weft replay: plays a recording that a router made with --record.

#include "router/recording/replay.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/status.h"
#include "common/version.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"

namespace weft::launcher {
namespace {

// `whole`: the files could be read to their end.
void Print(const router::recording::ReplayReport& report, bool whole) {
  if (report.parts.empty()) return;
  std::printf("%s", report.parts.front().c_str());
  if (report.parts.size() > 1) std::printf(" .. %s", report.parts.back().c_str());
  std::printf(": made by weft %s, played by %s (%s)\n", report.recorded_by.c_str(), Version(),
              Revision());
  if (report.first_event > 0) {
    std::printf("its first %llu events were rotated away: began with the state behind them\n",
                static_cast<unsigned long long>(report.first_event));
  }
  const char* const verdict = !report.difference.empty() ? ""
                              : whole                    ? ", all as recorded"
                                                         : ", as recorded up to the fault";
  std::printf("%llu events, %llu plans%s\n", static_cast<unsigned long long>(report.events),
              static_cast<unsigned long long>(report.plans), verdict);
}

absl::Status RunPlay(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError("--from: name what --record was given, or one of its parts");
  }
  router::recording::ReplayReport report;
  const absl::Status status = Replay(path, &report);
  Print(report, status.ok());
  WEFT_RETURN_IF_ERROR(status);
  if (!report.difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this build decides otherwise: ", report.difference));
  }
  if (!report.complete) {
    std::printf("the recording has no end: its router was killed, could not write on, or runs\n");
  }
  return absl::OkStatus();
}

}  // namespace

int RunReplay(int argc, char** argv) {
  std::string path;
  Flags flags("weft replay",
              "Plays a recording of the router's scheduler again: the same events must give the "
              "same decisions.");
  flags.Add("from", &path, "What --record was given, for all parts in order; or one part's file");
  flags.AddArgument("path", &path, "The same as --from");
  return RunCommand(flags, argc, argv, [&path] { return RunPlay(path); });
}

}  // namespace weft::launcher
