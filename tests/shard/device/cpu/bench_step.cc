// Speed of the CPU shard's computing half, without wire or router: decode at several batch sizes
// and prompts, each for the thread counts given. Prints tokens per second, and how much of the
// machine others used meanwhile.
//
//   weft_step_bench [--threads 1,2] [--model PATH] [--dtype auto] [--isa NAME] [--only CASE,...]
//
// Cases: decode1, decode1_512, decode1_2000, decode8, decode32, sampling, prompt128, prompt512,
// neighbour (batch-1 decode beside a process in an endless loop).

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "tests/shard/device/cpu/machine_load.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/support/demo_model.h"

namespace weft::shard {
namespace {

double MedianUs(std::vector<int64_t> times_us) {
  std::sort(times_us.begin(), times_us.end());
  return static_cast<double>(times_us[times_us.size() / 2]);
}

std::vector<TokenId> SomeIds(uint32_t count) {
  std::vector<TokenId> ids(count);
  for (uint32_t i = 0; i < count; ++i) ids[i] = 1000 + i * 37 % 40000;
  return ids;
}

// Decodes `rows` sequences of `context` tokens for `steps` steps; tokens per second, by the median
// step and over all steps.
void Decode(RankGroup& group, uint32_t rows, uint32_t context, int steps, const char* label,
            const SamplingParams& sampling = {}, pid_t neighbour = 0) {
  StepMaker maker = group.Maker();
  for (uint32_t slot = 0; slot < rows; ++slot) {
    maker.Start(slot, sampling);
    maker.Chunk(slot, SomeIds(context), /*sample=*/true);
    (void)group.Run(maker.Take());
  }
  std::vector<int64_t> times_us;
  const MachineLoad load(neighbour);
  const int64_t start_us = MonotonicClock().NowUs();
  int64_t last_us = start_us;
  for (int i = 0; i < steps; ++i) {
    for (uint32_t slot = 0; slot < rows; ++slot) maker.Decode(slot);
    (void)group.Run(maker.Take());
    const int64_t now_us = MonotonicClock().NowUs();
    times_us.push_back(now_us - last_us);
    last_us = now_us;
  }
  const double mean_us = static_cast<double>(last_us - start_us) / steps;
  std::printf(
      "  %-22s rows %2u context %4u: median %7.1f tok/s, mean %7.1f tok/s, others %2.0f %%\n",
      label, rows, context, rows * 1e6 / MedianUs(times_us), rows * 1e6 / mean_us,
      load.OthersShare() * 100);
  for (uint32_t slot = 0; slot < rows; ++slot) maker.Drop(slot);
  (void)group.Run(maker.Take());
}

void Prompt(RankGroup& group, uint32_t tokens, int repeats) {
  StepMaker maker = group.Maker();
  std::vector<int64_t> times_us;
  const MachineLoad load;
  for (int i = 0; i < repeats; ++i) {
    maker.Start(0, SamplingParams{});
    maker.Chunk(0, SomeIds(tokens), /*sample=*/true);
    const int64_t start_us = MonotonicClock().NowUs();
    (void)group.Run(maker.Take());
    times_us.push_back(MonotonicClock().NowUs() - start_us);
    maker.Drop(0);
  }
  (void)group.Run(maker.Take());
  const int64_t best_us = *std::min_element(times_us.begin(), times_us.end());
  std::printf("  %-22s tokens %4u: median %7.1f tok/s, best %7.1f tok/s, others %2.0f %%\n",
              "prompt", tokens, tokens * 1e6 / MedianUs(times_us),
              tokens * 1e6 / static_cast<double>(best_us), load.OthersShare() * 100);
}

pid_t StartNeighbour() {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The barrier keeps the compiler from dropping the loop.
    while (true) __asm__ volatile("");
  }
  return pid;
}

void BenchSampling(RankGroup& group) {
  SamplingParams sampling;
  sampling.temperature = 0.8f;
  Decode(group, 1, 48, 200, "temperature only", sampling);
  sampling.top_p = 0.95f;
  Decode(group, 1, 48, 200, "top-p", sampling);
  sampling.top_k = 50;
  Decode(group, 1, 48, 200, "top-k, top-p", sampling);
}

void BenchNeighbour(RankGroup& group) {
  const pid_t pid = StartNeighbour();
  for (int i = 0; i < 3; ++i) {
    Decode(group, 1, 48, 300, "decode, busy neighbour", SamplingParams{}, pid);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

void BenchThreads(const GroupOptions& options, const std::vector<std::string>& only) {
  auto wanted = [&only](const char* name) {
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  };
  std::printf("threads %u, world %u, dtype %s\n", options.threads, options.world,
              NumberTypeName(options.dtype));
  RankGroup group(options);
  std::printf("  isa %s, weights %.1f MB\n", group.cpu(0).isa().c_str(),
              static_cast<double>(group.cpu(0).memory().weights_bytes) / 1e6);
  if (wanted("decode1")) Decode(group, 1, 48, 200, "decode");
  if (wanted("decode1_512")) Decode(group, 1, 512, 100, "decode");
  if (wanted("decode1_2000")) Decode(group, 1, 2000, 60, "decode");
  if (wanted("decode8")) Decode(group, 8, 48, 60, "decode");
  if (wanted("decode32")) Decode(group, 32, 48, 30, "decode");
  if (wanted("sampling")) BenchSampling(group);
  if (wanted("prompt128")) Prompt(group, 128, 9);
  if (wanted("prompt512")) Prompt(group, 512, 7);
  if (wanted("neighbour")) BenchNeighbour(group);
  const HelperCosts costs = group.cpu(0).helper_costs();
  std::printf("  helper wait %.1f ms, stalls %llu, backoffs %llu\n",
              static_cast<double>(costs.wait_us) / 1e3,
              static_cast<unsigned long long>(costs.stalls),
              static_cast<unsigned long long>(costs.backoffs));
}

int Main(int argc, char** argv) {
  GroupOptions options;
  options.model = test::DemoModelPath();
  options.dtype = NumberType::kAuto;
  options.running_max = 64;
  options.step_tokens_max = 2048;
  options.kv_memory_bytes = 512u << 20;
  std::string threads = "1,2";
  std::vector<std::string> only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--threads") {
      threads = value;
    } else if (flag == "--model") {
      options.model = value;
    } else if (flag == "--only") {
      only = absl::StrSplit(value, ',');
    } else if (flag == "--isa") {
      options.isa = value;
    } else if (flag == "--dtype" && ParseNumberType(value).ok()) {
      options.dtype = *ParseNumberType(value);
    } else {
      std::fprintf(stderr, "unknown flag %s\n", flag.c_str());
      return 2;
    }
  }
  for (const absl::string_view text : absl::StrSplit(threads, ',')) {
    if (!absl::SimpleAtoi(text, &options.threads)) return 2;
    BenchThreads(options, only);
  }
  return 0;
}

}  // namespace
}  // namespace weft::shard

int main(int argc, char** argv) { return weft::shard::Main(argc, argv); }
