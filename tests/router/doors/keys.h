// Keys of the HTTP doors' tests: a key file in a folder of its own, and whom it names.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "router/doors/door_context.h"
#include "router/doors/identity/api_key.h"
#include "router/doors/identity/key_file.h"
#include "tests/common/temp_dir.h"

namespace weft::router {

class TestKeys {
 public:
  // A tenant with a key, which Load knows.
  std::string Add(const std::string& tenant, const TenantLimits& limits = {},
                  absl::Time expires = absl::InfiniteFuture()) {
    const std::string key = NewApiKey().value();
    TenantEntry entry;
    entry.name = tenant;
    entry.limits = limits;
    entry.keys.emplace_back();
    entry.keys.back().digest = KeyHasher().Hash(key);
    entry.keys.back().expires = expires;
    file_.tenants.push_back(std::move(entry));
    return key;
  }

  // Options of doors that asks for these keys.
  DoorOptions Load() {
    IdentityOptions options;
    options.key_file = folder_.Write("keys.json", FormatKeyFile(file_));
    identity_ = Identity::Create(std::move(options)).value();
    DoorOptions doors;
    doors.identity = identity_.get();
    return doors;
  }

 private:
  test::TempDir folder_;
  KeyFile file_;
  std::unique_ptr<Identity> identity_;
};

inline std::string KeyHeader(const std::string& key) {
  return absl::StrCat("authorization: Bearer ", key, "\r\n");
}

}  // namespace weft::router
