#include "router/doors/identity/tenant_directory.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "openssl/evp.h"
#include "openssl/hmac.h"
#include "openssl/rand.h"

namespace weft::router {
namespace {

TenantRef MakeTenant(const std::string& name, uint32_t index, uint64_t salt,
                     const TenantLimits& limits, std::shared_ptr<TenantMeter> meter) {
  auto tenant = std::make_shared<Tenant>();
  tenant->name = name;
  tenant->index = index;
  tenant->cache_salt = salt;
  tenant->limits = limits;
  tenant->meter = std::move(meter);
  return tenant;
}

}  // namespace

TenantDirectory::TenantDirectory(const Clock* clock, TenantUseBook* uses)
    : clock_(clock), uses_(uses) {
  WEFT_CHECK_MSG(RAND_bytes(salt_key_.data(), static_cast<int>(salt_key_.size())) == 1,
                 "the system gives no random bits");
  const TenantLimits limits;
  anonymous_ = MakeTenant(kAnonymousTenant, 0, Salt(kAnonymousTenant), limits,
                          std::make_shared<TenantMeter>(kAnonymousTenant, limits, clock_,
                                                        uses_->Open(kAnonymousTenant)));
}

absl::StatusOr<std::vector<TenantRef>> TenantDirectory::Update(const KeyFile& file) {
  WEFT_RETURN_IF_ERROR(AssignIndexes(file));
  std::vector<TenantRef> tenants;
  tenants.reserve(file.tenants.size());
  for (const TenantEntry& entry : file.tenants) {
    Known& known = known_[entry.name];
    std::shared_ptr<TenantMeter> meter = known.meter.lock();
    if (meter == nullptr) {
      meter =
          std::make_shared<TenantMeter>(entry.name, entry.limits, clock_, uses_->Open(entry.name));
      known.meter = meter;
    } else {
      meter->SetLimits(entry.limits);
    }
    tenants.push_back(
        MakeTenant(entry.name, known.index, Salt(entry.name), entry.limits, std::move(meter)));
  }
  return tenants;
}

absl::Status TenantDirectory::AssignIndexes(const KeyFile& file) {
  absl::flat_hash_set<std::string> wanted;
  for (const TenantEntry& entry : file.tenants) wanted.insert(entry.name);
  for (const TenantEntry& entry : file.tenants) {
    if (known_.contains(entry.name)) continue;
    uint32_t index = fresh_index_;
    if (fresh_index_ < kTenantIndexMax) {
      ++fresh_index_;
    } else {
      WEFT_ASSIGN_OR_RETURN(index, TakeUnusedIndex(wanted));
    }
    known_[entry.name].index = index;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> TenantDirectory::TakeUnusedIndex(
    const absl::flat_hash_set<std::string>& wanted) {
  for (auto it = known_.begin(); it != known_.end(); ++it) {
    if (wanted.contains(it->first) || !it->second.meter.expired()) continue;
    const uint32_t index = it->second.index;
    known_.erase(it);
    return index;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", kTenantIndexMax,
                   " tenants have requests or stand in the key "
                   "file; wait until requests of those that left it have ended"));
}

uint64_t TenantDirectory::Salt(absl::string_view name) const {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned int bytes = 0;
  WEFT_CHECK(HMAC(EVP_sha256(), salt_key_.data(), static_cast<int>(salt_key_.size()),
                  reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest,
                  &bytes) != nullptr);
  uint64_t salt = 0;
  std::memcpy(&salt, digest, sizeof(salt));
  return salt != 0 ? salt : 1;
}

}  // namespace weft::router
