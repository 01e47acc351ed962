#include "tests/shard/device/cpu/plan_trace.h"

#include <numeric>

namespace weft::shard {

PlanTrace RunScript(const GroupOptions& options, float temperature) {
  RankGroup group(options);
  StepMaker maker = group.Maker();
  SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.seed = 5;
  sampling.logprobs = true;
  PlanTrace trace;
  const auto run = [&] {
    const StepResult result = group.Run(maker.Take());
    trace.ids.insert(trace.ids.end(), result.ids.begin(), result.ids.end());
    for (const SampledLogprobs& row : result.logprobs) trace.logprobs.push_back(row.logprob);
  };
  std::vector<TokenId> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 3);
  maker.Start(0, sampling, 7);
  maker.Chunk(0, {prompt.begin(), prompt.begin() + 7}, true);
  maker.Start(1, sampling, 40);
  maker.Chunk(1, {prompt.begin(), prompt.begin() + 20}, false);
  run();
  maker.Decode(0);
  maker.Chunk(1, {prompt.begin() + 20, prompt.end()}, true);
  run();
  for (int i = 0; i < 6; ++i) {
    maker.Decode(0);
    maker.Decode(1);
    run();
  }
  return trace;
}

}  // namespace weft::shard
