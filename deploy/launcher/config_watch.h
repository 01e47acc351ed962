// The configuration file of a `weft serve` that runs. When it changes, the router's part of it is
// written anew for the router (serve_options.h), which takes over what it can; of the rest this
// says what waits for the next start. Owned by the launcher's server object, on its main thread;
// waits for the disk only when the file has changed.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flags.h"
#include "common/reload_news.h"
#include "router/doors/identity/file_watch.h"

namespace weft::launcher {

class ConfigWatch {
 public:
  // `flags` as they were parsed from `arguments`, with a file; `router_path` is where the router
  // looks.
  ConfigWatch(std::vector<std::string> arguments, const Flags& flags, std::string router_path);

  // Before the router is started.
  absl::Status WriteForRouter(const Flags& flags);
  // Reads the file when it has changed since the last look.
  void Look();
  // Reads the file. A bad one changes nothing, here and in the router; its error is logged once for
  // each content.
  void Reload();

 private:
  absl::Status TryReload();
  void Take(const Flags& fresh, const std::string& log_level);

  const std::vector<std::string> arguments_;
  const std::string router_path_;
  router::FileChanges changes_;
  ReloadNews news_;
  // In effect; and those that wait for the next start and were spoken of.
  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> told_;
};

}  // namespace weft::launcher
