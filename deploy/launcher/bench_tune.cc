// weft bench tune: measures on the GPU at hand which kernels a model's matrix products are fastest
// with, and writes the table that CUDA shards look them up in
// (shard/device/cuda/gemm_plan_table.h). Needs the GPU to itself, and of the model its config.json
// alone.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/pull_model.h"
#include "deploy/launcher/run_command.h"
#include "shard/device/cuda/tuning.h"
#include "shard/weights/loader.h"

namespace weft::launcher {
namespace {

struct TuneOptions {
  std::string model;
  uint32_t device_index = 0;
  // Up to 512 all that batches are rounded up to.
  std::string rows =
      "1,2,4,8,16,24,32,40,48,56,64,80,96,112,128,160,192,224,256,320,384,448,512,768,1024,1536,"
      "2048,3072,4096,8192";
  std::string world = "1,2,4";
  std::string out;
};

void Declare(Flags& flags, TuneOptions* options) {
  flags.Add("model", &options->model,
            "Directory with a config.json, or .gguf file, whose shapes are measured");
  flags.Add("device-index", &options->device_index, "GPU, as CUDA numbers them");
  flags.Add("rows", &options->rows, "Rows to measure; a plan serves those down to the one before");
  flags.Add("world", &options->world, "Shard counts to measure slices of");
  flags.Add("out", &options->out, "Table to write; what it has of other products and rows stays");
}

void Print(const shard::CudaTuneLine& line) {
  std::printf("%-8s %6u x %6u   rows %5u   first %9.2f us   best %9.2f us   %4.0f%%   %s   (of %u",
              line.product.c_str(), line.n, line.k, line.rows, line.first_us, line.best_us,
              100 * line.best_us / line.first_us, line.kernel.c_str(), line.candidates);
  if (line.wrong != 0) std::printf(", %u wrong", line.wrong);
  std::printf(")\n");
  std::fflush(stdout);
}

// What the table gains.
struct Gain {
  // Sum of log(best / first).
  double log_ratios = 0;
  uint32_t plans = 0;
};

absl::StatusOr<std::string> ReadTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::string();
  std::stringstream text;
  text << file.rdbuf();
  if (file.bad()) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  return text.str();
}

absl::Status WriteTable(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::Status RunTune(TuneOptions options) {
  if (options.model.empty()) {
    return absl::InvalidArgumentError(
        "--model: name a model directory or a .gguf file, as in --model=DIR_OR_GGUF");
  }
  absl::StatusOr<std::string> model_path = FindModel(options.model, {});
  if (!model_path.ok()) return Annotate(model_path.status(), "--model");
  options.model = *std::move(model_path);
  if (options.out.empty()) {
    return absl::InvalidArgumentError("--out: name the table to write, as in --out=plans.txt");
  }
  shard::CudaTuneOptions tune;
  WEFT_ASSIGN_OR_RETURN(tune.rows, ParseNumbers("rows", options.rows));
  WEFT_ASSIGN_OR_RETURN(tune.worlds, ParseNumbers("world", options.world));
  std::sort(tune.rows.begin(), tune.rows.end());
  tune.rows.erase(std::unique(tune.rows.begin(), tune.rows.end()), tune.rows.end());
  if (tune.rows.empty() || tune.rows.back() > kStepTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rows: numbers from 1 to ", kStepTokensMax, " are measured"));
  }
  if (tune.worlds.empty()) return absl::InvalidArgumentError("--world: name a shard count");
  absl::StatusOr<shard::CudaDevice> device = shard::FindCudaDevice({options.device_index, 0});
  if (!device.ok()) return Annotate(device.status(), "it measures on a GPU");
  tune.device = *std::move(device);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<shard::ModelFiles> files,
                        absl::EndsWith(options.model, ".gguf")
                            ? shard::ModelFiles::Open(options.model)
                            : shard::ModelFiles::OpenShape(options.model));
  WEFT_ASSIGN_OR_RETURN(const std::string table, ReadTable(options.out));
  const int64_t begin_us = MonotonicClock().NowUs();
  Gain gain;
  const auto measured = [&gain](const shard::CudaTuneLine& line) {
    Print(line);
    gain.log_ratios += std::log(line.best_us / line.first_us);
    ++gain.plans;
  };
  const auto save = [&options](const std::string& text) { return WriteTable(options.out, text); };
  // Says now, not after minutes, when the table cannot be written.
  WEFT_RETURN_IF_ERROR(save(table));
  WEFT_RETURN_IF_ERROR(
      Annotate(shard::TuneCudaProducts(*files, tune, table, measured, save), options.model));
  std::printf(
      "%s: %u plans on %s in %.0f s; %.1f%% of the first suggestions' time (geometric mean)\n",
      options.out.c_str(), gain.plans, tune.device.name.c_str(),
      static_cast<double>(MonotonicClock().NowUs() - begin_us) * 1e-6,
      100 * std::exp(gain.log_ratios / std::max(1u, gain.plans)));
  return absl::OkStatus();
}

}  // namespace

int RunBenchTune(int argc, char** argv) {
  TuneOptions options;
  Flags flags("weft bench tune",
              "Measures which kernels a model's matrix products are fastest with on this GPU.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return RunTune(options); });
}

}  // namespace weft::launcher
