// Takes over what may change in the configuration file (--config, or what `weft serve` hands on of
// its own) while a router runs: the level of the log and the limits of the queue. Owned by the
// router's composition; thread-safe. What was given by a flag or a variable stays, as at the start.

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/reload_news.h"
#include "router/admission.h"
#include "router/flags.h"

namespace weft::router {

class ConfigReload {
 public:
  // Where changes go.
  struct Targets {
    std::function<void(const QueueLimits&)> queue_limits;
    // All effective values, for /config.
    std::function<void(const std::map<std::string, std::string>&)> config;
  };

  // `flags` are those of the start. REQUIRES: flags.reload_path is not empty.
  ConfigReload(const RouterFlags& flags, Targets targets);

  // Reads the file again and logs what it changes, with the old and the new value. What would only
  // change with a new process is named once for each new value. A file that cannot be used changes
  // nothing: its error is logged once for each content.
  absl::Status Reload();

 private:
  using Values = std::map<std::string, std::string>;

  void Take(const RouterFlags& fresh) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a value that stays as it is until the next start.
  void TellOfStart(const std::string& name, const std::string& value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::string> arguments_;
  const bool handed_;
  const Targets targets_;

  absl::Mutex mutex_;
  ReloadNews news_ ABSL_GUARDED_BY(mutex_);
  // In effect; and those that wait for the next start and were spoken of.
  Values values_ ABSL_GUARDED_BY(mutex_);
  Values told_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
