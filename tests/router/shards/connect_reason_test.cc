// What people are told of a shard that cannot be reached.

#include "router/shards/connect_reason.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::router {
namespace {

bool Tells(ShardRoute route, const char* why, const char* way_out) {
  const std::string line = NoConnection(route, "a:1", why);
  CAPTURE(line);
  CHECK(absl::StartsWith(line, "no connection: a:1"));
  return absl::StrContains(line, why) && absl::StrContains(line, way_out);
}

TEST_CASE("A connection over TLS that does not come about says what broke and the way out",
          "[router][shards]") {
  const std::string refused = NoConnection(
      ShardRoute::kMutualTls, "shard-1:7000",
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:7000: Failed to "
      "connect to remote host: Connection refused");
  CHECK(refused ==
        "no connection: shard-1:7000: ipv4:10.0.0.5:7000: Failed to connect to remote host: "
        "Connection refused; nobody listens there: does the shard run, and with this port?");
  const auto tells = [](const char* why, const char* way_out) {
    return Tells(ShardRoute::kMutualTls, why, way_out);
  };
  CHECK(tells("x: Peer name shard-1 is not in peer certificate", "give it one with this name"));
  CHECK(tells("x: Ssl handshake failed: certificate verify failed", "--shard-tls-ca"));
  CHECK(tells("x: Socket closed", "its --tls-ca must have signed --shard-tls-cert"));
  CHECK(tells("x: Connection reset by peer", "its --tls-ca must have signed --shard-tls-cert"));
  CHECK(tells("x: wrong version number", "speaks no TLS"));
  CHECK(tells("x: Handshake read failed", "the port of a shard's --listen"));
  CHECK(tells("x: missing selected ALPN property.", "the port of a shard's --listen"));
  CHECK(tells("DNS resolution failed for a:1: Domain name not found", "nobody knows this name"));
  CHECK(tells("DNS resolution failed for a:1: Timeout", "does the name server answer"));
  // What is not known, and what has not been heard of yet.
  CHECK(tells("x: No route to host", "firewall"));
  CHECK(absl::StartsWith(NoConnection(ShardRoute::kMutualTls, "a:1", ""),
                         "no connection: a:1 does not answer; is its host up"));
}

TEST_CASE("A connection in clear that does not come about says what broke and the way out",
          "[router][shards]") {
  using Route = ShardRoute;
  CHECK(Tells(Route::kLoopback, "cannot connect: Connection refused", "with this port?"));
  // In clear nobody asks for certificates: it is the shard that has some.
  for (const char* why :
       {"the shard closed the connection", "connection lost: Connection reset by peer"}) {
    CHECK(Tells(Route::kLoopback, why, "it wants TLS: give --shard-tls-cert, --shard-tls-key"));
    CHECK_FALSE(Tells(Route::kUnixSocket, why, "TLS"));
  }
  CHECK(Tells(Route::kUnixSocket, "cannot connect: Connection refused", "with this --socket?"));
  CHECK(Tells(Route::kUnixSocket, "cannot connect: No such file or directory",
              "no shard has made this socket"));
  CHECK(Tells(Route::kUnixSocket, "cannot connect: Permission denied", "run the router as that"));
  // What is not known: no network is between them.
  for (const Route route : {Route::kLoopback, Route::kUnixSocket}) {
    CHECK(Tells(route, "x", "does that shard run"));
    CHECK_FALSE(Tells(route, "x", "firewall"));
  }
}

TEST_CASE("A look-up that failed is told from other failures", "[router][shards]") {
  CHECK(IsLookupFailure("DNS resolution failed for a:1: Domain name not found"));
  CHECK_FALSE(IsLookupFailure("failed to connect to all addresses; last error: x"));
  CHECK_FALSE(IsLookupFailure(""));
}

}  // namespace
}  // namespace weft::router
