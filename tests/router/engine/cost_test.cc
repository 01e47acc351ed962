// What a streamed token costs the router's own threads, beside the budget of 2 us at 256 rows.

#include <dirent.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

// CPU time of this process's threads by name, microseconds, from /proc/self/task/*/schedstat.
std::map<std::string, double> ThreadCpuUs() {
  std::map<std::string, double> times;
  DIR* tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* entry = readdir(tasks)) {
    const std::string folder = absl::StrCat("/proc/self/task/", entry->d_name);
    std::ifstream name_file(folder + "/comm");
    std::ifstream time_file(folder + "/schedstat");
    std::string name;
    double run_ns = 0;
    if (std::getline(name_file, name) && time_file >> run_ns) times[name] += run_ns / 1000;
  }
  closedir(tasks);
  return times;
}

// With `record`, the scheduler's events are recorded there.
void MeasureTokens(const std::string& record) {
  constexpr uint32_t kRows = 256;
  constexpr uint32_t kTokens = 300;
  RigOptions options;
  options.shape.running_max = kRows;
  options.shape.kv_blocks = kRows * 24;
  options.engine.running_max = kRows;
  options.engine.record.path = record;
  options.step_us = 4000;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t i = 0; i < kRows; ++i) sinks.push_back(rig.Submit(MakeInput(i, 12, kTokens)));
  for (auto& sink : sinks) sink->WaitTokens(20);
  const uint64_t bytes_before = rig.shard(0).stats().request_bytes;
  const std::map<std::string, double> before = ThreadCpuUs();
  size_t tokens_before = 0;
  for (auto& sink : sinks) tokens_before += sink->tokens().size();
  for (auto& sink : sinks) sink->WaitTokens(kTokens - 10);
  std::map<std::string, double> after = ThreadCpuUs();
  size_t tokens = 0;
  for (auto& sink : sinks) tokens += sink->tokens().size();
  tokens -= tokens_before;
  const uint64_t bytes = rig.shard(0).stats().request_bytes - bytes_before;
  double own_us = 0;
  std::ostringstream report;
  for (const auto& [name, cpu_us] : after) {
    const auto it = before.find(name);
    const double used_us = cpu_us - (it == before.end() ? 0 : it->second);
    report << name << " " << used_us / static_cast<double>(tokens) << " us a token\n";
    const bool is_own = name == "engine" || name == "record" || name.rfind("text-", 0) == 0;
    if (is_own) own_us += used_us;
  }
  const double us_a_token = own_us / static_cast<double>(tokens);
  const double bytes_a_row = static_cast<double>(bytes) / static_cast<double>(tokens);
  WARN((record.empty() ? "" : "recorded: ")
       << tokens << " tokens; engine and text threads " << us_a_token << " us a token; "
       << bytes_a_row << " bytes to the shard a row\n"
       << report.str());
  CHECK(bytes_a_row <= 32);
  // Ten times the budget: this machine may be busy; the number above is the measurement.
  CHECK(us_a_token <= 20);
  for (auto& sink : sinks) sink->WaitEnd();
  rig.CheckClean();
}

TEST_CASE("A token costs the engine and text threads microseconds", "[router][engine][slow]") {
  MeasureTokens("");
}

TEST_CASE("A token that is recorded costs them hardly more", "[router][engine][slow][recording]") {
  const TempDir dir;
  MeasureTokens(dir.path() + "/rec");
}

}  // namespace
}  // namespace weft::router
