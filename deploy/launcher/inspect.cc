// weft inspect: what is in a model and what memory it needs at which shard count. Reads headers
// only.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json.hpp"
#include "common/flags.h"
#include "common/limits.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"
#include "deploy/launcher/serve_options.h"
#include "shard/memory_plan.h"
#include "shard/weights/loader.h"

namespace weft::launcher {
namespace {

constexpr uint32_t kWorlds[] = {1, 2, 4, 8};

struct InspectOptions {
  std::string model;
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  uint64_t kv_memory_bytes = uint64_t{1} << 30;
  bool json = false;
};

const char* TypeName(shard::TensorType type) {
  switch (type) {
    case shard::TensorType::kF32:
      return "F32";
    case shard::TensorType::kF16:
      return "F16";
    case shard::TensorType::kBf16:
      return "BF16";
    case shard::TensorType::kQ8_0:
      return "Q8_0";
    case shard::TensorType::kQ4_0:
      return "Q4_0";
    case shard::TensorType::kQ4_1:
      return "Q4_1";
  }
  return "?";
}

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Plans every rank of one shard count; the largest rank is what a machine must hold.
struct WorldPlan {
  uint32_t world = 0;
  // Why this count does not work; empty = it does.
  std::string refusal;
  uint64_t weights_bytes_max = 0;
  uint64_t workspace_bytes_max = 0;
  uint64_t kv_bytes_all = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_tokens = 0;
};

WorldPlan PlanWorld(const shard::ModelFiles& files, uint32_t world,
                    const shard::MemoryFlags& flags) {
  WorldPlan out;
  out.world = world;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const auto slice = shard::MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple());
    if (!slice.ok()) {
      out.refusal = std::string(slice.status().message());
      return out;
    }
    const auto plan = shard::PlanMemory(files.spec(), *slice, files.mlp_multiple(),
                                        files.main_type(), files.SliceBytes(*slice), flags);
    if (!plan.ok()) {
      out.refusal = std::string(plan.status().message());
      return out;
    }
    out.weights_bytes_max = std::max(out.weights_bytes_max, plan->weights_bytes);
    out.workspace_bytes_max = std::max(out.workspace_bytes_max, plan->workspace_bytes);
    out.kv_bytes_all += plan->kv_bytes;
    out.kv_bytes_per_token += plan->kv_block_bytes / kKvBlockTokensCpu;
    out.kv_tokens = uint64_t{plan->kv_blocks} * kKvBlockTokensCpu;
  }
  return out;
}

void PrintText(const shard::ModelFiles& files, const std::string& path,
               const std::vector<WorldPlan>& plans) {
  const shard::DecoderSpec& spec = files.spec();
  absl::PrintF("%s\n", path);
  absl::PrintF("  family        %s, %.1f M parameters, mostly %s, %.1f MiB of tensors\n",
               spec.family, static_cast<double>(spec.parameters()) * 1e-6,
               TypeName(files.main_type()), Mib(files.total_bytes()));
  absl::PrintF("  shape         %d layers, hidden %d, MLP %d, vocabulary %d%s\n", spec.layers,
               spec.hidden, spec.mlp_hidden, spec.vocab, spec.tied_head ? ", tied head" : "");
  absl::PrintF("  attention     %d query heads, %d KV heads, head size %d, context %d tokens\n\n",
               spec.heads, spec.kv_heads, spec.head_dim, spec.context_tokens);
  absl::PrintF("  %-7s %15s %16s %12s %14s %10s\n", "shards", "weights/shard", "workspace/shard",
               "KV in all", "KV per token", "tokens");
  for (const WorldPlan& plan : plans) {
    if (!plan.refusal.empty()) {
      absl::PrintF("  %-7d no: %s\n", plan.world, plan.refusal);
      continue;
    }
    absl::PrintF("  %-7d %11.1f MiB %12.1f MiB %8.0f MiB %12d B %10d\n", plan.world,
                 Mib(plan.weights_bytes_max), Mib(plan.workspace_bytes_max), Mib(plan.kv_bytes_all),
                 plan.kv_bytes_per_token, plan.kv_tokens);
  }
}

void PrintJson(const shard::ModelFiles& files, const std::string& path,
               const std::vector<WorldPlan>& plans) {
  const shard::DecoderSpec& spec = files.spec();
  boost::json::array worlds;
  for (const WorldPlan& plan : plans) {
    boost::json::object entry = {{"shards", plan.world}};
    if (!plan.refusal.empty()) {
      entry["refusal"] = plan.refusal;
    } else {
      entry["weights_bytes_per_shard"] = plan.weights_bytes_max;
      entry["workspace_bytes_per_shard"] = plan.workspace_bytes_max;
      entry["kv_bytes"] = plan.kv_bytes_all;
      entry["kv_bytes_per_token"] = plan.kv_bytes_per_token;
      entry["kv_tokens"] = plan.kv_tokens;
    }
    worlds.push_back(std::move(entry));
  }
  const boost::json::object out = {{"path", path},
                                   {"family", spec.family},
                                   {"parameters", spec.parameters()},
                                   {"main_type", TypeName(files.main_type())},
                                   {"tensor_bytes", files.total_bytes()},
                                   {"layers", spec.layers},
                                   {"hidden", spec.hidden},
                                   {"mlp_hidden", spec.mlp_hidden},
                                   {"heads", spec.heads},
                                   {"kv_heads", spec.kv_heads},
                                   {"head_dim", spec.head_dim},
                                   {"vocab", spec.vocab},
                                   {"context_tokens", spec.context_tokens},
                                   {"tied_head", spec.tied_head},
                                   {"plans", std::move(worlds)}};
  std::puts(boost::json::serialize(out).c_str());
}

absl::Status Inspect(const InspectOptions& options) {
  ServeOptions serve;
  serve.model = options.model;
  WEFT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(serve));
  WEFT_ASSIGN_OR_RETURN(const auto files, shard::ModelFiles::Open(path));
  shard::MemoryFlags flags;
  WEFT_ASSIGN_OR_RETURN(flags.dtype, shard::ParseNumberType(options.dtype));
  WEFT_ASSIGN_OR_RETURN(flags.kv_dtype, shard::ParseNumberType(options.kv_dtype));
  flags.kv_memory_bytes = options.kv_memory_bytes;
  flags.running_max = kRunningDefault;
  flags.step_tokens_max = kStepTokensDefault;
  std::vector<WorldPlan> plans;
  for (const uint32_t world : kWorlds) plans.push_back(PlanWorld(*files, world, flags));
  if (options.json) {
    PrintJson(*files, path, plans);
  } else {
    PrintText(*files, path, plans);
  }
  return absl::OkStatus();
}

}  // namespace

int RunInspect(int argc, char** argv) {
  InspectOptions options;
  Flags flags("weft inspect", "Says what is in a model and what memory CPU shards of it need.");
  flags.Add("model", &options.model, "Model directory or .gguf file; empty = the demo model");
  flags.Add("dtype", &options.dtype, "auto, float32 or bfloat16");
  flags.Add("kv-dtype", &options.kv_dtype, "auto, float32, float16 or bfloat16");
  flags.Add("kv-memory", &options.kv_memory_bytes, "KV pool of all shards of a host, bytes")
      ->transform(CLI::AsSizeValue(false));
  flags.AddSwitch("json", &options.json, "Print one JSON object");
  flags.app().add_option("path", options.model, "The same as --model");
  return RunCommand(flags, argc, argv, [&options] { return Inspect(options); });
}

}  // namespace weft::launcher
