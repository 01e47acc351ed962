// Bounds of one HTTP connection and of all of them together. Times in microseconds. Plain data.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/limits.h"

namespace weft::router {

struct HttpLimits {
  size_t body_bytes_max = kBodyBytesDefault;
  // Of all bodies under way; 0 = kBodiesPerBudget of the largest.
  size_t bodies_bytes_max = 0;
  size_t header_bytes_max = kHeaderBytesMax;
  // From a request's first byte to the end of its header; also for a TLS handshake.
  int64_t header_timeout_us = 10'000'000;
  // For a whole body, however many pieces it comes in.
  int64_t body_timeout_us = 30'000'000;
  // A body brings at least so many bytes in each such time, or the rest of it.
  int64_t body_window_us = 5'000'000;
  uint64_t body_window_bytes_min = 5u << 10;
  // Between two requests of a connection.
  int64_t idle_timeout_us = 75'000'000;
  // No byte of an answer taken by the client while some wait for it.
  int64_t slow_reader_timeout_us = 30'000'000;
  // A client takes at least so many bytes of an answer in each such time while they wait for it.
  int64_t reader_window_us = 60'000'000;
  uint64_t reader_window_bytes_min = 16u << 10;
  // What was sent and no machine has taken for so long ends the connection; 0 = 30 s more than a
  // reader's stall or window, so that it is its pace that ends a slow reader.
  int64_t unacknowledged_timeout_us = 0;
  // For the client to close after an answer that closes the connection.
  int64_t linger_timeout_us = 2'000'000;
  // An answer in the making that has sent nothing for so long is asked for a sign of life.
  int64_t silence_us = 15'000'000;
  // TLS handshakes under way, over all connections.
  size_t handshakes_max = 256;

  int64_t unacknowledged_us() const {
    if (unacknowledged_timeout_us > 0) return unacknowledged_timeout_us;
    return std::max(slow_reader_timeout_us, reader_window_us) + 30'000'000;
  }

  // The budget of all bodies: room for several of the largest.
  static constexpr size_t kBodiesPerBudget = 8;
  size_t bodies_budget() const {
    return bodies_bytes_max > 0 ? bodies_bytes_max : kBodiesPerBudget * body_bytes_max;
  }
};

}  // namespace weft::router
