#include "router/shards/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "router/shards/client_grpc.h"
#include "router/shards/client_http2.h"

namespace weft::router {
namespace {

absl::StatusOr<LocalAddress> UnixAddress(absl::string_view path) {
  LocalAddress address;
  auto* to = reinterpret_cast<sockaddr_un*>(&address.bytes);
  if (path.empty() || path.size() >= sizeof(to->sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected a path of 1 to ", sizeof(to->sun_path) - 1, " bytes, found ", path.size()));
  }
  to->sun_family = AF_UNIX;
  std::memcpy(to->sun_path, path.data(), path.size());
  address.size = sizeof(sockaddr_un);
  return address;
}

// `host` is numeric.
bool LoopbackAddress(const std::string& host, uint16_t port, LocalAddress* address) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address->bytes);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address->bytes);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address->size = sizeof(*v4);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address->size = sizeof(*v6);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
  return false;
}

absl::Status BadAddress(Rank rank, const std::string& address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("shard ", rank, ": \"", address, "\": ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardClient>> MakeShardClient(Rank rank, const std::string& address,
                                                             const ShardTls& tls,
                                                             ShardReplySink sink, Poller* poller,
                                                             const Clock* clock) {
  if (absl::StartsWith(address, "unix:")) {
    const absl::StatusOr<LocalAddress> local = UnixAddress(absl::StripPrefix(address, "unix:"));
    if (!local.ok()) return BadAddress(rank, address, local.status().message());
    return std::make_unique<Http2ShardClient>(rank, address, *local, std::move(sink), poller,
                                              clock);
  }
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return BadAddress(rank, address, "expected unix:/path or host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  const int given = !tls.cert.empty() + !tls.key.empty() + !tls.ca.empty();
  LocalAddress local;
  if (given == 0 && LoopbackAddress(host, static_cast<uint16_t>(port), &local)) {
    return std::make_unique<Http2ShardClient>(rank, address, local, std::move(sink), poller, clock);
  }
  if (given != 3) {
    return BadAddress(rank, address,
                      given == 0
                          ? "not a loopback address: expected certificate, key and authority "
                            "of TLS (--shard-tls-*)"
                          : "expected certificate, key and authority of TLS together");
  }
  return MakeGrpcShardClient(rank, address, tls, std::move(sink));
}

}  // namespace weft::router
