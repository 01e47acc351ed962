// weft bench step: times steps of a shard's model in this process, without router and wire. Decode
// steps are launched ahead as the executor does, so that what the host needs between them shows as
// device idle time.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/matrix_load.h"
#include "deploy/launcher/pull_model.h"
#include "deploy/launcher/read_bandwidth.h"
#include "deploy/launcher/run_command.h"
#include "shard/kv/memory_texts.h"
#include "shard/model_loading.h"

namespace weft::launcher {
namespace {

using shard::StepBatch;
using shard::StepResult;

struct StepOptions {
  std::string model;
  std::string device = "auto";
  std::string weights = "file";
  std::string dtype = "auto";
  bool deterministic = false;
  std::string batches = "1,8,32,64";
  std::string contexts = "128,4096";
  std::string prompts = "512,2048";
  uint32_t steps = 64;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
  // 0 = an H200's on CUDA, unknown on the CPU.
  double limit_gbytes_per_s = 0;
  double limit_tflops = 0;
};

constexpr double kH200Tflops = 790;
// More than any device does.
constexpr double kLimitMax = 100'000;

void Declare(Flags& flags, StepOptions* options) {
  flags.Add("model", &options->model, "Model directory or .gguf file");
  flags.Add("device", &options->device, "auto, cpu or cuda");
  flags.Add("weights", &options->weights, "file, or random: of the shape that config.json names");
  flags.Add("dtype", &options->dtype, "Activations: auto, float32 or bfloat16");
  flags.AddSwitch("deterministic", &options->deterministic, "As weft-shard's");
  flags.Add("batches", &options->batches, "Decode batches to time; empty = none");
  flags.Add("contexts", &options->contexts, "Tokens of context of each sequence, mean over steps");
  flags.Add("prompts", &options->prompts, "Prompt lengths to time; empty = none");
  flags.Add("steps", &options->steps, "Decode steps of one measurement");
  flags.Add("running-max", &options->running_max, "As weft-shard's; 0 = its default");
  flags.Add("step-tokens-max", &options->step_tokens_max, "As weft-shard's; 0 = its default");
  flags.AddNumber(
      "limit-gbytes-per-s", &options->limit_gbytes_per_s, 0, kLimitMax,
      "What the device reads at best, for MBU; 0 = 4550 on CUDA (one H200), no MBU on the CPU");
  flags.AddNumber(
      "limit-tflops", &options->limit_tflops, 0, kLimitMax,
      "What it multiplies at best, for MFU; 0 = 790 on CUDA (one H200 in bf16), none on the CPU");
}

absl::StatusOr<shard::ShardFlags> MakeShardFlags(const StepOptions& options) {
  std::vector<std::string> arguments = {
      "weft-shard",
      absl::StrCat("--model=", options.model),
      absl::StrCat("--device=", options.device),
      absl::StrCat("--weights=", options.weights),
      absl::StrCat("--dtype=", options.dtype),
      absl::StrCat("--running-max=", options.running_max),
      absl::StrCat("--step-tokens-max=", options.step_tokens_max)};
  if (options.deterministic) arguments.push_back("--deterministic");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  shard::ShardFlags flags;
  std::string help;
  WEFT_RETURN_IF_ERROR(
      shard::ParseShardFlags(static_cast<int>(argv.size()), argv.data(), &flags, &help));
  return flags;
}

// Steps of one shape and what they cost.
class StepBench {
 public:
  StepBench(const StepOptions& options, shard::LoadedModel model, uint32_t kv_blocks)
      : options_(options),
        model_(std::move(model)),
        block_tokens_(model_.limits.block_tokens),
        kv_blocks_(kv_blocks) {}

  absl::Status Decode(uint32_t batch, uint32_t context) {
    if (batch > model_.limits.running_max) return Skip(batch, context, "--running-max");
    const uint32_t half = std::min(options_.steps / 2, context - 1);
    const uint32_t start = context - half;
    const uint32_t blocks = (start + options_.steps + 8) / block_tokens_ + 1;
    if (uint64_t{blocks} * batch * groups() > kv_blocks_)
      return Skip(batch, context, "the KV pool");
    if (start + options_.steps + 8 > model_.limits.context_tokens) {
      return Skip(batch, context, "the model's context");
    }
    Totals totals;
    WEFT_RETURN_IF_ERROR(RunDecode(batch, start, blocks, &totals));
    Report(batch, context, totals);
    return absl::OkStatus();
  }

  absl::Status Prompt(uint32_t tokens) {
    const uint32_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
    if (uint64_t{blocks} * groups() > kv_blocks_ || tokens > model_.limits.context_tokens) {
      std::printf("prompt %6u   does not fit\n", tokens);
      return absl::OkStatus();
    }
    std::vector<double> times_ms;
    double device_ms = 0;
    for (int i = 0; i < 7; ++i) {
      device_ms = 0;
      const int64_t begin_us = MonotonicClock().NowUs();
      for (uint32_t start = 0; start < tokens;) {
        const uint32_t count = std::min(tokens - start, model_.limits.step_tokens_max);
        StepBatch batch = MakeBatch(1, blocks);
        if (start == 0) batch.starts.push_back({0, 1, tokens, {}, {}});
        AddRows(&batch, 0, start, count, blocks, start + count == tokens);
        WEFT_ASSIGN_OR_RETURN(const StepResult result, model_.runner->Run(batch));
        device_ms += result.device_us * 1e-3;
        start += count;
      }
      times_ms.push_back(static_cast<double>(MonotonicClock().NowUs() - begin_us) * 1e-3);
    }
    std::nth_element(times_ms.begin(), times_ms.begin() + 3, times_ms.end());
    const double tflops = 2.0 * ParametersOfToken(model_.matrices) * tokens / times_ms[3] * 1e-9;
    std::printf(
        "prompt %6u   %9.2f ms (device %.2f)   %9.0f tokens/s   %6.0f TFLOP/s in matrices%s\n",
        tokens, times_ms[3], device_ms, tokens / times_ms[3] * 1e3, tflops,
        Share("MFU", tflops, options_.limit_tflops).c_str());
    return absl::OkStatus();
  }

 private:
  struct Totals {
    double wall_us = 0;
    double device_us = 0;
    uint32_t steps = 0;
  };

  // Empty where no limit is known.
  static std::string Share(const char* name, double value, double limit) {
    return limit > 0 ? absl::StrFormat("   %s %3.0f%%", name, 100 * value / limit) : "";
  }

  absl::Status Skip(uint32_t batch, uint32_t context, const char* what) const {
    std::printf("decode %4u x %6u   more than %s\n", batch, context, what);
    return absl::OkStatus();
  }

  uint32_t groups() const { return static_cast<uint32_t>(model_.facts.kv_groups_size()); }

  // Each sequence has `blocks` blocks of its own in each KV group, whatever its window.
  StepBatch MakeBatch(uint32_t sequences, uint32_t blocks) const {
    StepBatch batch;
    batch.kv_groups = groups();
    for (uint32_t i = 0; i < sequences * groups() * blocks; ++i) batch.block_ids.push_back(i);
    return batch;
  }

  void AddRows(StepBatch* batch, uint32_t slot, uint32_t start, uint32_t count, uint32_t blocks,
               bool sample) const {
    shard::StepSequence rows;
    rows.slot = slot;
    rows.sequence = slot + 1;
    rows.token_begin = static_cast<uint32_t>(batch->ids.size());
    rows.token_count = count;
    rows.start = start;
    rows.sample = sample;
    batch->sequences.push_back(rows);
    const uint32_t used = (start + count + block_tokens_ - 1) / block_tokens_;
    for (uint32_t group = 0; group < groups(); ++group) {
      batch->tables.push_back({0, (slot * groups() + group) * blocks, used});
    }
    for (uint32_t i = 0; i < count; ++i) {
      batch->ids.push_back((start + i * 7919 + slot) % model_.limits.vocab_size);
    }
  }

  // Keeps as many steps launched as the runner takes.
  absl::Status RunDecode(uint32_t sequences, uint32_t start, uint32_t blocks, Totals* totals) {
    constexpr uint32_t kWarmSteps = 8;
    std::deque<StepBatch> launched;
    int64_t begin_us = 0;
    for (uint32_t step = 0; step < kWarmSteps + options_.steps || !launched.empty();) {
      if (step < kWarmSteps + options_.steps && launched.size() < model_.runner->launches_max()) {
        StepBatch batch = MakeBatch(sequences, blocks);
        for (uint32_t slot = 0; slot < sequences; ++slot) {
          if (step == 0) batch.starts.push_back({slot, slot + 1, start, {}, {}});
          AddRows(&batch, slot, start + step, 1, blocks, true);
          batch.sequences.back().from_last_sample = step > 0;
          if (step > 0) batch.ids.back() = kNoToken;
        }
        ++step;
        launched.push_back(std::move(batch));
        WEFT_RETURN_IF_ERROR(model_.runner->Launch(launched.back()));
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const StepResult result, model_.runner->Take());
      launched.pop_front();
      const uint32_t taken = step - static_cast<uint32_t>(launched.size());
      if (taken == kWarmSteps) begin_us = MonotonicClock().NowUs();
      if (taken > kWarmSteps) {
        ++totals->steps;
        totals->device_us += result.device_us;
      }
    }
    totals->wall_us = static_cast<double>(MonotonicClock().NowUs() - begin_us);
    return absl::OkStatus();
  }

  void Report(uint32_t batch, uint32_t context, const Totals& totals) const {
    const double step_us = totals.wall_us / totals.steps;
    const double idle_us = step_us - totals.device_us / totals.steps;
    double kv_bytes = 0;
    for (const shard::v1::KvGroup& group : model_.facts.kv_groups()) {
      const uint32_t window = group.window_tokens();
      const uint32_t seen = window == 0 ? context : std::min(window, context);
      kv_bytes += static_cast<double>(group.block_bytes()) / block_tokens_ * batch * seen;
    }
    const double weights_bytes = static_cast<double>(model_.facts.memory().weights_bytes()) *
                                 ParametersRead(model_.matrices, batch) /
                                 static_cast<double>(model_.facts.parameters());
    const double bytes = weights_bytes + kv_bytes;
    const double gbytes_per_s = bytes / step_us * 1e-3;
    std::printf("decode %4u x %6u   %9.3f ms   %9.0f tokens/s   %6.0f GB/s%s%s   idle %5.0f us\n",
                batch, context, step_us * 1e-3, batch / step_us * 1e6, gbytes_per_s,
                Share("MBU", gbytes_per_s, options_.limit_gbytes_per_s).c_str(),
                Share("MFU", 2e-6 * ParametersOfToken(model_.matrices) * batch / step_us,
                      options_.limit_tflops)
                    .c_str(),
                idle_us);
  }

  const StepOptions options_;
  shard::LoadedModel model_;
  const uint32_t block_tokens_;
  const uint32_t kv_blocks_;
};

absl::Status RunStep(StepOptions options) {
  WEFT_RETURN_IF_ERROR(InitLogging("step", LogFormat::kText, "info"));
  if (options.model.empty()) {
    return absl::InvalidArgumentError(
        "--model: name a model directory or a .gguf file, as in --model=DIR_OR_GGUF");
  }
  absl::StatusOr<std::string> model_path = FindModel(options.model, {});
  if (!model_path.ok()) return Annotate(model_path.status(), "--model");
  options.model = *std::move(model_path);
  WEFT_RETURN_IF_ERROR(shard::CheckRange("steps", options.steps, 1u, kContextTokensMax));
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> batches,
                        ParseNumbers("batches", options.batches));
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> contexts,
                        ParseNumbers("contexts", options.contexts));
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompts,
                        ParseNumbers("prompts", options.prompts));
  WEFT_ASSIGN_OR_RETURN(const shard::ShardFlags flags, MakeShardFlags(options));
  if (flags.gpu.has_value() && options.limit_gbytes_per_s == 0) {
    options.limit_gbytes_per_s = kH200GbytesPerS;
  }
  if (flags.gpu.has_value() && options.limit_tflops == 0) options.limit_tflops = kH200Tflops;
  const int64_t begin_us = MonotonicClock().NowUs();
  shard::LoadProgress progress;
  const std::atomic<bool> cancel{false};
  WEFT_ASSIGN_OR_RETURN(shard::LoadedModel model, shard::LoadModel(flags, progress, cancel));
  const int64_t loaded_us = MonotonicClock().NowUs();
  shard::MeetCall alone;
  alone.epoch = 1;
  alone.peer_timeout = flags.peer_timeout;
  WEFT_ASSIGN_OR_RETURN(auto communicator, model.meeting->Meet(alone));
  WEFT_RETURN_IF_ERROR(model.runner->BeginEpoch(std::move(communicator), ""));
  WEFT_ASSIGN_OR_RETURN(const shard::WarmupResult warm, model.runner->Warmup());
  std::printf("%s on %s: loaded in %.2f s, warm after %.2f s, %u KV blocks\n",
              options.model.c_str(), model.facts.device().c_str(),
              static_cast<double>(loaded_us - begin_us) * 1e-6,
              static_cast<double>(MonotonicClock().NowUs() - loaded_us) * 1e-6, warm.kv_blocks);
  StepBench bench(options, std::move(model), warm.kv_blocks);
  for (const uint32_t context : contexts) {
    for (const uint32_t batch : batches) WEFT_RETURN_IF_ERROR(bench.Decode(batch, context));
  }
  for (const uint32_t tokens : prompts) WEFT_RETURN_IF_ERROR(bench.Prompt(tokens));
  return absl::OkStatus();
}

}  // namespace

int RunBenchStep(int argc, char** argv) {
  StepOptions options;
  Flags flags("weft bench step", "Times steps of a shard's model, without a server.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return RunStep(options); });
}

}  // namespace weft::launcher
