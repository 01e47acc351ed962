// The names of other servers are a contract with their dashboards: names and types are held by
// compat_metric_names.txt. To change it on purpose, run with WEFT_WRITE_GOLDENS=1 and review the
// diff.

#include "router/observe/compat_metrics.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/observe/probe.h"
#include "tests/support/rewrite.h"

namespace weft::router {
namespace {

bool IsTheirs(absl::string_view line) {
  return absl::StartsWith(line, "vllm:") || absl::StartsWith(line, "tgi_");
}

// Sorted "name type" of the families with their names.
std::set<std::string> Names(const std::string& text) {
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "# TYPE ") && IsTheirs(line.substr(7))) {
      names.insert(std::string(line.substr(7)));
    }
  }
  return names;
}

double Value(const std::string& text, const std::string& series) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, series)) continue;
    return std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return -1;
}

TEST_CASE("Other servers' names are shown on demand alone, and are those of the list",
          "[router][probe]") {
  Probe probe;
  probe.SetWorld(1);
  probe.CacheConfig(16, 1, true);
  CHECK(Names(probe.Render()).empty());
  probe.SetCompat({/*tgi=*/true, /*vllm=*/true});
  const std::set<std::string> names = Names(probe.Render());
  std::string text;
  for (const std::string& name : names) absl::StrAppend(&text, name, "\n");
  const std::string path = std::string(WEFT_DOORS_TEST_DIR) + "/../observe/compat_metric_names.txt";
  if (test::RewriteAsked("WEFT_WRITE_GOLDENS")) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(text == golden.str());
  probe.SetCompat({/*tgi=*/true, /*vllm=*/false});
  for (const std::string& name : Names(probe.Render())) CHECK(absl::StartsWith(name, "tgi_"));
}

TEST_CASE("docs/METRICS.md lists other servers' names", "[router][probe]") {
  Probe probe;
  probe.SetWorld(1);
  probe.CacheConfig(16, 1, true);
  probe.SetCompat({/*tgi=*/true, /*vllm=*/true});
  std::set<std::string> documented;
  std::ifstream file(std::string(WEFT_DOORS_TEST_DIR) + "/../../../docs/METRICS.md");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "| `")) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, '`');
    if (IsTheirs(parts[1])) documented.insert(parts[1]);
  }
  std::set<std::string> served;
  for (const std::string& name : Names(probe.Render())) {
    served.insert(name.substr(0, name.find(' ')));
  }
  CHECK(documented == served);
}

TEST_CASE("Other servers' names have our values", "[router][probe]") {
  Probe probe;
  probe.SetCompat({/*tgi=*/true, /*vllm=*/true});
  const std::string before = probe.Render();
  const auto grown = [&](const std::string& series) {
    return Value(probe.Render(), series) - Value(before, series);
  };
  probe.RequestAccepted(10, 4, 100, 1000);
  FinishedSample sample;
  sample.reason = FinishReason::kStopSequence;
  sample.prompt_tokens = 10;
  sample.output_tokens = 5;
  sample.total_us = 2'000'000;
  probe.Finished(sample);
  probe.Cancelled(CancelReason::kClientGone, CancelPhase::kDecode);
  probe.Failed(FailureReason::kInternal);
  probe.Failed(FailureReason::kShardLost);
  probe.Failed(FailureReason::kOverloaded);
  StepSample step;
  step.kind = StepKind::kDecode;
  step.rows = 3;
  step.device_us = 4000;
  probe.StepDone(step);
  probe.ShardRpc(ShardCall::kDecode, 5000);

  CHECK(grown("vllm:prompt_tokens_total") == 10);
  CHECK(grown("vllm:request_success_total{finished_reason=\"stop\"}") == 1);
  CHECK(grown("vllm:e2e_request_latency_seconds_sum") == Approx(2));
  CHECK(grown("vllm:e2e_request_latency_seconds_bucket{le=\"2\"}") == 1);
  CHECK(grown("vllm:request_params_max_tokens_sum") == 100);

  CHECK(grown("tgi_request_count ") == 5);
  // The one that its client left is no success.
  CHECK(grown("tgi_request_success ") == 1);
  CHECK(grown("tgi_request_failure{err=\"generation\"}") == 2);
  CHECK(grown("tgi_request_failure{err=\"overloaded\"}") == 1);
  CHECK(grown("tgi_request_duration_sum") == Approx(2));
  CHECK(grown("tgi_batch_forward_duration_sum{method=\"decode\"}") == Approx(0.004));
  CHECK(grown("tgi_batch_inference_duration_sum{method=\"decode\"}") == Approx(0.005));
  CHECK(Value(probe.Render(), "tgi_batch_forward_duration_sum{method=\"filter\"}") == -1);
}

TEST_CASE("The shape of the KV cache has vLLM's labels", "[router][probe]") {
  Probe probe;
  probe.CacheConfig(16, 777, true);
  probe.SetCompat({/*tgi=*/false, /*vllm=*/true});
  const std::string text = probe.Render();
  CHECK(absl::StrContains(text, "num_gpu_blocks=\"777\""));
}

}  // namespace
}  // namespace weft::router
