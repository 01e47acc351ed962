// The simulation of scale_test.cc at any size: one line for each policy.
//   weft_scale_sim [--shape S,..] [--policy P,..] [--replicas N] [--requests N] [--load X]
//                  [--tenants N] [--first-share X]
//                  [--inter-token-target-ms N] [--seed N]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/sim/scale/cluster.h"
#include "tests/sim/scale/routing.h"

namespace weft::router::scale {
namespace {

void Print(const ScaleOptions& options, const ScaleReport& r, double took_s) {
  std::printf(
      "%-14s %-15s %2u x %7llu req  load %.2f  busy %.2f  good %5.1f %%  refused %4.1f %%  "
      "ttft p50 %6.0f p99 %7.0f ms  tpot p50 %5.1f p99 %5.1f ms  hits %4.1f of %4.1f %%  "
      "min/max %.3f jain %.3f  preempted %llu\n",
      options.shape.c_str(), options.policy.c_str(), options.replicas,
      static_cast<unsigned long long>(r.requests), options.load, r.busy_share, 100 * r.kept_share(),
      100.0 * static_cast<double>(r.refused) / static_cast<double>(r.requests),
      r.first_token_p50_ms, r.first_token_p99_ms, r.per_token_p50_ms, r.per_token_p99_ms,
      100 * r.hit_share, 100 * r.hit_share_best, r.least_by_largest, r.jain,
      static_cast<unsigned long long>(r.preemptions));
  std::printf(
      "  %.0f s of virtual time, mean prompt %.0f and output %.0f tokens, %llu steps, %llu rows, "
      "%.0f "
      "events/s, %.1f s, digest %016llx\n",
      r.virtual_s, r.prompt_tokens, r.output_tokens, static_cast<unsigned long long>(r.steps),
      static_cast<unsigned long long>(r.rows), static_cast<double>(r.events) / took_s, took_s,
      static_cast<unsigned long long>(r.digest));
  std::fflush(stdout);
}

[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "weft_scale_sim: %s\n", why.c_str());
  std::exit(1);
}

int Main(int argc, char** argv) {
  ScaleOptions options;
  std::vector<std::string> shapes;
  for (const TraceShape& shape : Shapes()) shapes.push_back(shape.name);
  std::vector<std::string> policies = {"round_robin", "least_loaded", "prefix_affinity",
                                       "prefix_tight"};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) Refuse(name + " needs a value");
    const std::string value = argv[i + 1];
    bool good = true;
    if (name == "--shape") {
      shapes = absl::StrSplit(value, ',');
    } else if (name == "--policy") {
      policies = absl::StrSplit(value, ',');
    } else if (name == "--replicas") {
      good = absl::SimpleAtoi(value, &options.replicas) && options.replicas >= 1 &&
             options.replicas <= kReplicasMax;
    } else if (name == "--requests") {
      good = absl::SimpleAtoi(value, &options.requests) && options.requests >= 1;
    } else if (name == "--load") {
      good = absl::SimpleAtod(value, &options.load) && options.load > 0;
    } else if (name == "--tenants") {
      good = absl::SimpleAtoi(value, &options.tenants) && options.tenants >= 1;
    } else if (name == "--first-share") {
      good = absl::SimpleAtod(value, &options.first_share) && options.first_share > 0 &&
             options.first_share <= 1;
    } else if (name == "--inter-token-target-ms") {
      good = absl::SimpleAtoi(value, &options.inter_token_target_us);
      options.inter_token_target_us *= 1000;
    } else if (name == "--seed") {
      good = absl::SimpleAtoi(value, &options.seed);
    } else {
      Refuse("unknown option " + name);
    }
    if (!good) Refuse(name + " " + value + " is out of range");
  }
  for (const std::string& shape : shapes) {
    if (FindShape(shape) == nullptr) Refuse("no shape " + shape);
    for (const std::string& policy : policies) {
      if (MakePolicy(policy) == nullptr) Refuse("no policy " + policy);
      options.shape = shape;
      options.policy = policy;
      const auto began = std::chrono::steady_clock::now();
      const ScaleReport report = RunScale(options);
      Print(options, report,
            std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft::router::scale

int main(int argc, char** argv) { return weft::router::scale::Main(argc, argv); }
