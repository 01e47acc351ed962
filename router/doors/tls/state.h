// The TLS that both doors serve with, through changes of its files: new connections get the newest
// good material, old ones keep theirs. Owned by the router's composition; thread-safe. Reads files
// only when told to (identity/file_watch.h), and never exchanges good material for bad.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/reload_news.h"
#include "openssl/ssl.h"
#include "router/doors/tls/material.h"

namespace weft::router {

class TlsState {
 public:
  using MaterialRef = std::shared_ptr<const TlsMaterial>;
  using Listener = absl::AnyInvocable<void(const MaterialRef&)>;

  // Certificates that expire sooner are warned of, once a day.
  static constexpr absl::Duration kWarnBefore = absl::Hours(14 * 24);
  static constexpr absl::Duration kWarnEvery = absl::Hours(24);

  // Loads; the errors of LoadTlsMaterial and MakeServerContext.
  static absl::StatusOr<std::unique_ptr<TlsState>> Create(
      TlsFiles files, std::function<absl::Time()> wall_now = absl::Now);

  TlsState(const TlsState&) = delete;
  TlsState& operator=(const TlsState&) = delete;

  // For a new HTTP connection (SSL_new takes a reference of its own). Never null.
  std::shared_ptr<SSL_CTX> context() const;
  // PEM texts for gRPC's credentials. Never null.
  MaterialRef material() const;

  // Calls `listener` now, and again after each change with the new material: on the thread that
  // reloads, one call at a time. It must not add listeners or reload.
  void OnChange(Listener listener);

  // Reads the files again. Its error, which is also logged (once for each content), leaves
  // everything as it was; files that say what they said before change and log nothing, unless they
  // were bad meanwhile. Any thread; waits for the disk.
  absl::Status Reload();

  // Logs that the certificate has expired or will within kWarnBefore, at most every kWarnEvery;
  // what it logged, empty for nothing. Call it now and then.
  std::string WarnOfExpiry();

  std::vector<std::string> paths() const { return files_.paths(); }

 private:
  TlsState(TlsFiles files, std::function<absl::Time()> wall_now)
      : files_(std::move(files)),
        wall_now_(std::move(wall_now)),
        news_(files_.paths(), kTlsFileBytesMax) {}
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reload_mutex_);

  const TlsFiles files_;
  const std::function<absl::Time()> wall_now_;

  absl::Mutex reload_mutex_;
  std::vector<Listener> listeners_ ABSL_GUARDED_BY(reload_mutex_);
  ReloadNews news_ ABSL_GUARDED_BY(reload_mutex_);
  absl::Time warned_ ABSL_GUARDED_BY(reload_mutex_) = absl::InfinitePast();

  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(reload_mutex_);
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mutex_);
  MaterialRef material_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
