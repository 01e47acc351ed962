// Who is asking: the key of a request to its tenant (invariant who.pays), the same for HTTP and
// gRPC. Without a key file everybody is the tenant `anonymous`. Owned by the router's composition,
// called by doors' threads; a reading of the file is an immutable table that is exchanged whole, so
// a key that is gone from the file stops new requests at once. Keys are never kept, logged or
// repeated in an error.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "common/reload_news.h"
#include "router/doors/identity/api_key.h"
#include "router/doors/identity/tenant_directory.h"
#include "router/tenants/tenant.h"

namespace weft::router {

// What an HTTP door sends as `www-authenticate` with a 401.
inline constexpr char kWwwAuthenticate[] = "Bearer realm=\"weft\"";

struct IdentityOptions {
  // Empty = no keys.
  std::string key_file;
  // Paces tokens a minute; must outlive the Identity and every tenant.
  const Clock* clock = &MonotonicClock();
  // The calendar, for keys that expire.
  std::function<absl::Time()> wall_now = absl::Now;
};

class Identity {
 public:
  // Reads the key file. Its error (key_file.h) when there is one.
  static absl::StatusOr<std::unique_ptr<Identity>> Create(IdentityOptions options);

  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  bool has_keys() const { return !options_.key_file.empty(); }

  // The tenant of a request with these headers (or gRPC metadata), empty where there is none:
  // `authorization: Bearer KEY`, else `x-api-key: KEY`. UNAUTHENTICATED when the key is missing,
  // unknown or expired. Without a key file headers are not looked at.
  absl::StatusOr<TenantRef> Authenticate(absl::string_view authorization,
                                         absl::string_view x_api_key = {}) const;

  // What the tenants have used.
  TenantUseBook::Reading Uses() const { return uses_.Read(); }

  // Reads the key file again. Its error, which is also logged (once for each content), leaves
  // everything as it was; a file that says what it said before changes and logs nothing, unless it
  // was bad meanwhile. Any thread; waits for the disk.
  absl::Status Reload();

 private:
  struct Key {
    TenantRef tenant;
    absl::Time expires;
  };
  struct Table {
    absl::flat_hash_map<KeyDigest, Key> keys;
    size_t tenants = 0;
  };

  explicit Identity(IdentityOptions options);
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reload_mutex_);
  std::shared_ptr<const Table> table() const {
    absl::ReaderMutexLock lock(&table_mutex_);
    return table_;
  }

  const IdentityOptions options_;
  const KeyHasher hasher_;
  TenantUseBook uses_;
  TenantRef anonymous_;
  // Made once: a refusal copies a reference.
  const absl::Status no_key_;
  const absl::Status unknown_key_;
  const absl::Status expired_key_;

  absl::Mutex reload_mutex_;
  TenantDirectory directory_ ABSL_GUARDED_BY(reload_mutex_);
  // Of the file's text that the table was made from.
  absl::optional<KeyDigest> text_digest_ ABSL_GUARDED_BY(reload_mutex_);
  ReloadNews news_ ABSL_GUARDED_BY(reload_mutex_);

  mutable absl::Mutex table_mutex_ ABSL_ACQUIRED_AFTER(reload_mutex_);
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(table_mutex_);
};

}  // namespace weft::router
