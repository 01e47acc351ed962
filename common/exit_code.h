// What weft's processes say by their exit codes to whoever started them: one table for `weft`,
// weft-router and weft-shard. The supervisor's decisions over it are in
// deploy/launcher/restart_policy.h.

#pragma once

namespace weft {

enum ExitCode : int {
  // It did what it was told, or ended on SIGTERM after its drain.
  kExitOk = 0,
  // It cannot start as it was told to, or was told what it does not know (a command, a flag, a
  // value): another try would end the same way.
  kExitStartup = 1,
  // Requests were cut off: a second signal stopped it at once, or the router that `weft serve`
  // waited for ended in its drain.
  kExitCut = 2,
  // Its device is stuck or lost to this process; a new process may well have it again.
  kExitStuck = 3,
  // It served or was about to, and cannot any more whatever is tried: a launcher's shards do not
  // fit together or to the router's model, or another router has taken them.
  kExitFatal = 4,
};

}  // namespace weft
