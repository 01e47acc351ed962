// Use by tenant as metrics, whose labels are bounded however many tenants there are: the
// kTenantLabelsMax names with most tokens since the router started have series of their own, all
// others together the label `other`. Use counts in the series that its tenant has when it is seen
// first, so that all series together always say the whole, and `other` never jumps when a name
// comes or goes; the series of a name that goes ends, and begins at zero if it comes back. Owned by
// the probe; one thread at a time. Costs nothing between two readings of the metrics.

#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "router/tenants/tenant_use.h"

namespace weft::router {

inline constexpr size_t kTenantLabelsMax = 50;
// Who has no label of its own, and a tenant of this name.
inline constexpr char kOtherTenants[] = "other";

class TenantMetrics {
 public:
  TenantMetrics();

  // Brings the series to what was read, in which no sum is smaller than before.
  void Update(TenantUseBook::Reading reading);

 private:
  struct Series {
    prometheus::Counter* requests;
    prometheus::Counter* rejections;
    prometheus::Counter* prompt_tokens;
    prometheus::Counter* generated_tokens;
  };

  Series Add(const std::string& tenant);
  void Remove(const Series& series);
  // Which names have a label from now on. Who has one keeps it until somebody has a tenth more
  // tokens, so that two who are alike do not take turns.
  void Choose(const TenantUseBook::Reading& reading);

  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& rejections_;
  prometheus::Family<prometheus::Counter>& prompt_tokens_;
  prometheus::Family<prometheus::Counter>& generated_tokens_;
  Series other_;
  std::map<std::string, Series> labelled_;
  // What the series have of each name, and of all together.
  absl::flat_hash_map<std::string, TenantUseCounts> seen_;
  TenantUseCounts seen_total_;
};

}  // namespace weft::router
