// Posts messages to one HTTP server, one after another, for the tracer's thread. Every wait has an
// end, and another thread can cut them all short.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/observe/otlp_options.h"

namespace weft::router {

class HttpPost {
 public:
  // `options` must outlive it.
  explicit HttpPost(const OtlpOptions* options);
  ~HttpPost();

  // The answer's status code; UNAVAILABLE when there was none.
  absl::StatusOr<unsigned> Send(const std::string& body);
  // What waits now, and what will, gives up. Any thread.
  void Stop();

 private:
  struct Io;
  const OtlpOptions* const options_;
  const std::unique_ptr<Io> io_;
};

}  // namespace weft::router
