#include "router/shards/connect_reason.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace weft::router {
namespace {

constexpr absl::string_view kLookup = "DNS resolution failed";
constexpr absl::string_view kLastError = "last error: ";

struct WayOut {
  absl::string_view said;
  absl::string_view do_this;
};

constexpr absl::string_view kNotTaken =
    "most likely the shard does not take this router's certificate: its --tls-ca must have signed "
    "--shard-tls-cert, which must be within its dates";

constexpr absl::string_view kNoShard =
    "is it the port of a shard's --listen, and does that shard run (and not stand still)?";

constexpr WayOut kTlsWaysOut[] = {
    {"Domain name not found",
     "nobody knows this name: is the shard's host or pod there, and is --shard spelt as its name "
     "is?"},
    {kLookup, "does the name server answer that /etc/resolv.conf names, also here?"},
    {"certificate verify failed",
     "the authority in --shard-tls-ca has not signed the shard's certificate, or that one is out "
     "of its dates: give the shard a new one and restart it"},
    {"is not in peer certificate",
     "the shard's certificate is for another name: give it one with this name, or write its name "
     "in --shard"},
    {"Socket closed", kNotTaken},
    {"Connection reset", kNotTaken},
    {"wrong version number",
     "who listens there speaks no TLS: is it the port of a shard's --listen, and has that shard "
     "--tls-cert, --tls-key and --tls-ca?"},
    {"Handshake read failed", kNoShard},
    {"ALPN", kNoShard},
    {"Connection refused", "nobody listens there: does the shard run, and with this port?"},
    {"", "is its host up, and does the network let this router through (firewall, NetworkPolicy)?"},
};

constexpr absl::string_view kWantsTls =
    "most likely it wants TLS: give --shard-tls-cert, --shard-tls-key and --shard-tls-ca";

constexpr WayOut kLoopbackWaysOut[] = {
    {"Connection refused", "nobody listens there: does the shard run, and with this port?"},
    {"closed the connection", kWantsTls},
    {"Connection reset", kWantsTls},
    {"", kNoShard},
};

constexpr WayOut kUnixWaysOut[] = {
    {"Connection refused", "nobody listens there: does the shard run, and with this --socket?"},
    {"No such file", "no shard has made this socket: does it run, and with this --socket?"},
    {"Permission denied",
     "only the user that the shard runs as may open its socket: run the router as that user"},
    {"", "is it the --socket of a shard, and does that shard run (and not stand still)?"},
};

// The last way out of a route is for everything.
absl::string_view FindWayOut(ShardRoute route, absl::string_view why) {
  absl::Span<const WayOut> ways = kTlsWaysOut;
  if (route == ShardRoute::kLoopback) ways = kLoopbackWaysOut;
  if (route == ShardRoute::kUnixSocket) ways = kUnixWaysOut;
  for (const WayOut& way : ways) {
    if (absl::StrContains(why, way.said)) return way.do_this;
  }
  return "";
}

}  // namespace

bool IsLookupFailure(absl::string_view why) { return absl::StrContains(why, kLookup); }

std::string NoConnection(ShardRoute route, absl::string_view address, absl::string_view why) {
  if (why.empty()) {
    return absl::StrCat("no connection: ", address, " does not answer; ", FindWayOut(route, ""));
  }
  // "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:7000: what broke"
  const size_t last = why.find(kLastError);
  if (last != absl::string_view::npos) why.remove_prefix(last + kLastError.size());
  why = absl::StripPrefix(absl::StripPrefix(why, "UNKNOWN: "), "UNAVAILABLE: ");
  return absl::StrCat("no connection: ", address, ": ", why, "; ", FindWayOut(route, why));
}

}  // namespace weft::router
