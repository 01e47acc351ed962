// Mutual TLS of the shard's port: routers show a certificate, and the shard's own follows its files
// (common/peer_tls.h). gRPC asks before each handshake, on a thread of its own, whether there is
// something new; connections that stand live on.

#pragma once

#include <memory>

#include "common/peer_tls.h"

namespace grpc {
class ServerCredentials;
}

namespace weft::shard {

// Whoever serves with them keeps them until the server is gone.
std::shared_ptr<grpc::ServerCredentials> MakePeerCredentials(std::unique_ptr<PeerTlsSource> source);

}  // namespace weft::shard
