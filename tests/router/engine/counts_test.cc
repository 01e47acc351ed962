// Every request counts once, as a success or as a failure, however it ends.

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

constexpr char kSuccess[] = "weft_request_success_total{finished_reason=";
constexpr char kFailure[] = "weft_request_failure_total{reason=";
constexpr char kCancelled[] = "weft_requests_cancelled_total{by=";
constexpr char kRejected[] = "weft_admission_rejections_total{reason=";

// How the series of these four families have grown. The registry is the process's: other tests
// have counted before.
class Growth {
 public:
  explicit Growth(Probe& probe) : probe_(probe), before_(Read()) {}

  // By the labels as they are written, without those that did not grow.
  std::map<std::string, int> Of(absl::string_view family) const {
    std::map<std::string, int> grown;
    for (const auto& [series, value] : Read()) {
      const auto before = before_.find(series);
      const int more = value - (before == before_.end() ? 0 : before->second);
      if (more > 0 && absl::StartsWith(series, family)) grown[series.substr(family.size())] = more;
    }
    return grown;
  }
  int Sum(absl::string_view family) const {
    int sum = 0;
    for (const auto& [labels, more] : Of(family)) sum += more;
    return sum;
  }
  int Ended() const { return Sum(kSuccess) + Sum(kFailure); }

 private:
  std::map<std::string, int> Read() const {
    std::map<std::string, int> values;
    const std::string text = probe_.Render();
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const size_t space = line.rfind(' ');
      int value = 0;
      if (space == absl::string_view::npos || !absl::SimpleAtoi(line.substr(space + 1), &value)) {
        continue;
      }
      values[std::string(line.substr(0, space))] = value;
    }
    return values;
  }

  Probe& probe_;
  const std::map<std::string, int> before_;
};

using Counts = std::map<std::string, int>;

TEST_CASE("However a request ends it counts once, and details say more", "[router][engine]") {
  RigOptions options;
  options.engine.text_bytes_max = 100'000;
  EngineRig rig(options);
  rig.WaitReady();
  const Growth growth(rig.probe());

  auto complete = rig.Submit(MakeInput(1, 10, 5));
  complete->WaitEnd();
  REQUIRE(complete->status().ok());
  auto cancelled = rig.Submit(MakeInput(2, 10, 900));
  cancelled->WaitTokens(1);
  cancelled->Cancel(CancelReason::kClientGone);
  cancelled->WaitEnd();
  GenerateInput late = MakeInput(3, 10, 5);
  late.deadline_us = 1;
  rig.Submit(late)->WaitEnd();
  rig.Submit(MakeInput(4, 10, 1'000'000))->WaitEnd();
  GenerateInput eager = MakeInput(5, 10, 5);
  eager.priority = 1'000;
  rig.Submit(eager)->WaitEnd();
  {
    const auto large = rig.engine().Enter(Anonymous(), 1'000'000);
    REQUIRE(large.ok());
    CHECK(absl::IsResourceExhausted(rig.engine().Enter(Anonymous(), 10).status()));
  }
  rig.CheckClean();

  CHECK(growth.Of(kSuccess) == Counts{{"\"abort\"}", 1}, {"\"length\"}", 1}});
  CHECK(growth.Of(kFailure) ==
        Counts{{"\"deadline\"}", 1}, {"\"overloaded\"}", 1}, {"\"validation\"}", 2}});
  CHECK(growth.Of(kCancelled) ==
        Counts{{"\"client\",phase=\"decode\"}", 1}, {"\"deadline\",phase=\"text\"}", 1}});
  CHECK(growth.Of(kRejected) == Counts{{"\"text_bytes\"}", 1}, {"\"too_long\"}", 1}});
}

TEST_CASE("A cancel that meets the end of its request does not make it count twice",
          "[router][engine]") {
  RigOptions options;
  options.step_us = 200;
  EngineRig rig(options);
  rig.WaitReady();
  const Growth growth(rig.probe());
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  INFO("seed " << kSeed);
  constexpr int kRequests = 300;
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (int i = 0; i < kRequests; ++i) {
    GenerateInput input = MakeInput(static_cast<uint64_t>(i), 10, 30);
    input.ignore_eos = true;
    const std::vector<TokenId> expected = rig.Expected(input);
    // The answer ends by a stop string, or by its length, about when the cancel comes.
    const size_t end = 1 + random() % 20;
    if (i % 2 == 0) {
      input.stop_sequences = {std::string(1, static_cast<char>(expected[end]))};
    } else {
      input.max_tokens = static_cast<uint32_t>(end + 1);
    }
    sinks.push_back(rig.Submit(input));
    if (i % 8 != 7) continue;
    sinks.back()->WaitTokens(end);
    for (size_t k = sinks.size() - 8; k < sinks.size(); ++k) {
      sinks[k]->Cancel(CancelReason::kClientGone);
    }
  }
  for (const auto& sink : sinks) sink->WaitEnd();
  rig.CheckClean();
  CHECK(growth.Ended() == kRequests);
  CHECK(growth.Sum(kCancelled) > 0);
  CHECK(growth.Sum(kCancelled) == growth.Of(kSuccess)["\"abort\"}"]);
}

}  // namespace
}  // namespace weft::router
