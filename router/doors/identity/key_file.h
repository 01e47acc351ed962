// The file of tenants and the digests of their keys (docs/OPERATIONS.md shows one): reading,
// checking, writing. Pure but for the disk; used by Identity at start-up and on reload, and by
// `weft key`.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/doors/identity/api_key.h"
#include "router/tenants/tenant_limits.h"

namespace weft::router {

// The tenant of everybody where there is no key file; no file may use the name.
inline constexpr char kAnonymousTenant[] = "anonymous";

struct KeyEntry {
  KeyDigest digest;
  // For people; may be empty.
  std::string name;
  // The first moment at which the key is refused.
  absl::Time expires = absl::InfiniteFuture();
};

struct TenantEntry {
  std::string name;
  TenantLimits limits;
  std::vector<KeyEntry> keys;
};

// No two tenants of one name, no two keys of one digest, everything within common/limits.h.
struct KeyFile {
  std::vector<TenantEntry> tenants;

  // Null when there is none.
  TenantEntry* Find(absl::string_view tenant);
  size_t keys() const;
};

// INVALID_ARGUMENT "path:line: what was expected" for anything that is not understood, unknown
// fields included. `path` serves for messages alone.
absl::StatusOr<KeyFile> ParseKeyFile(const std::string& path, absl::string_view text);
// The bytes of a key file. Errors of open(2) begin with the path and name the way out.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);
// Reads and parses.
absl::StatusOr<KeyFile> LoadKeyFile(const std::string& path);
// JSON that ParseKeyFile reads back as the same, and one key of it.
std::string FormatKeyFile(const KeyFile& file);
std::string FormatKeyEntry(const KeyEntry& key);

// 1 .. kTenantNameBytesMax of [A-Za-z0-9._-], not `anonymous`. INVALID_ARGUMENT otherwise.
absl::Status CheckTenantName(absl::string_view name);
// `2027-01-31` (its first moment, UTC) or RFC 3339. INVALID_ARGUMENT otherwise.
absl::StatusOr<absl::Time> ParseExpiry(absl::string_view text);
std::string FormatExpiry(absl::Time expires);

}  // namespace weft::router
