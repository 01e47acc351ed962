// On whose behalf a request runs (invariant who.pays). Made by Identity when the key file is read,
// one object per tenant and reading; a request keeps the one that it came with. Immutable but for
// the meter, which all readings share; thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "router/tenants/tenant_limits.h"
#include "router/tenants/tenant_meter.h"

namespace weft::router {

struct Tenant {
  std::string name;
  // Below kTenantIndexMax, one name's for as long as the key file or a request knows it, and of
  // nobody else meanwhile. 0 is `anonymous`.
  uint32_t index = 0;
  // Keeps tenants' prefix caches apart. Follows from the name and a random key of this process;
  // never 0.
  uint64_t cache_salt = 0;
  TenantLimits limits;
  // Never null.
  std::shared_ptr<TenantMeter> meter;
};

// Never null.
using TenantRef = std::shared_ptr<const Tenant>;

// The priority of a request that asks for `asked`. INVALID_ARGUMENT, naming `priority` and the
// tenant's range, when it is outside.
absl::StatusOr<int32_t> ResolvePriority(const Tenant& tenant, absl::optional<int32_t> asked);

}  // namespace weft::router
