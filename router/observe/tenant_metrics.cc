#include "router/observe/tenant_metrics.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/metrics.h"

namespace weft::router {
namespace {

TenantUseCounts Difference(const TenantUseCounts& now, const TenantUseCounts& before) {
  TenantUseCounts more;
  more.requests = now.requests - before.requests;
  more.rejections = now.rejections - before.rejections;
  more.prompt_tokens = now.prompt_tokens - before.prompt_tokens;
  more.generated_tokens = now.generated_tokens - before.generated_tokens;
  return more;
}

// Counts only grow, unless the name was forgotten and came again.
bool Grown(const TenantUseCounts& now, const TenantUseCounts& before) {
  return now.requests >= before.requests && now.rejections >= before.rejections &&
         now.prompt_tokens >= before.prompt_tokens &&
         now.generated_tokens >= before.generated_tokens;
}

}  // namespace

TenantMetrics::TenantMetrics()
    : requests_(CounterFamily("weft_tenant_requests_total", "Requests let in, by tenant")),
      rejections_(CounterFamily("weft_tenant_rejections_total", "Requests turned away, by tenant")),
      prompt_tokens_(CounterFamily("weft_tenant_prompt_tokens_total",
                                   "Prompt tokens of requests that began to run, by tenant")),
      generated_tokens_(
          CounterFamily("weft_tenant_generation_tokens_total", "Tokens of answers, by tenant")),
      other_(Add(kOtherTenants)) {}

TenantMetrics::Series TenantMetrics::Add(const std::string& tenant) {
  const std::map<std::string, std::string> labels = {{"tenant", tenant}};
  return {&requests_.Add(labels), &rejections_.Add(labels), &prompt_tokens_.Add(labels),
          &generated_tokens_.Add(labels)};
}

void TenantMetrics::Remove(const Series& series) {
  requests_.Remove(series.requests);
  rejections_.Remove(series.rejections);
  prompt_tokens_.Remove(series.prompt_tokens);
  generated_tokens_.Remove(series.generated_tokens);
}

void TenantMetrics::Choose(const TenantUseBook::Reading& reading) {
  // Tokens as they count for a label, most first.
  std::vector<std::pair<double, std::string>> ranks;
  ranks.reserve(reading.by_name.size());
  for (const auto& [name, counts] : reading.by_name) {
    if (name == kOtherTenants) continue;
    const double advantage = labelled_.count(name) > 0 ? 1.1 : 1.0;
    ranks.emplace_back(advantage * static_cast<double>(counts.tokens()), name);
  }
  const size_t kept = std::min(ranks.size(), kTenantLabelsMax);
  std::partial_sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(kept), ranks.end(),
                    [this](const auto& a, const auto& b) {
                      if (a.first != b.first) return a.first > b.first;
                      const bool has_a = labelled_.count(a.second) > 0;
                      const bool has_b = labelled_.count(b.second) > 0;
                      return has_a != has_b ? has_a : a.second < b.second;
                    });
  std::map<std::string, Series> labelled;
  for (size_t i = 0; i < kept; ++i) {
    auto node = labelled_.extract(ranks[i].second);
    if (node.empty()) {
      labelled.emplace(ranks[i].second, Add(ranks[i].second));
    } else {
      labelled.insert(std::move(node));
    }
  }
  for (const auto& [name, series] : labelled_) Remove(series);
  labelled_ = std::move(labelled);
}

void TenantMetrics::Update(TenantUseBook::Reading reading) {
  Choose(reading);
  const auto grow = [](const Series& series, const TenantUseCounts& more) {
    series.requests->Increment(static_cast<double>(more.requests));
    series.rejections->Increment(static_cast<double>(more.rejections));
    series.prompt_tokens->Increment(static_cast<double>(more.prompt_tokens));
    series.generated_tokens->Increment(static_cast<double>(more.generated_tokens));
  };
  TenantUseCounts total = reading.forgotten;
  // Of what all have used more: what no label has.
  TenantUseCounts shown;
  for (const auto& [name, counts] : reading.by_name) {
    total += counts;
    const auto label = labelled_.find(name);
    if (label == labelled_.end()) continue;
    const auto before = seen_.find(name);
    const bool grown = before != seen_.end() && Grown(counts, before->second);
    const TenantUseCounts more = grown ? Difference(counts, before->second) : counts;
    grow(label->second, more);
    shown += more;
  }
  grow(other_, Difference(Difference(total, seen_total_), shown));
  seen_ = std::move(reading.by_name);
  seen_total_ = total;
}

}  // namespace weft::router
