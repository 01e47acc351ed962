// The whole router under seeds: no invariant breaks, and all that can go wrong did. A failing seed
// is shrunk, and its trace printed; WEFT_ROUTER_SIM_TRACE=FILE plays one.

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "tests/sim/router/runner.h"

namespace weft::router::sim {
namespace {

constexpr double kShrinkSeconds = 20;

void Add(const Counts& from, Counts* to) {
  const auto* a = reinterpret_cast<const uint64_t*>(&from);
  auto* b = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 0; i < sizeof(Counts) / sizeof(uint64_t); ++i) b[i] += a[i];
}

void Print(const std::string& what, const Counts& c, double seconds) {
  std::cout << what << ": " << c.events << " events in " << seconds << " s, "
            << static_cast<uint64_t>(static_cast<double>(c.events) / seconds) << " events/s; "
            << c.turns << " turns, " << c.calls << " calls, " << c.replies << " replies, "
            << c.steps << " steps, " << c.tokens << " tokens, " << c.constrained_tokens
            << " of them constrained, " << c.masks << " MaskRows, " << c.mask_waits
            << " waits for masks; " << c.requests << " requests: " << c.refused << " refused, "
            << c.finished << " finished, " << c.cancelled << " cancelled, " << c.failed
            << " failed, " << c.invalid << " not good; " << c.preemptions << " preemptions, "
            << c.prefilled_again << " prefilled again, " << c.prefix_hits << " prefix hits, "
            << c.resumed << " resumed; " << c.epochs << " epochs, " << c.groups_lost << " lost, "
            << c.deaths << " deaths (" << c.deaths_in_joins << " while joining), " << c.lies
            << " lies, " << c.lost_replies << " replies lost, " << c.repeated_replies
            << " repeated, " << c.restarts_asked << " restarts asked for, " << c.drains
            << " drains, " << c.flushes << " flushes, " << c.fatal << " fatal, " << c.handed_out
            << " handed out, " << c.given_back << " given back, " << c.full_checks << " full checks"
            << std::endl;
}

// So that the failure can stand before a trace in its file, however many lines it has.
std::string AsComment(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "# " + line + "\n";
  return out;
}

// Says what broke, and how to see it again.
void Report(const std::string& what, const Script& script, const std::string& failure) {
  std::cout << what << " fails: " << failure;
  int runs = 0;
  const Script small = Shrink(script, failure, kShrinkSeconds, &runs);
  std::cout << "shrunk from " << script.actions.size() << " to " << small.actions.size()
            << " actions in " << runs << " runs:\n"
            << AsComment(RunScript(small).failure) << ToText(small) << std::flush;
}

using MakeFromSeed = Script (*)(uint64_t seed);

// Runs a seed; false when it fails.
bool RunSeed(uint64_t seed, Counts* counts, double* seconds, MakeFromSeed make = MakeScript) {
  const Script script = make(seed);
  const Outcome outcome = RunScript(script);
  Add(outcome.counts, counts);
  *seconds += outcome.seconds;
  if (outcome.failure.empty()) return true;
  Report("seed " + std::to_string(seed), script, outcome.failure);
  return false;
}

Script ReadTrace(const std::string& path) {
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const absl::StatusOr<Script> script = ParseScript(text.str());
  INFO(path << ": " << script.status().message());
  REQUIRE(script.ok());
  return *script;
}

TEST_CASE("The simulated router breaks no invariant", "[sim][router]") {
  constexpr uint64_t kFirst = 1;
  constexpr uint64_t kLast = 120;
  Counts counts;
  double seconds = 0;
  for (uint64_t seed = kFirst; seed <= kLast; ++seed) {
    const bool good = RunSeed(seed, &counts, &seconds);
    INFO("seed " << seed);
    REQUIRE(good);
  }
  Print("seeds 1 to 120", counts, seconds);
  // All that is meant to happen did.
  CHECK(counts.finished > 1000);
  CHECK(counts.refused > 100);
  CHECK(counts.cancelled > 100);
  CHECK(counts.invalid > 50);
  CHECK(counts.preemptions > 100);
  CHECK(counts.prefilled_again > 100);
  CHECK(counts.prefix_hits > 100);
  CHECK(counts.resumed > 100);
  CHECK(counts.scored > 1000);
  CHECK(counts.constrained_tokens > 5000);
  CHECK(counts.masks > 5000);
  CHECK(counts.mask_waits > 100);
  CHECK(counts.groups_lost > 100);
  CHECK(counts.deaths > 100);
  CHECK(counts.deaths_in_joins > 5);
  CHECK(counts.lies > 20);
  CHECK(counts.repeated_replies > 5);
  CHECK(counts.lost_replies > 5);
  CHECK(counts.restarts_asked > 10);
  CHECK(counts.drains > 5);
  CHECK(counts.flushes > 5);
}

TEST_CASE("Two or three groups break no invariant", "[sim][router]") {
  constexpr uint64_t kLast = 100;
  Counts counts;
  double seconds = 0;
  for (uint64_t seed = 1; seed <= kLast; ++seed) {
    const bool good = RunSeed(seed, &counts, &seconds, MakeGroupsScript);
    INFO("seed " << seed);
    REQUIRE(good);
  }
  Print("groups, seeds 1 to 100", counts, seconds);
  CHECK(counts.handed_out > 1000);
  CHECK(counts.given_back > 20);
  CHECK(counts.finished > 1000);
  CHECK(counts.cancelled > 100);
  CHECK(counts.preemptions > 100);
  CHECK(counts.prefilled_again > 100);
  CHECK(counts.prefix_hits > 100);
  CHECK(counts.groups_lost > 100);
  CHECK(counts.drains > 5);
  CHECK(counts.flushes > 5);
}

TEST_CASE("The same seed gives the same run of the router", "[sim][router]") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Script script = seed <= 5 ? MakeScript(seed) : MakeGroupsScript(seed);
    const Outcome once = RunScript(script);
    const absl::StatusOr<Script> read = ParseScript(ToText(script));
    REQUIRE(read.ok());
    const Outcome again = RunScript(*read);
    INFO("seed " << seed);
    CHECK(once.counts.events == again.counts.events);
    CHECK(once.counts.digest == again.counts.digest);
    CHECK(once.counts.digest != 0);
  }
}

TEST_CASE("Kept traces of the router break no invariant", "[sim][router]") {
  uint32_t traces = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_ROUTER_TRACES)) {
    if (entry.path().extension() != ".txt") continue;
    ++traces;
    INFO(entry.path().string());
    CHECK(RunScript(ReadTrace(entry.path().string())).failure == "");
  }
  CHECK(traces > 0);
}

// Not part of a normal run:
//   WEFT_ROUTER_SIM_SEEDS=1000..2000 weft_router_sim "[seeds]"
//   WEFT_ROUTER_SIM_SECONDS=600 weft_router_sim "[seconds]"
//   WEFT_ROUTER_SIM_TRACE=FILE weft_router_sim "[trace]"
// The first two with WEFT_ROUTER_SIM_GROUPS=1 for worlds of several groups.
MakeFromSeed MakeAsAsked() {
  return std::getenv("WEFT_ROUTER_SIM_GROUPS") != nullptr ? MakeGroupsScript : MakeScript;
}

TEST_CASE("Seeds of the router named in the environment", "[.][seeds]") {
  const char* const range = std::getenv("WEFT_ROUTER_SIM_SEEDS");
  REQUIRE(range != nullptr);
  unsigned long first = 0;
  unsigned long last = 0;
  INFO("WEFT_ROUTER_SIM_SEEDS is FIRST..LAST or one seed: " << range);
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(range, "..");
  REQUIRE(absl::SimpleAtoi(ends.first, &first));
  REQUIRE(absl::SimpleAtoi(absl::StrContains(range, "..") ? ends.second : ends.first, &last));
  REQUIRE(first <= last);
  Counts counts;
  double seconds = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    CHECK(RunSeed(seed, &counts, &seconds, MakeAsAsked()));
  }
  Print("seeds " + std::string(range), counts, seconds);
}

TEST_CASE("Seeds of the router for a while", "[.][seconds]") {
  const char* const limit = std::getenv("WEFT_ROUTER_SIM_SECONDS");
  REQUIRE(limit != nullptr);
  INFO("WEFT_ROUTER_SIM_SECONDS is a number of seconds: " << limit);
  uint32_t seconds_max = 0;
  REQUIRE(absl::SimpleAtoi(limit, &seconds_max));
  REQUIRE(seconds_max > 0);
  const int64_t end_us = MonotonicClock().NowUs() + int64_t{seconds_max} * 1'000'000;
  Counts counts;
  double seconds = 0;
  // Others than those of a normal run.
  uint64_t seed = 1'000'000;
  for (; MonotonicClock().NowUs() < end_us; ++seed) {
    INFO("seed " << seed);
    CHECK(RunSeed(seed, &counts, &seconds, MakeAsAsked()));
  }
  Print("seeds 1000000 to " + std::to_string(seed - 1), counts, seconds);
}

TEST_CASE("A trace of the router", "[.][trace]") {
  const char* const path = std::getenv("WEFT_ROUTER_SIM_TRACE");
  REQUIRE(path != nullptr);
  const Script script = ReadTrace(path);
  const Outcome outcome = RunScript(script);
  Print(path, outcome.counts, outcome.seconds);
  if (!outcome.failure.empty()) Report(path, script, outcome.failure);
  CHECK(outcome.failure == "");
}

}  // namespace
}  // namespace weft::router::sim
