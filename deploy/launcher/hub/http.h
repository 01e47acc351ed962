// HTTP requests, many at once on one thread, by libcurl's multi interface: one owner calls all of
// it and is called back from Run alone. It follows no redirect, keeps no cookie and decodes
// nothing; proxies are those of the environment (http_proxy, https_proxy, all_proxy, no_proxy), as
// curl reads them. It knows nothing of hubs.

#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "deploy/launcher/hub/answer.h"
#include "deploy/launcher/hub/pieces.h"

namespace weft::hub {

struct HttpRequest {
  std::string url;
  // HEAD instead of GET.
  bool head = false;
  // For an Authorization header; empty = none. The caller decides which URL may have it.
  std::string token;
  absl::optional<ByteRange> range;
  // An ETag in its quotes; empty = none.
  std::string if_range;
};

struct HttpHead {
  int status = 0;
  Headers headers;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Status and headers are there. False ends the request.
  virtual bool OnHead(const HttpHead& head) = 0;
  // The next bytes of the body. False ends the request.
  virtual bool OnBytes(absl::string_view bytes) = 0;
  // Called once, last, and never after Cancel. OK: all of the body came, whatever the status.
  // CANCELLED: the handler ended it. UNAVAILABLE: the network did. FAILED_PRECONDITION: another try
  // would end the same way.
  virtual void OnEnd(const absl::Status& status) = 0;
};

struct HttpOptions {
  // Empty = the system's.
  std::string ca_file;
  // A connection that brings nothing for so long has failed.
  absl::Duration stall_timeout = absl::Seconds(30);
};

class HttpLoop {
 public:
  static absl::StatusOr<std::unique_ptr<HttpLoop>> Create(const HttpOptions& options);
  ~HttpLoop();
  HttpLoop(const HttpLoop&) = delete;
  HttpLoop& operator=(const HttpLoop&) = delete;

  // Begins a request. `handler` outlives it.
  void Start(const HttpRequest& request, HttpHandler* handler);
  // Ends the request of `handler`, if it has one. Not from within one of its own calls.
  void Cancel(HttpHandler* handler);

  // Lets requests go on; waits for events for at most `timeout`, or until `interrupt_fd` is
  // readable.
  void Run(absl::Duration timeout, int interrupt_fd);

 private:
  struct Transfer;

  explicit HttpLoop(const HttpOptions& options);

  static size_t OnHeaderLine(char* data, size_t size, size_t count, void* transfer);
  static size_t OnBody(char* data, size_t size, size_t count, void* transfer);
  void Prepare(const HttpRequest& request, Transfer* transfer);
  void Finish(Transfer* transfer, CURLcode code);
  std::unique_ptr<Transfer> Remove(Transfer* transfer);

  const HttpOptions options_;
  CURLM* multi_ = nullptr;
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

}  // namespace weft::hub
