// GET /debug/trace?seconds=N of the admin port: a timeline of the next N seconds as it is written
// (observe/timeline_json.h). One at a time; a thread of its own waits, sorts and writes, and hands
// over no more than its reader has taken. Made by the router before its doors, and outlives them.

#pragma once

#include <atomic>
#include <memory>

#include "absl/time/time.h"
#include "common/thread.h"
#include "router/doors/http/router.h"
#include "router/observe/timeline.h"

namespace weft::router {

class TimelineExchange;

class TimelineRoute {
 public:
  // `timeline` must outlive this.
  explicit TimelineRoute(Timeline* timeline) : timeline_(timeline) {}
  ~TimelineRoute() { Stop(); }

  TimelineRoute(const TimelineRoute&) = delete;
  TimelineRoute& operator=(const TimelineRoute&) = delete;

  // Adds the route; 421 under a host name other than localhost, 400 for another query, 409 while
  // somebody else takes one.
  void AddTo(HttpRouter* router);
  // Ends what is being taken. REQUIRES: the doors have stopped, and their connections' wakers are
  // still there. Idempotent.
  void Stop();

 private:
  std::shared_ptr<HttpExchange> Take(const HttpRequest& request, HttpResponder& responder,
                                     IoWaker& waker);

  Timeline* const timeline_;
  // Somebody takes one, or still reads it.
  std::atomic<bool> busy_{false};
  // An io thread's, and of one at a time: whoever has set busy_.
  Thread thread_;
  std::weak_ptr<TimelineExchange> exchange_;
};

}  // namespace weft::router
