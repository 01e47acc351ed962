// One streamed HTTP request of the load generator and what was measured of it. Driven by the
// generator's single io_context thread; makes a connection of its own or takes a kept one. Speaks
// HTTP/1.1 with chunked or plain server-sent events.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/context.hpp"

namespace weft::launcher {

// What one request saw. Times in microseconds of the monotonic clock.
struct StreamResult {
  // When it should have been sent, and when it was: the difference is the generator's own lag.
  int64_t due_us = 0;
  int64_t sent_us = 0;
  // Arrival of each event that carried a token.
  std::vector<int64_t> token_us;
  int64_t end_us = 0;
  // From the usage event; 0 when there was none.
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // Empty = complete.
  std::string error;
};

// How `error` begins where no server took the connection.
inline constexpr char kConnectError[] = "connect: ";

// Server and route under load.
struct LoadTarget {
  // host:port as it was named, for messages.
  std::string address;
  std::string host;
  std::string port;
  std::string path;
  boost::asio::ip::tcp::endpoint endpoint;
  // Null = in clear.
  std::shared_ptr<boost::asio::ssl::context> tls;
  // Empty = none.
  std::string api_key;
};

class LoadStream {
 public:
  using Done = absl::AnyInvocable<void(StreamResult)>;

  // Sends `body` as a POST and reads the stream to its end. `done` is called once, on the
  // io_context; the object keeps itself alive until then.
  static void Start(boost::asio::io_context& io, const LoadTarget& target, std::string body,
                    int64_t due_us, int64_t timeout_us, Done done);
};

}  // namespace weft::launcher
