#include "deploy/launcher/load_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json.hpp"

namespace weft::launcher {
namespace {

std::string Row(const char* name, const Quantiles& quantiles) {
  if (quantiles.count == 0) {
    return absl::StrFormat("%-22s %10s %10s %10s %10s %9d\n", name, "-", "-", "-", "-", 0);
  }
  return absl::StrFormat("%-22s %10.2f %10.2f %10.2f %10.2f %9d\n", name, quantiles.p50,
                         quantiles.p90, quantiles.p99, quantiles.max, quantiles.count);
}

boost::json::object ToJson(const Quantiles& quantiles) {
  return {{"p50", quantiles.p50},
          {"p90", quantiles.p90},
          {"p99", quantiles.p99},
          {"max", quantiles.max},
          {"count", quantiles.count}};
}

}  // namespace

Quantiles MakeQuantiles(std::vector<double> values) {
  Quantiles out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const size_t rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
  };
  out.p50 = at(0.50);
  out.p90 = at(0.90);
  out.p99 = at(0.99);
  out.max = values.back();
  return out;
}

LoadReport MakeReport(const std::vector<StreamResult>& results) {
  LoadReport report;
  report.requests = results.size();
  std::vector<double> ttft, inter_token, end_to_end, lag;
  int64_t first_us = INT64_MAX;
  int64_t last_us = 0;
  for (const StreamResult& result : results) {
    if (!result.error.empty()) {
      if (report.failed++ == 0) report.first_error = result.error;
      continue;
    }
    first_us = std::min(first_us, result.sent_us);
    last_us = std::max(last_us, result.end_us);
    report.output_tokens += result.token_us.size();
    report.prompt_tokens += result.prompt_tokens;
    lag.push_back((result.sent_us - result.due_us) * 1e-3);
    end_to_end.push_back((result.end_us - result.sent_us) * 1e-3);
    if (!result.token_us.empty()) ttft.push_back((result.token_us[0] - result.sent_us) * 1e-3);
    for (size_t i = 1; i < result.token_us.size(); ++i) {
      inter_token.push_back((result.token_us[i] - result.token_us[i - 1]) * 1e-3);
    }
  }
  if (last_us > first_us) report.wall_s = (last_us - first_us) * 1e-6;
  if (report.wall_s > 0) {
    report.tokens_per_s = static_cast<double>(report.output_tokens) / report.wall_s;
  }
  report.ttft_ms = MakeQuantiles(std::move(ttft));
  report.inter_token_ms = MakeQuantiles(std::move(inter_token));
  report.end_to_end_ms = MakeQuantiles(std::move(end_to_end));
  report.lag_ms = MakeQuantiles(std::move(lag));
  return report;
}

std::string ReportTable(const LoadReport& report) {
  std::string out = absl::StrFormat(
      "requests %d, failed %d, wall %.2f s, prompt tokens %d, output tokens %d, %.1f tokens/s\n",
      report.requests, report.failed, report.wall_s, report.prompt_tokens, report.output_tokens,
      report.tokens_per_s);
  absl::StrAppend(&out, absl::StrFormat("%-22s %10s %10s %10s %10s %9s\n", "ms", "p50", "p90",
                                        "p99", "max", "samples"));
  absl::StrAppend(
      &out, Row("time to first token", report.ttft_ms), Row("inter-token", report.inter_token_ms),
      Row("end to end", report.end_to_end_ms), Row("lag of this generator", report.lag_ms));
  if (report.read_gbytes_per_s > 0) {
    absl::StrAppend(&out, absl::StrFormat("memory read bandwidth in this run: %.1f GB/s\n",
                                          report.read_gbytes_per_s));
  }
  for (const ProcessUse& use : report.processes) {
    absl::StrAppend(
        &out, absl::StrFormat("%-10s cpu %.2f s, %.1f us a token, memory (PSS) %.0f MiB\n",
                              use.name, use.cpu_s,
                              report.output_tokens > 0
                                  ? use.cpu_s * 1e6 / static_cast<double>(report.output_tokens)
                                  : 0.0,
                              use.pss_mib));
  }
  return out;
}

std::string ReportJson(const LoadReport& report) {
  boost::json::object out = {{"requests", report.requests},
                             {"failed", report.failed},
                             {"first_error", report.first_error},
                             {"wall_s", report.wall_s},
                             {"prompt_tokens", report.prompt_tokens},
                             {"output_tokens", report.output_tokens},
                             {"tokens_per_s", report.tokens_per_s},
                             {"ttft_ms", ToJson(report.ttft_ms)},
                             {"inter_token_ms", ToJson(report.inter_token_ms)},
                             {"end_to_end_ms", ToJson(report.end_to_end_ms)},
                             {"lag_ms", ToJson(report.lag_ms)},
                             {"read_gbytes_per_s", report.read_gbytes_per_s}};
  boost::json::array processes;
  for (const ProcessUse& use : report.processes) {
    processes.push_back({{"name", use.name}, {"cpu_s", use.cpu_s}, {"pss_mib", use.pss_mib}});
  }
  out["processes"] = std::move(processes);
  return boost::json::serialize(out) + "\n";
}

}  // namespace weft::launcher
