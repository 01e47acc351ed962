// weft key: makes, lists and revokes API keys in a key file (router/doors/identity/key_file.h). A
// key is shown once and never written; its SHA-256 is. Commands on one file exclude each other.
// Called by RunKey and by tests; waits for the disk.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::launcher {

struct NewKeyOptions {
  std::string tenant;
  // Empty = no file is touched.
  std::string file;
  // For people, in lists.
  std::string name;
  // As ParseExpiry takes it; empty = never.
  std::string expires;
};

struct NewKey {
  std::string key;
  // The line of JSON that belongs among the tenant's keys.
  std::string entry;
  // The file, or this tenant in it, was made.
  bool tenant_is_new = false;
};

// A fresh key, whose digest is in the file when this returns; a file that was not there is made
// with mode 0600. INVALID_ARGUMENT, naming the flag, for a bad tenant name or date.
absl::StatusOr<NewKey> MakeKey(const NewKeyOptions& options, absl::Time now);

// A table of the file's keys, without the keys.
absl::StatusOr<std::string> ListKeys(const std::string& file, absl::Time now);

// Takes the key out of the file that `id` names: the first 8 or more digits of its digest, its
// name, or the key itself. What it was, in words. NOT_FOUND or INVALID_ARGUMENT when that is not
// exactly one of the file's, or of `tenant`'s (empty = of all).
absl::StatusOr<std::string> RevokeKey(const std::string& file, const std::string& id,
                                      const std::string& tenant);

}  // namespace weft::launcher
