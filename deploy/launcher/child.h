// One child process: spawned, watched through a pidfd, its output read line by line. Owned by the
// supervisor and used on the main thread only (PDEATHSIG follows the spawning thread). The child
// gets SIGKILL when the launcher dies, so no orphan is ever left. Destroying a Child kills and
// reaps it.

#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"

namespace weft::launcher {

class Child {
 public:
  struct Callbacks {
    // A line of the child's stdout or stderr, without its newline.
    absl::AnyInvocable<void(const std::string& line, bool is_stdout)> on_line;
    // The child is gone; `wait_status` as from waitpid. The last call.
    absl::AnyInvocable<void(int wait_status)> on_exit;
  };

  // Starts argv[0] with argv and with `environment`, which is "NAME=value" each, and nothing
  // besides. Callbacks run on `io`. RESOURCE_EXHAUSTED, with the way out, when there may be no more
  // processes; another error when the system gives no pipes.
  static absl::StatusOr<std::unique_ptr<Child>> Spawn(boost::asio::io_context& io,
                                                      const std::vector<std::string>& argv,
                                                      const std::vector<std::string>& environment,
                                                      Callbacks callbacks);
  ~Child();

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const;
  // The process has ended, perhaps before on_exit says so.
  bool Ended() const;
  // Sends a signal; nothing happens when the child is gone.
  void Signal(int signal_number);

 private:
  class Impl;
  explicit Child(std::shared_ptr<Impl> impl);
  // Shared with the handlers in flight on the io_context, which may run after ~Child.
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft::launcher
