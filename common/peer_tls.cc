#include "common/peer_tls.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status.h"

namespace weft {

absl::StatusOr<std::unique_ptr<PeerTlsSource>> PeerTlsSource::Open(absl::string_view flag,
                                                                   PeerTlsFiles files) {
  WEFT_ASSIGN_OR_RETURN(PeerTls tls, LoadPeerTls(flag, files, absl::Now()));
  return std::unique_ptr<PeerTlsSource>(new PeerTlsSource(flag, std::move(files), std::move(tls)));
}

PeerTlsSource::PeerTlsSource(absl::string_view flag, PeerTlsFiles files, PeerTls tls)
    : flag_(flag), files_(std::move(files)), tls_(std::move(tls)) {}

PeerTls PeerTlsSource::tls() const {
  absl::MutexLock lock(&mutex_);
  return tls_;
}

bool PeerTlsSource::Refresh() {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<PeerTls> read = LoadPeerTls(flag_, files_, absl::Now());
  if (!read.ok()) {
    // Once for each reason: connections come again and again.
    if (std::exchange(fault_, std::string(read.status().message())) != fault_) {
      WEFT_LOG_WARN("{}; the certificate read before stays in use", fault_);
    }
    return false;
  }
  fault_.clear();
  if (*read == tls_) return false;
  tls_ = *std::move(read);
  WEFT_LOG_INFO("new certificates of {}-cert, -key and -ca are in use", flag_);
  return true;
}

}  // namespace weft
