// The tenant of tests that are not about tenants.

#pragma once

#include <memory>

#include "common/clock.h"
#include "router/tenants/tenant.h"

namespace weft::router {

inline TenantRef Anonymous() {
  static const TenantRef tenant = [] {
    auto made = std::make_shared<Tenant>();
    made->name = "anonymous";
    made->cache_salt = 1;
    made->meter = std::make_shared<TenantMeter>(made->name, made->limits, &MonotonicClock());
    return made;
  }();
  return tenant;
}

}  // namespace weft::router
