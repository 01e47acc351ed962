// Reaps what the launcher's processes leave behind. As process 1 of a container the launcher is the
// parent of every process whose own parent has died, such as the template processes of a router
// that was killed; nobody else would wait for them, and each would count against the limit of
// processes for ever. Made and used on the main thread.

#pragma once

#include <sys/types.h>

#include "absl/functional/any_invocable.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/signal_set.hpp"
#include "boost/asio/steady_timer.hpp"

namespace weft::launcher {

class OrphanReaper {
 public:
  // Waits for children that end, but for those of which `is_waited_for` says that somebody else
  // does. Watches while `io` runs, from now on.
  OrphanReaper(boost::asio::io_context& io, absl::AnyInvocable<bool(pid_t) const> is_waited_for);

  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

 private:
  void WaitForSignal();
  void Reap();

  absl::AnyInvocable<bool(pid_t) const> is_waited_for_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer again_;
};

}  // namespace weft::launcher
