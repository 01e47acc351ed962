// Something that wants one call after a batch of news (an io_context, gRPC's calls), so that a
// thread with news for many wakes each of its readers' threads once.

#pragma once

namespace weft::router {

class Waker {
 public:
  virtual ~Waker() = default;
  // Any thread; never blocks.
  virtual void Wake() = 0;
};

}  // namespace weft::router
