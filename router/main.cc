// weft-router: opens its ports at once, then loads tokenizer and shard group behind them, serves,
// and drains on SIGTERM. The main thread starts everything and then waits for a signal.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/descriptors.h"
#include "common/exit_code.h"
#include "common/freed_memory.h"
#include "common/library_log.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/model_path.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "common/thread.h"
#include "common/version.h"
#include "grpc/support/log.h"
#include "router/doors/grpc/small_reads.h"
#include "router/flags.h"
#include "router/router.h"
#include "router/text/template_host.h"

namespace weft::router {
namespace {

// What gRPC starts by itself: it aborts the process when it may not.
constexpr uint32_t kLibraryThreads = 12;

// gRPC would write to stderr itself, and wait for it.
void TakeGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogLibraryLine("grpc", line->message); });
}

int Main(int argc, char** argv) {
  TakeGrpcLog();
  RouterFlags flags;
  std::string help_text;
  absl::Status status = ParseRouterFlags(argc, argv, &flags, &help_text);
  if (status.ok() && !help_text.empty()) {
    std::fputs(help_text.c_str(), stdout);
    return kExitOk;
  }
  absl::StatusOr<ShutdownSignals> signals = ShutdownSignals::Create(Hangup::kReloads);
  if (status.ok()) status = signals.status();
  if (status.ok()) status = InitLogging("router", flags.log_format, flags.log_level);
  if (status.ok() && flags.die_with_parent) status = DieWithParent();
  if (status.ok()) status = Annotate(CheckModelPath(flags.engine.model_path), "--model");
  if (status.ok()) {
    status = CheckThreadsLeft(flags.http.io_threads + flags.engine.text_threads +
                              flags.engine.mask_threads + kLibraryThreads);
  }
  if (!status.ok()) {
    LogLastWords(absl::StrCat("weft-router: ", status.message()));
    return kExitStartup;
  }
  WEFT_LOG_INFO("weft-router {} ({}) model={} shards={} groups={}", Version(), Revision(),
                flags.model_label, flags.engine.shards(), flags.engine.groups.size());
  for (const auto& unknown : flags.unknown_variables) WEFT_LOG_WARN("{}", unknown.Line());
  const absl::StatusOr<uint64_t> descriptors = RaiseDescriptorLimit();
  if (descriptors.ok()) {
    WEFT_LOG_INFO("at most {} open files", *descriptors);
  } else {
    WEFT_LOG_WARN("the limit of open files stays: {}", std::string(descriptors.status().message()));
  }
  // Before the first metric: every series carries them.
  SetMetricLabels({{"model_name", flags.model_label}, {"engine", "0"}});
  const absl::StatusOr<std::unique_ptr<TemplateHost>> templates = TemplateHost::Start();
  status = templates.status();
  absl::StatusOr<std::unique_ptr<Router>> router;
  if (status.ok()) {
    flags.engine.template_host = templates->get();
    router = Router::Create(std::move(flags), *std::move(signals));
    status = router.ok() ? (*router)->Start() : router.status();
  }
  if (!status.ok()) {
    WEFT_LOG_ERROR("{}", std::string(status.message()));
    return kExitStartup;
  }
  return (*router)->Run();
}

}  // namespace
}  // namespace weft::router

int main(int argc, char** argv) {
  weft::router::RunTemplateServerIfAsked(argc, argv);
  // Debian's Abseil records the order of every lock taken; that is for debugging and costs a
  // twentieth of this process's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  weft::LimitFreedMemory();
  weft::router::AllowSmallGrpcReads();
  return weft::router::Main(argc, argv);
}
