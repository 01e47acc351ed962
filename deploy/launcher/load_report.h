// Turns the results of a load run into figures: a table for people, JSON for scripts. Definitions:
// TTFT = request sent to first token event; inter-token = gap between two token events of a stream;
// end-to-end = sent to end of stream; tokens/s = token events of all streams over the wall time of
// the run, prompts included. Lag = how late the generator itself was in sending.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/launcher/load_stream.h"

namespace weft::launcher {

struct Quantiles {
  size_t count = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Of `values` in any order and unit; nearest rank.
Quantiles MakeQuantiles(std::vector<double> values);

// CPU time and memory of one process over the run, read from /proc.
struct ProcessUse {
  std::string name;
  double cpu_s = 0;
  // Proportional set size at the end.
  double pss_mib = 0;
};

struct LoadReport {
  size_t requests = 0;
  size_t failed = 0;
  std::string first_error;
  double wall_s = 0;
  uint64_t output_tokens = 0;
  uint64_t prompt_tokens = 0;
  double tokens_per_s = 0;
  Quantiles ttft_ms;
  Quantiles inter_token_ms;
  Quantiles end_to_end_ms;
  Quantiles lag_ms;
  double read_gbytes_per_s = 0;
  std::vector<ProcessUse> processes;
};

LoadReport MakeReport(const std::vector<StreamResult>& results);

std::string ReportTable(const LoadReport& report);
std::string ReportJson(const LoadReport& report);

}  // namespace weft::launcher
