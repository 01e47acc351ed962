#include "router/tenants/tenant.h"

#include "absl/strings/str_cat.h"
#include "router/errors.h"

namespace weft::router {

absl::StatusOr<int32_t> ResolvePriority(const Tenant& tenant, absl::optional<int32_t> asked) {
  const TenantLimits& limits = tenant.limits;
  const int32_t priority = asked.value_or(limits.priority_default);
  if (priority < limits.priority_min || priority > limits.priority_max) {
    return FieldError("priority", absl::StrCat("must be from ", limits.priority_min, " to ",
                                               limits.priority_max, " for tenant ", tenant.name));
  }
  return priority;
}

}  // namespace weft::router
