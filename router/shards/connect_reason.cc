#include "router/shards/connect_reason.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft::router {
namespace {

constexpr absl::string_view kLookup = "DNS resolution failed";
constexpr absl::string_view kLastError = "last error: ";

struct WayOut {
  absl::string_view said;
  absl::string_view do_this;
};

constexpr WayOut kWaysOut[] = {
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
    {"Socket closed",
     "most likely the shard does not take this router's certificate: its --tls-ca must have "
     "signed --shard-tls-cert, which must be within its dates"},
    {"Connection reset",
     "most likely the shard does not take this router's certificate: its --tls-ca must have "
     "signed --shard-tls-cert, which must be within its dates"},
    {"wrong version number",
     "who listens there speaks no TLS: is it the port of a shard's --listen?"},
    {"Connection refused", "nobody listens there: does the shard run, and with this port?"},
};

constexpr absl::string_view kSilence =
    "is its host up, and does the network let this router through (firewall, NetworkPolicy)?";

}  // namespace

bool IsLookupFailure(absl::string_view why) { return absl::StrContains(why, kLookup); }

std::string NoConnection(absl::string_view address, absl::string_view why) {
  if (why.empty()) {
    return absl::StrCat("no connection: ", address, " does not answer; ", kSilence);
  }
  // "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.5:7000: what broke"
  const size_t last = why.find(kLastError);
  if (last != absl::string_view::npos) why.remove_prefix(last + kLastError.size());
  why = absl::StripPrefix(absl::StripPrefix(why, "UNKNOWN: "), "UNAVAILABLE: ");
  absl::string_view do_this = kSilence;
  for (const WayOut& way : kWaysOut) {
    if (!absl::StrContains(why, way.said)) continue;
    do_this = way.do_this;
    break;
  }
  return absl::StrCat("no connection: ", address, ": ", why, "; ", do_this);
}

}  // namespace weft::router
