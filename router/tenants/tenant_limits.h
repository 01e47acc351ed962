// What a tenant may do. Read from the key file (key_file.h); a value, copied freely.

#pragma once

#include <cstdint>

#include "absl/types/optional.h"
#include "common/limits.h"

namespace weft::router {

struct TenantLimits {
  // Share of the tokens among tenants that have work, kTenantWeightMin .. kTenantWeightMax.
  double weight = 1;
  // Requests that wait or run at once, 1 .. kTenantRequestsMax; none = no limit.
  absl::optional<uint32_t> requests_max;
  // Prompt and generated tokens, 1 .. kTenantTokensPerMinuteMax; none = no limit.
  absl::optional<uint64_t> tokens_per_minute;
  // Priorities that requests may ask for, and that of a request that asks for none. The whole range
  // is safe to give: priority orders requests of one tenant among themselves, never against another
  // tenant's.
  int32_t priority_min = -kPriorityAbsMax;
  int32_t priority_max = kPriorityAbsMax;
  int32_t priority_default = 0;

  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

}  // namespace weft::router
