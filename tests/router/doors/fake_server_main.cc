// The router's doors with a fake engine behind them, for trying clients: every request is answered
// with "Hello world". Prints its ports like weft-router and runs until its standard input closes.

#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/freed_memory.h"
#include "common/log.h"
#include "grpc/support/log.h"
#include "router/doors/grpc/service.h"
#include "router/doors/grpc/small_reads.h"
#include "tests/router/doors/doors_fixture.h"

int main() {
  // As the router does: the search costs more than the locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  weft::LimitFreedMemory();
  weft::router::AllowSmallGrpcReads();
  // As the router logs: nobody waits for whoever reads stderr.
  if (!weft::InitLogging("router", weft::LogFormat::kText, "info").ok()) return 1;
  gpr_set_log_function([](gpr_log_func_args*) {});
  weft::router::HttpServerOptions options;
  options.admin_port = 0;
  weft::router::DoorsFixture fixture(options);
  fixture.intake.SetScript(
      {{weft::router::Started()},
       {weft::router::TokenWithLogprob(10, "Hello", -0.5f, {{10, -0.5f, "Hello"}})},
       {weft::router::TokenWithLogprob(11, " world", -0.25f, {{11, -0.25f, " world"}}),
        weft::router::Finished(weft::router::FinishReason::kEosToken, 2)}});
  auto grpc = weft::router::GrpcServer::Start({}, &fixture.doors);
  if (!grpc.ok()) return 1;
  std::printf("listening http=127.0.0.1:%d grpc=127.0.0.1:%d admin=127.0.0.1:%d\n", fixture.port(),
              (*grpc)->port(), fixture.server->admin_port());
  std::fflush(stdout);
  // Freed memory goes back as the router's does.
  weft::FreedMemory freed(16u << 20);
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, 100) == 0 || std::getchar() != EOF)
    freed.ReturnIfGrown(weft::MonotonicClock().NowUs());
  (*grpc)->Stop(absl::ZeroDuration());
  return 0;
}
