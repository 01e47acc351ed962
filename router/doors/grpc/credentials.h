// The TLS material of the public gRPC port: certificate chain, key and the roots of client
// certificates, as PEM text that may be replaced while the server runs. Handshakes that begin after
// a replacement use the new material; connections live on. Made by whoever reads the files, shared
// with the gRPC server. Thread-safe. It reads no files and logs nothing, least of all keys.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace grpc {
class ServerCredentials;
}

namespace weft::router {

struct GrpcTlsPem {
  // The server's own certificate first, then those that lead to its root.
  std::string certificate_chain_pem;
  std::string private_key_pem;
  // Whose client certificates are good; empty = none is asked for.
  std::string client_roots_pem;
};

class GrpcCredentials {
 public:
  // INVALID_ARGUMENT says which part cannot be read, has expired or does not fit.
  // `require_client_certificate` = false asks for one and checks what is given; it needs roots when
  // true.
  static absl::StatusOr<std::shared_ptr<GrpcCredentials>> Create(GrpcTlsPem material,
                                                                 bool require_client_certificate);

  // The same errors; then the old material stays. Whether client certificates are asked for cannot
  // change.
  absl::Status Update(GrpcTlsPem material);

  // The material and its number, which each Update raises.
  GrpcTlsPem material(uint64_t* generation) const;
  bool require_client_certificate() const { return require_client_certificate_; }

 private:
  GrpcCredentials(GrpcTlsPem material, bool require_client_certificate);

  const bool require_client_certificate_;
  mutable absl::Mutex mutex_;
  GrpcTlsPem material_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 1;
};

// INVALID_ARGUMENT unless all parts parse, the key is that of the first certificate, and that is
// valid now.
absl::Status CheckGrpcTlsPem(const GrpcTlsPem& material);

// A call whose headers have come.
struct GrpcCallHead {
  // All calls of a connection share it.
  const void* connection;
  // Of the headers, as HTTP/2 counts them.
  uint64_t header_bytes = 0;
  // Until the call's deadline; a number beyond all times = none.
  int64_t timeout_us = std::numeric_limits<int64_t>::max();
};

// What a grpc::ServerBuilder takes: TLS that follows `credentials` for as long as the server lives,
// or clear text when that is null. `on_call` is asked when the headers of a call have come, on the
// thread that reads the connection; an error refuses the call.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<GrpcCredentials> credentials,
    std::function<absl::Status(const GrpcCallHead& head)> on_call);

// What a call's `grpc-timeout` says; a number beyond all times when it says nothing.
int64_t ParseGrpcTimeoutUs(absl::string_view text);

}  // namespace weft::router
