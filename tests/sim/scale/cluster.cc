#include "tests/sim/scale/cluster.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "router/tenants/tenant.h"
#include "tests/sim/scale/replica.h"
#include "tests/sim/scale/routing.h"
#include "tests/sim/scale/step_cost.h"
#include "tests/support/splitmix.h"

namespace weft::router::scale {
namespace {

// A batch that a replica under load has.
constexpr uint32_t kFilledRows = 64;

double Percentile(std::vector<float>* values, double share) {
  if (values->empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

class Cluster {
 public:
  explicit Cluster(const ScaleOptions& options)
      : options_(options),
        policy_(MakePolicy(options.policy)),
        source_(*FindShape(options.shape), DemandOf(options), options.seed) {
    WEFT_CHECK(policy_ != nullptr && options.replicas >= 1 && options.replicas <= kReplicasMax);
    for (uint32_t i = 0; i < options.tenants; ++i) {
      auto tenant = std::make_shared<Tenant>();
      tenant->name = "tenant";
      tenant->index = i;
      tenant->meter = std::make_shared<TenantMeter>(tenant->name, TenantLimits(), &clock_);
      tenants_.push_back(std::move(tenant));
    }
    for (uint32_t i = 0; i < options.replicas; ++i) {
      replicas_.push_back(
          std::make_unique<Replica>(&clock_, tenants_, options.inter_token_target_us));
    }
    loads_.resize(options.replicas);
    report_.tenants.resize(options.tenants);
  }

  ScaleReport Run() {
    TraceRequest next = source_.Next();
    uint32_t left = options_.requests;
    while (left > 0 || !turns_.empty()) {
      const bool arrives = left > 0 && (turns_.empty() || next.arrival_us <= turns_.top().first);
      MoveTo(arrives ? next.arrival_us : turns_.top().first);
      if (arrives) {
        last_arrival_us_ = next.arrival_us;
        Arrive(next);
        if (--left > 0) next = source_.Next();
      } else {
        const uint32_t which = turns_.top().second;
        turns_.pop();
        replicas_[which]->Answer(&outcomes_);
        ++report_.events;
        Turn(which);
      }
      TakeOutcomes();
    }
    Finish();
    return std::move(report_);
  }

 private:
  using At = std::pair<int64_t, uint32_t>;

  static Demand DemandOf(const ScaleOptions& options) {
    Demand demand;
    demand.requests_per_s =
        options.load * options.replicas * 1e6 / WorkUs(*FindShape(options.shape));
    demand.tenants = options.tenants;
    demand.first_share = options.first_share;
    return demand;
  }

  void MoveTo(int64_t us) { clock_.AdvanceUs(us - clock_.NowUs()); }

  // The replica has one turn in the queue while it has steps in flight: that of the oldest.
  void Turn(uint32_t which) {
    const int64_t us = replicas_[which]->NextUs();
    if (us != kNeverUs) turns_.push({us, which});
  }

  void Arrive(const TraceRequest& request) {
    for (uint32_t i = 0; i < loads_.size(); ++i) loads_[i] = replicas_[i]->Load();
    labels_.clear();
    for (uint32_t at = 0; at + kBlockTokens <= request.prompt_tokens; at += kBlockTokens) {
      labels_.push_back(TokenAt(request, at));
    }
    const uint32_t which = policy_->Choose(loads_, request.prompt_tokens, labels_);
    const bool had_turn = replicas_[which]->NextUs() != kNeverUs;
    replicas_[which]->Arrive(request, &outcomes_);
    if (!had_turn) Turn(which);
    ++report_.events;
    ++report_.requests;
    TenantReport& tenant = report_.tenants[request.tenant];
    ++tenant.requests;
    tenant.asked_tokens += request.prompt_tokens + request.output_tokens;
    prompt_tokens_ += request.prompt_tokens;
    output_tokens_ += request.output_tokens;
    seen_tokens_ += request.seen_tokens;
  }

  void TakeOutcomes() {
    for (const Outcome& outcome : outcomes_) {
      TenantReport& tenant = report_.tenants[outcome.tenant];
      report_.digest = test::Splitmix(report_.digest ^ static_cast<uint64_t>(outcome.end_us)) ^
                       static_cast<uint64_t>(outcome.first_token_us);
      ++report_.events;
      if (outcome.refused) {
        ++report_.refused;
        ++tenant.refused;
        continue;
      }
      ++report_.finished;
      served_prompt_tokens_ += outcome.prompt_tokens;
      cached_tokens_ += outcome.cached_tokens;
      // What ends after the last arrival is a backlog that is worked off.
      if (outcome.end_us <= last_arrival_us_ || report_.requests < options_.requests) {
        tenant.served_tokens += outcome.prompt_tokens + outcome.output_tokens;
      }
      const int64_t first_us = outcome.first_token_us - outcome.arrival_us;
      const double per_token_us = static_cast<double>(outcome.end_us - outcome.first_token_us) /
                                  std::max(1u, outcome.output_tokens - 1);
      first_ms_.push_back(static_cast<float>(first_us) / 1e3f);
      if (outcome.output_tokens > 1)
        per_token_ms_.push_back(static_cast<float>(per_token_us / 1e3));
      const bool kept = first_us <= kFirstTokenUs + kFirstTokenPerPromptTokenUs *
                                                        int64_t{outcome.prompt_tokens} &&
                        per_token_us <= kPerTokenUs;
      report_.kept += kept;
      tenant.kept += kept;
    }
    outcomes_.clear();
  }

  void Finish() {
    WEFT_CHECK_EQ(report_.finished + report_.refused, report_.requests);
    report_.virtual_s = static_cast<double>(clock_.NowUs()) / 1e6;
    int64_t busy_us = 0;
    for (const auto& replica : replicas_) {
      const SchedulerStats stats = replica->Stats();
      WEFT_CHECK(replica->idle() && stats.running == 0 && stats.waiting == 0);
      WEFT_CHECK_EQ(stats.blocks_used, 0u);
      WEFT_CHECK(replica->admission().WaitIdle(absl::ZeroDuration()));
      WEFT_CHECK_EQ(replica->admission().bytes(), 0u);
      report_.preemptions += stats.preemptions;
      report_.steps += replica->steps();
      report_.rows += replica->rows();
      busy_us += replica->busy_us();
    }
    report_.busy_share = static_cast<double>(busy_us) / 1e6 / report_.virtual_s / options_.replicas;
    report_.first_token_p50_ms = Percentile(&first_ms_, 0.5);
    report_.first_token_p99_ms = Percentile(&first_ms_, 0.99);
    report_.per_token_p50_ms = Percentile(&per_token_ms_, 0.5);
    report_.per_token_p99_ms = Percentile(&per_token_ms_, 0.99);
    report_.hit_share = served_prompt_tokens_ == 0
                            ? 0
                            : static_cast<double>(cached_tokens_) / served_prompt_tokens_;
    report_.hit_share_best = static_cast<double>(seen_tokens_) / prompt_tokens_;
    report_.prompt_tokens = prompt_tokens_ / static_cast<double>(report_.requests);
    report_.output_tokens = output_tokens_ / static_cast<double>(report_.requests);
    Fairness();
  }

  // A tenant that asks for less than its share is to get all of it; one that asks for more, as much
  // as the others could have had. So what each got is held against the least of both.
  void Fairness() {
    uint64_t served = 0;
    for (const TenantReport& tenant : report_.tenants) served += tenant.served_tokens;
    std::vector<double> asked;
    for (const TenantReport& tenant : report_.tenants) {
      asked.push_back(static_cast<double>(tenant.asked_tokens));
    }
    // Max-min: what is left is shared among those that still want.
    std::sort(asked.begin(), asked.end());
    double left = static_cast<double>(served);
    double level = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const double share = left / static_cast<double>(asked.size() - i);
      level = std::min(asked[i], share);
      left -= level;
    }
    double sum = 0;
    double squares = 0;
    double least = 2;
    double largest = 0;
    for (const TenantReport& tenant : report_.tenants) {
      const double due = std::min(level, static_cast<double>(tenant.asked_tokens));
      const double got = due == 0 ? 1 : static_cast<double>(tenant.served_tokens) / due;
      sum += got;
      squares += got * got;
      least = std::min(least, got);
      largest = std::max(largest, got);
    }
    const double count = static_cast<double>(report_.tenants.size());
    report_.least_by_largest = least / largest;
    report_.jain = sum * sum / (count * squares);
  }

  const ScaleOptions options_;
  ManualClock clock_;
  const std::unique_ptr<Policy> policy_;
  TraceSource source_;
  std::vector<TenantRef> tenants_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<ReplicaLoad> loads_;
  std::vector<TokenId> labels_;
  std::priority_queue<At, std::vector<At>, std::greater<>> turns_;
  std::vector<Outcome> outcomes_;
  int64_t last_arrival_us_ = 0;
  double prompt_tokens_ = 0;
  double output_tokens_ = 0;
  double seen_tokens_ = 0;
  double served_prompt_tokens_ = 0;
  double cached_tokens_ = 0;
  std::vector<float> first_ms_;
  std::vector<float> per_token_ms_;
  ScaleReport report_;
};

}  // namespace

double WorkUs(const TraceShape& shape) {
  // Means over many requests rather than those of the formulas: lengths are cut off.
  TraceSource source(shape, Demand(), 12345);
  constexpr int kDraws = 20000;
  double us = 0;
  for (int i = 0; i < kDraws; ++i) {
    const TraceRequest request = source.Next();
    const double prompt = request.prompt_tokens;
    const double context = prompt + request.output_tokens / 2.0;
    us += StepUs(8192, 0, 0) / 8192 * prompt + StepUs(1, 0, prompt * prompt / 2) - StepUs(1, 0, 0) +
          request.output_tokens * StepUs(kFilledRows, kFilledRows * context, 0) / kFilledRows;
  }
  return us / kDraws;
}

ScaleReport RunScale(const ScaleOptions& options) { return Cluster(options).Run(); }

}  // namespace weft::router::scale
