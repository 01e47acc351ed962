// The generator keeps to what is published of the traces; a run is the same each time; policies
// come out in the expected order. Bigger runs: weft_scale_sim.

#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <vector>

#include "tests/sim/scale/cluster.h"
#include "tests/sim/scale/routing.h"
#include "tests/sim/scale/step_cost.h"

namespace weft::router::scale {
namespace {

constexpr uint64_t kSeed = 51;

struct Moments {
  double prompt = 0;
  double output = 0;
  double seen = 0;
  // Of the gaps between arrivals: standard deviation by mean.
  double spread = 0;
};

Moments MomentsOf(const char* name, int draws) {
  TraceSource source(*FindShape(name), {.requests_per_s = 10}, kSeed);
  Moments m;
  double squares = 0;
  int64_t before_us = 0;
  for (int i = 0; i < draws; ++i) {
    const TraceRequest request = source.Next();
    m.prompt += request.prompt_tokens;
    m.output += request.output_tokens;
    m.seen += request.seen_tokens;
    const double gap_s = static_cast<double>(request.arrival_us - before_us) / 1e6;
    squares += gap_s * gap_s;
    before_us = request.arrival_us;
  }
  const double mean_s = static_cast<double>(before_us) / 1e6 / draws;
  if (FindShape(name)->valley == 1) CHECK(mean_s == Approx(0.1).epsilon(0.15));
  m.spread = std::sqrt(squares / draws - mean_s * mean_s) / mean_s;
  m.seen /= m.prompt;
  m.prompt /= draws;
  m.output /= draws;
  std::cout << name << ": prompt " << m.prompt << ", output " << m.output << ", seen before "
            << m.seen << ", gaps spread " << m.spread << "\n";
  return m;
}

ScaleReport Run(const char* shape, const char* policy, double load, uint32_t requests = 2000) {
  ScaleOptions options;
  options.shape = shape;
  options.policy = policy;
  options.load = load;
  options.requests = requests;
  options.seed = kSeed;
  const ScaleReport report = RunScale(options);
  std::cout << shape << ", " << policy << ": good " << report.kept_share() << ", hits "
            << report.hit_share << " of " << report.hit_share_best << ", first token p99 "
            << report.first_token_p99_ms << " ms, refused " << report.refused << ", jain "
            << report.jain << ", " << report.events << " events\n";
  return report;
}

TEST_CASE("Generated requests have the lengths of the traces", "[sim][scale]") {
  const Moments code = MomentsOf("azure-code", 60000);
  CHECK(code.prompt == Approx(2048).epsilon(0.1));
  CHECK(code.output == Approx(28).epsilon(0.1));
  const Moments conversation = MomentsOf("azure-conv", 60000);
  CHECK(conversation.prompt == Approx(1155).epsilon(0.1));
  CHECK(conversation.output == Approx(211).epsilon(0.1));
  const Moments burst = MomentsOf("burstgpt", 60000);
  CHECK(burst.spread > 2);
  const Moments chat = MomentsOf("mooncake-conv", 60000);
  CHECK(chat.prompt == Approx(12035).epsilon(0.1));
  CHECK(chat.output == Approx(343).epsilon(0.1));
  CHECK(chat.seen == Approx(0.40).margin(0.05));
  const Moments agent = MomentsOf("mooncake-agent", 60000);
  CHECK(agent.prompt == Approx(8596).epsilon(0.1));
  CHECK(agent.output == Approx(182).epsilon(0.1));
  CHECK(agent.seen == Approx(0.59).margin(0.05));
}

TEST_CASE("A step costs what was measured", "[sim][scale]") {
  for (const GroupInfo::Cost& cost : WarmupCosts()) {
    const double rows_context = cost.rows > 0 ? static_cast<double>(cost.context_tokens) : 0;
    const double pairs = 0.5 * cost.prompt_tokens * cost.prompt_tokens;
    CHECK(StepUs(cost.rows + cost.prompt_tokens, rows_context, pairs) ==
          Approx(cost.step_us).epsilon(0.01));
  }
}

TEST_CASE("A turn of a session begins with the whole turn before it", "[sim][scale]") {
  TraceRequest first;
  first.session = 5u << 20;
  first.system = 3;
  first.system_blocks = 2;
  first.prompt_tokens = 300;
  TraceRequest second = first;
  second.prompt_tokens = 500;
  const std::vector<TokenId> a = PromptOf(first);
  const std::vector<TokenId> b = PromptOf(second);
  REQUIRE(a.size() == 300);
  REQUIRE(b.size() == 500);
  CHECK(std::equal(a.begin(), a.end(), b.begin()));
  TraceRequest other = first;
  other.session = 6u << 20;
  const std::vector<TokenId> c = PromptOf(other);
  CHECK(std::equal(a.begin(), a.begin() + 128, c.begin()));
  CHECK(a[128] != c[128]);
}

TEST_CASE("The same seed gives the same run", "[sim][scale]") {
  const ScaleReport one = Run("mooncake-conv", "prefix_affinity", 0.8, 500);
  CHECK(Run("mooncake-conv", "prefix_affinity", 0.8, 500).digest == one.digest);
  CHECK(Run("mooncake-conv", "round_robin", 0.8, 500).digest != one.digest);
}

TEST_CASE("Where prompts share beginnings, those who follow them find more of them",
          "[sim][scale]") {
  // How much more of them, at least: what agents share is soon everywhere.
  const struct {
    const char* shape;
    double more;
  } cases[] = {{"mooncake-conv", 3}, {"mooncake-agent", 1.1}};
  for (const auto& [shape, more] : cases) {
    const ScaleReport robin = Run(shape, "round_robin", 0.9);
    const ScaleReport least = Run(shape, "least_loaded", 0.9);
    const ScaleReport prefix = Run(shape, "prefix_affinity", 0.9);
    CHECK(prefix.hit_share > more * least.hit_share);
    CHECK(prefix.hit_share > more * robin.hit_share);
    CHECK(prefix.hit_share <= prefix.hit_share_best);
    CHECK(least.kept >= robin.kept);
    // The detour to a prefix costs some their first token in time.
    CHECK(prefix.kept + prefix.requests / 100 >= least.kept);
  }
}

TEST_CASE("Without shared beginnings affinity is least loaded, and both beat taking turns",
          "[sim][scale]") {
  const ScaleReport robin = Run("burstgpt", "round_robin", 0.9, 4000);
  const ScaleReport least = Run("burstgpt", "least_loaded", 0.9, 4000);
  const ScaleReport prefix = Run("burstgpt", "prefix_affinity", 0.9, 4000);
  CHECK(prefix.digest == least.digest);
  CHECK(least.first_token_p99_ms <= robin.first_token_p99_ms);
  CHECK(least.kept >= robin.kept);
}

TEST_CASE("Places know the longest beginning that each replica was given", "[sim][scale]") {
  BlockPlaces places;
  places.Note(std::vector<TokenId>{10, 11, 12}, 0);
  places.Note(std::vector<TokenId>{10, 11, 99}, 2);
  std::vector<uint32_t> blocks(3);
  places.Find(std::vector<TokenId>{10, 11, 12, 13}, absl::MakeSpan(blocks));
  CHECK(blocks == std::vector<uint32_t>{3, 0, 2});
}

}  // namespace
}  // namespace weft::router::scale
