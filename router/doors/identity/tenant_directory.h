// Turns readings of the key file into tenants that keep index, salt and meter from one reading to
// the next. Owned by Identity, which locks.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "router/doors/identity/key_file.h"
#include "router/tenants/tenant.h"

namespace weft::router {

class TenantDirectory {
 public:
  // Draws the key of the salts. `clock` must outlive this and every tenant, `uses` this.
  TenantDirectory(const Clock* clock, TenantUseBook* uses);

  // Everybody's tenant where there are no keys, index 0, without limits.
  const TenantRef& anonymous() const { return anonymous_; }

  // The tenants of `file`, in its order; their meters have its limits. RESOURCE_EXHAUSTED, and
  // nothing changed, when no index is free: kTenantIndexMax names are in use by the file and by
  // requests of tenants that have left it.
  absl::StatusOr<std::vector<TenantRef>> Update(const KeyFile& file);

 private:
  // A name that was ever seen, until its index is needed for another.
  struct Known {
    uint32_t index = 0;
    // Gone when neither a reading nor a request has it.
    std::weak_ptr<TenantMeter> meter;
  };

  // Gives an index to each new name of the file.
  absl::Status AssignIndexes(const KeyFile& file);
  // The index of a name that nobody uses and that is not in `wanted`; forgets it.
  absl::StatusOr<uint32_t> TakeUnusedIndex(const absl::flat_hash_set<std::string>& wanted);
  uint64_t Salt(absl::string_view name) const;

  const Clock* const clock_;
  TenantUseBook* const uses_;
  std::array<uint8_t, 32> salt_key_{};
  TenantRef anonymous_;
  absl::flat_hash_map<std::string, Known> known_;
  // Indexes from here on were never given to anybody.
  uint32_t fresh_index_ = 1;
};

}  // namespace weft::router
