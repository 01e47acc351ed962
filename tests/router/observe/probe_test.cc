// The list of metrics is a contract with dashboards: names, types and labels are held by
// metric_names.txt. To change it on purpose, run with WEFT_WRITE_GOLDENS=1 and review the diff.

#include "router/observe/probe.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/rewrite.h"

namespace weft::router {
namespace {

// Value of the first sample line that begins with `series`.
double Value(const std::string& text, const std::string& series) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, series)) continue;
    return std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return -1;
}

// "name type", sorted.
std::string Names(const std::string& text) {
  std::set<std::string> names;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "# TYPE ")) names.insert(std::string(line.substr(7)));
  }
  std::string out;
  for (const std::string& name : names) absl::StrAppend(&out, name, "\n");
  return out;
}

TEST_CASE("The router's metrics are exactly those of the list", "[router][probe]") {
  Probe probe;
  probe.SetWorld(1);  // ranks and the cache's shape are known once the group has formed
  probe.CacheConfig(16, 1, true);
  const std::string names = Names(probe.Render());
  const std::string path = std::string(WEFT_DOORS_TEST_DIR) + "/../observe/metric_names.txt";
  if (test::RewriteAsked("WEFT_WRITE_GOLDENS")) std::ofstream(path) << names;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(names == golden.str());
}

// Values of a family's labels by label; those that every series has are left out.
using Labels = std::map<std::string, std::set<std::string>>;

// What docs/METRICS.md says of the router: rows of name, type, labels ("by: a, b; phase: c",
// "rank") and meaning.
std::map<std::string, std::pair<std::string, Labels>> Documented() {
  std::ifstream file(std::string(WEFT_DOORS_TEST_DIR) + "/../../../docs/METRICS.md");
  std::map<std::string, std::pair<std::string, Labels>> rows;
  std::string line;
  while (std::getline(file, line) && line != "## Shard") {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() < 6 || !absl::StrContains(cells[1], '`')) continue;
    Labels labels;
    for (const absl::string_view part : absl::StrSplit(cells[3], ';', absl::SkipWhitespace())) {
      // Labels without values may share a part: "version, revision".
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(part, absl::MaxSplits(':', 1));
      for (const absl::string_view name : absl::StrSplit(pair.first, ',')) {
        std::set<std::string>& values = labels[std::string(absl::StripAsciiWhitespace(name))];
        for (const absl::string_view value :
             absl::StrSplit(pair.second, ',', absl::SkipWhitespace())) {
          values.emplace(absl::StripAsciiWhitespace(value));
        }
      }
    }
    const std::vector<std::string> name = absl::StrSplit(cells[1], '`');
    rows[name[1]] = {std::string(absl::StripAsciiWhitespace(cells[2])), labels};
  }
  return rows;
}

// The labels of the series of `name` in `text`; those of histograms have a suffix.
Labels LabelsOf(const std::string& text, const std::string& name, const std::string& type) {
  const std::string prefix = absl::StrCat(name, type == "histogram" ? "_count" : "", "{");
  Labels labels;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, prefix)) continue;
    const size_t end = line.rfind('}');
    for (const absl::string_view label :
         absl::StrSplit(line.substr(prefix.size(), end - prefix.size()), ',')) {
      const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(label, '=');
      labels[std::string(pair.first)].emplace(pair.second.substr(1, pair.second.size() - 2));
    }
  }
  return labels;
}

TEST_CASE("docs/METRICS.md lists the router's metrics with their types and labels",
          "[router][probe]") {
  Probe probe;
  probe.SetWorld(1);
  probe.CacheConfig(16, 1, true);
  const std::string text = probe.Render();
  const auto documented = Documented();
  std::string names;
  for (const auto& [name, row] : documented) absl::StrAppend(&names, name, " ", row.first, "\n");
  CHECK(names == Names(text));
  for (const auto& [name, row] : documented) {
    const auto& [type, labels] = row;
    INFO(name);
    const Labels served = LabelsOf(text, name, type);
    CHECK(labels.size() == served.size());
    for (const auto& [label, values] : labels) {
      INFO(label);
      REQUIRE(served.count(label) == 1);
      // Values that are not fixed are not listed.
      if (!values.empty()) CHECK(values == served.at(label));
    }
  }
}

// As served when nothing has happened in this process: the registry is the process's, and other
// tests count too.
const std::string rendered_at_start = Probe().Render();

TEST_CASE("Labelled series exist at zero before anything happened", "[router][probe]") {
  const std::string& text = rendered_at_start;
  for (const char* series :
       {"weft_request_success_total{finished_reason=\"abort\"}",
        "weft_request_failure_total{reason=\"shard_lost\"}",
        "weft_admission_rejections_total{reason=\"queue_tokens\"}",
        "weft_requests_cancelled_total{by=\"slow_reader\",phase=\"decode\"}",
        "weft_requests_cancelled_total{by=\"client\",phase=\"text\"}",
        "weft_requests_cancelled_total{by=\"admin\",phase=\"queue\"}",
        "weft_log_lines_dropped_total", "weft_steps_total{kind=\"filter\"}",
        "weft_steps_lost_total{kind=\"decode\"}", "weft_group_losses_total{state=\"warming\"}",
        "weft_kv_blocks{state=\"cached\"}", "weft_group_state{state=\"recovering\"}",
        "weft_shard_restarts_total{reason=\"timeout\"}",
        "weft_batch_forward_duration_seconds_count{phase=\"prefill\"}",
        "weft_shard_rpc_duration_seconds_count{method=\"FilterBatch\"}"}) {
    INFO(series);
    CHECK(Value(text, series) == 0);
  }
  CHECK(Value(text, "weft_build_info{") == 1);
  CHECK(Value(text, "process_resident_memory_bytes ") > 0);
}

TEST_CASE("Events change the series they should", "[router][probe]") {
  Probe probe;
  const std::string before = probe.Render();
  const auto grown = [&](const std::string& series) {
    return Value(probe.Render(), series) - Value(before, series);
  };
  const uint32_t gaps_us[] = {400, 600, 30'000, 100'000'000};
  probe.InterTokens(gaps_us);
  CHECK(grown("weft_inter_token_latency_seconds_count") == 4);
  CHECK(grown("weft_inter_token_latency_seconds_bucket{le=\"0.0005\"}") == 1);
  CHECK(grown("weft_inter_token_latency_seconds_bucket{le=\"0.001\"}") == 2);
  CHECK(grown("weft_inter_token_latency_seconds_bucket{le=\"0.05\"}") == 3);
  CHECK(grown("weft_inter_token_latency_seconds_bucket{le=\"80\"}") == 3);
  CHECK(grown("weft_inter_token_latency_seconds_sum") == Approx(100.031));
  CHECK(grown("weft_time_per_output_token_seconds_bucket{le=\"0.05\"}") == 3);
  CHECK(grown("weft_time_per_output_token_seconds_sum") == Approx(100.031));

  probe.RequestAccepted(10, 4, 100, 1000);
  CHECK(grown("weft_prompt_tokens_total") == 10);
  CHECK(grown("weft_prompt_tokens_cached_total") == 4);

  FinishedSample sample;
  sample.reason = FinishReason::kStopSequence;
  sample.output_tokens = 5;
  sample.decode_us = 4000;
  probe.Finished(sample);
  CHECK(grown("weft_request_success_total{finished_reason=\"stop\"}") == 1);
  CHECK(grown("weft_request_time_per_output_token_seconds_sum") == Approx(0.001));
  CHECK(grown("weft_request_max_num_generation_tokens_sum") == 5);

  probe.Cancelled(CancelReason::kSlowReader, CancelPhase::kDecode);
  CHECK(grown("weft_requests_cancelled_total{by=\"slow_reader\",phase=\"decode\"}") == 1);
  CHECK(grown("weft_request_success_total{finished_reason=\"abort\"}") == 1);
  probe.Cancelled(CancelReason::kQueueTimeout, CancelPhase::kQueue);
  probe.Cancelled(CancelReason::kDeadline, CancelPhase::kQueue);
  CHECK(grown("weft_request_success_total{finished_reason=\"abort\"}") == 1);
  CHECK(grown("weft_request_failure_total{reason=\"unavailable\"}") == 1);
  CHECK(grown("weft_request_failure_total{reason=\"deadline\"}") == 1);

  probe.HttpRoute("/served");
  CHECK(Value(probe.Render(), "weft_http_requests_total{code=\"200\",route=\"/served\"}") == 0);

  StepSample step;
  step.kind = StepKind::kPrefill;
  step.tokens = 9;
  step.rows = 2;
  step.device_us = 3000;
  probe.StepDone(step);
  CHECK(grown("weft_steps_total{kind=\"prefill\"}") == 1);
  CHECK(grown("weft_iteration_tokens_total_sum") == 9);
  CHECK(grown("weft_batch_forward_duration_seconds_sum{phase=\"prefill\"}") == Approx(0.003));

  SchedulerStats stats;
  stats.running = 3;
  stats.blocks_total = 10;
  stats.blocks_used = 4;
  stats.blocks_cached = 1;
  stats.preemptions = 2;
  stats.waiting = 6;
  probe.Scheduler(stats, /*serving=*/false);
  CHECK(Value(probe.Render(), "weft_num_requests_waiting_by_reason{reason=\"deferred\"}") == 6);
  stats.preemptions = 5;
  probe.Scheduler(stats, /*serving=*/true);
  const std::string text = probe.Render();
  CHECK(Value(text, "weft_num_requests_waiting_by_reason{reason=\"deferred\"}") == 0);
  CHECK(Value(text, "weft_num_requests_waiting_by_reason{reason=\"capacity\"}") == 6);
  CHECK(grown("weft_num_preemptions_total") == 5);
  CHECK(Value(text, "weft_kv_cache_usage_perc ") == Approx(0.4));
  CHECK(Value(text, "weft_kv_blocks{state=\"free\"}") == 5);
  CHECK(Value(text, "weft_num_requests_running ") == 3);

  probe.SetWorld(2);
  probe.ShardUp(1, true);
  probe.ShardUp(7, true);  // no such rank: nothing happens
  CHECK(Value(probe.Render(), "weft_shard_up{rank=\"1\"}") == 1);
  CHECK(Value(probe.Render(), "weft_shard_up{rank=\"0\"}") == 0);
  probe.SetGroupState(GroupState::kServing, 9);
  CHECK(Value(probe.Render(), "weft_group_state{state=\"serving\"}") == 1);
  CHECK(Value(probe.Render(), "weft_group_state{state=\"connecting\"}") == 0);
  CHECK(Value(probe.Render(), "weft_group_epoch ") == 9);
  probe.GroupLost(GroupState::kJoining);
  probe.StepLost(StepKind::kPrefill);
  CHECK(grown("weft_group_losses_total{state=\"joining\"}") == 1);
  CHECK(grown("weft_group_losses_total{state=\"serving\"}") == 0);
  CHECK(grown("weft_steps_lost_total{kind=\"prefill\"}") == 1);
}

}  // namespace
}  // namespace weft::router
