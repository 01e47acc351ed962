#include "shard/control/handshake_faults.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

struct Reason {
  // In OpenSSL's words.
  absl::string_view said;
  absl::string_view meaning;
};

constexpr Reason kReasons[] = {
    {"certificate verify failed",
     "--tls-ca has not signed its certificate, or that one is out of its dates: mend the router's "
     "--shard-tls-cert"},
    {"peer did not return a certificate",
     "it has no certificate: a router has --shard-tls-cert and --shard-tls-key, a probe its own "
     "flags"},
    {"wrong version number",
     "it speaks no TLS, which this port wants: give the router --shard-tls-cert, --shard-tls-key "
     "and --shard-tls-ca"},
};

}  // namespace

std::string HandshakeFaults::Judge(absl::string_view grpc_line, int64_t now_us) {
  if (!absl::StartsWith(grpc_line, "Handshake failed")) return "";
  for (const Reason& reason : kReasons) {
    if (!absl::StrContains(grpc_line, reason.said)) continue;
    absl::MutexLock lock(&mutex_);
    const auto [entry, is_new] = said_us_.try_emplace(reason.said, now_us);
    if (!is_new && now_us - entry->second < kSilenceUs) return "";
    entry->second = now_us;
    return absl::StrCat("turned a connection away: ", reason.meaning);
  }
  return "";
}

}  // namespace weft::shard
