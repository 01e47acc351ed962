#include "deploy/launcher/restart_policy.h"

#include <sys/wait.h>

#include <algorithm>

#include "common/exit_code.h"

namespace weft::launcher {

RestartDecision DecideRestart(int wait_status, bool ready, absl::Duration ran,
                              const RestartTimes& times, RestartHistory* history) {
  RestartDecision decision;
  if (!ready) {
    const bool mishap = !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) == kExitStuck;
    decision.give_up = !mishap || ++history->mishaps > kMishapsMax;
    if (decision.give_up) return decision;
  }
  if (ran < times.young) {
    decision.wait = history->backoff;
    history->backoff = std::clamp(history->backoff * 2, times.backoff_first, times.backoff_max);
  } else {
    history->backoff = absl::ZeroDuration();
  }
  return decision;
}

}  // namespace weft::launcher
