// The TLS material of one side of router and shard, which follows its files: whoever renews a
// certificate replaces them, and the next connection has the new ones. Files that cannot be used
// change nothing but a line in the log. Made at start, owned by what makes connections. Refresh()
// reads files: before a connection is made, never while tokens wait for it. Thread-safe.

#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/tls_pem.h"

namespace weft {

class PeerTlsSource {
 public:
  // Errors as of LoadPeerTls().
  static absl::StatusOr<std::unique_ptr<PeerTlsSource>> Open(absl::string_view flag,
                                                             PeerTlsFiles files);

  PeerTls tls() const;
  // Reads the files. True when there is new material, which tls() gives from now on.
  bool Refresh();

 private:
  PeerTlsSource(absl::string_view flag, PeerTlsFiles files, PeerTls tls);

  const std::string flag_;
  const PeerTlsFiles files_;
  mutable absl::Mutex mutex_;
  PeerTls tls_ ABSL_GUARDED_BY(mutex_);
  // Why the files could not be used when they were read last; empty when they could.
  std::string fault_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft
