// weft inspect: what is in a model and what memory it needs at which shard count. Reads headers
// only.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json.hpp"
#include "common/flags.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/inspect_ops.h"
#include "deploy/launcher/inspect_plans.h"
#include "deploy/launcher/run_command.h"
#include "deploy/launcher/serve_options.h"
#include "deploy/launcher/shard_count.h"
#include "shard/weights/loader.h"

namespace weft::launcher {
namespace {

struct InspectOptions {
  std::string model;
  std::string weights = "file";
  PlanOptions plan;
  StepOptions step;
  bool json = false;
};

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void PrintCpuPlans(const ModelPlans& plans) {
  absl::PrintF("  %-7s %15s %16s %12s %14s %10s\n", "shards", "weights/shard", "workspace/shard",
               "KV in all", "KV per token", "tokens");
  for (const WorldPlan& plan : plans.worlds) {
    if (!plan.refusal.empty()) {
      absl::PrintF("  %-7d no: %s\n", plan.world, plan.refusal);
      continue;
    }
    absl::PrintF("  %-7d %11.1f MiB %12.1f MiB %8.0f MiB %12d B %10d\n", plan.world,
                 Mib(plan.weights_bytes_max), Mib(plan.workspace_bytes_max), Mib(plan.kv_bytes_all),
                 plan.kv_bytes_per_token, plan.kv_tokens);
  }
}

void PrintCudaPlans(const ModelPlans& plans) {
  absl::PrintF("  %-7s %15s %15s %15s %15s %14s %12s\n", "shards", "weights/GPU", "workspace/GPU",
               "KV pool/GPU", "left/GPU", "KV per token", "tokens");
  for (const WorldPlan& plan : plans.worlds) {
    if (!plan.refusal.empty()) {
      absl::PrintF("  %-7d no: %s\n", plan.world, plan.refusal);
      continue;
    }
    absl::PrintF("  %-7d %11.1f MiB %11.1f MiB %11.1f MiB %11.1f MiB %12d B %12d\n", plan.world,
                 Mib(plan.weights_bytes_max), Mib(plan.workspace_bytes_max), Mib(plan.kv_bytes_max),
                 Mib(plan.left_bytes_min), plan.kv_bytes_per_token, plan.kv_tokens);
  }
}

// How layers share blocks of the KV pool, and what a block takes.
void PrintKvGroups(const shard::DecoderSpec& spec, const ModelPlans& plans) {
  absl::PrintF("  KV groups     %s", Describe(shard::MakeKvGroups(spec)));
  for (const WorldPlan& plan : plans.worlds) {
    if (!plan.refusal.empty()) continue;
    absl::PrintF("; a block of %d tokens takes %.1f KiB in all", plan.kv_block_tokens,
                 static_cast<double>(plan.kv_block_bytes) / 1024);
    break;
  }
  absl::PrintF("\n\n");
}

void PrintText(const shard::ModelFiles& files, const std::string& path, const ModelPlans& plans) {
  const shard::DecoderSpec& spec = files.spec();
  absl::PrintF("%s\n", path);
  absl::PrintF("  family        %s, %.1f M parameters, mostly %s, %.1f MiB of tensors\n",
               spec.family, static_cast<double>(spec.parameters()) * 1e-6,
               FormatOf(files.main_type()).name, Mib(files.total_bytes()));
  absl::PrintF("  shape         %d layers, hidden %d, MLP %d, vocabulary %d%s\n", spec.layers,
               spec.hidden, spec.mlp_hidden, spec.vocab, spec.tied_head ? ", tied head" : "");
  if (const shard::ExpertsSpec& experts = spec.experts; experts.count > 0) {
    absl::PrintF("  experts       %d, of which a token takes %d, %d columns each%s\n",
                 experts.count, experts.per_token, experts.hidden,
                 experts.shared_hidden == 0
                     ? ""
                     : absl::StrCat("; beside them one MLP of ", experts.shared_hidden));
  }
  if (spec.latent.rank > 0) {
    absl::PrintF("  attention     %d query heads over latents of %d + %d, context %d tokens\n",
                 spec.heads, spec.latent.rank, spec.head_dim - spec.latent.rank,
                 spec.context_tokens);
  } else {
    absl::PrintF("  attention     %d query heads, %d KV heads, head size %d, context %d tokens\n",
                 spec.heads, spec.kv_heads, spec.head_dim, spec.context_tokens);
  }
  PrintKvGroups(spec, plans);
  if (const std::string line = Assumptions(plans); !line.empty()) {
    absl::PrintF("  %-13s %s\n\n", plans.cuda ? "GPU" : "device", line);
  }
  if (plans.cuda) {
    PrintCudaPlans(plans);
  } else {
    PrintCpuPlans(plans);
  }
  std::string capped;
  for (const WorldPlan& plan : plans.worlds) {
    if (plan.kv_capped) absl::StrAppend(&capped, capped.empty() ? "" : ", ", plan.world);
  }
  if (capped.empty()) return;
  absl::PrintF("\n  At %s: the KV pool is all that --running-max sequences of full length use.\n",
               capped);
}

boost::json::array WorldsJson(const ModelPlans& plans) {
  boost::json::array worlds;
  for (const WorldPlan& plan : plans.worlds) {
    boost::json::object entry = {{"shards", plan.world}};
    if (!plan.refusal.empty()) {
      entry["refusal"] = plan.refusal;
    } else {
      entry["weights_bytes_per_shard"] = plan.weights_bytes_max;
      entry["workspace_bytes_per_shard"] = plan.workspace_bytes_max;
      entry["kv_bytes"] = plan.kv_bytes_all;
      entry["kv_bytes_per_token"] = plan.kv_bytes_per_token;
      entry["kv_tokens"] = plan.kv_tokens;
      entry["kv_block_bytes"] = plan.kv_block_bytes;
      if (plans.cuda) {
        entry["kv_bytes_per_shard"] = plan.kv_bytes_max;
        entry["left_bytes_per_shard"] = plan.left_bytes_min;
      }
    }
    worlds.push_back(std::move(entry));
  }
  return worlds;
}

boost::json::array KvGroupsJson(const shard::KvGroups& groups) {
  boost::json::array out;
  for (const shard::KvGroup& group : groups.groups) {
    out.push_back({{"layers", group.layers.size()}, {"window_tokens", group.window_tokens}});
  }
  return out;
}

void PrintJson(const shard::ModelFiles& files, const std::string& path, const ModelPlans& plans) {
  const shard::DecoderSpec& spec = files.spec();
  const shard::KvGroups groups = shard::MakeKvGroups(spec);
  boost::json::object out = {{"path", path},
                             {"family", spec.family},
                             {"parameters", spec.parameters()},
                             {"main_type", FormatOf(files.main_type()).name},
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
                             {"kv_groups", KvGroupsJson(groups)},
                             {"kv_waste", groups.waste()},
                             {"device", plans.cuda ? "cuda" : "cpu"},
                             {"plans", WorldsJson(plans)}};
  if (spec.latent.rank > 0) out["latent_rank"] = spec.latent.rank;
  if (const shard::ExpertsSpec& experts = spec.experts; experts.count > 0) {
    out["experts"] = {{"count", experts.count},
                      {"per_token", experts.per_token},
                      {"hidden", experts.hidden},
                      {"shared_hidden", experts.shared_hidden}};
  }
  if (plans.cuda) {
    out["gpu"] = {{"name", plans.gpu.name},
                  {"total_bytes", plans.gpu.total_bytes},
                  {"used_bytes", plans.gpu.used_bytes},
                  {"assumed", !plans.gpu.not_found.ok()},
                  {"memory_fraction", plans.memory_fraction}};
  }
  std::puts(boost::json::serialize(out).c_str());
}

absl::Status Inspect(const InspectOptions& options) {
  ServeOptions serve;
  serve.model = options.model;
  WEFT_ASSIGN_OR_RETURN(const std::string path, ResolveModel(serve));
  WEFT_ASSIGN_OR_RETURN(const auto files, OpenModel(path, options.weights, /*serves=*/false));
  if (options.step.shown) {
    WEFT_ASSIGN_OR_RETURN(const StepOps ops, PlanStep(*files, options.plan, options.step));
    if (options.json) {
      std::puts(boost::json::serialize(StepJson(ops)).c_str());
    } else {
      std::fputs(StepText(ops).c_str(), stdout);
    }
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const ModelPlans plans, PlanModel(*files, options.plan));
  if (options.json) {
    PrintJson(*files, path, plans);
  } else {
    PrintText(*files, path, plans);
  }
  return SomeCountWorks(plans);
}

}  // namespace

int RunInspect(int argc, char** argv) {
  InspectOptions options;
  Flags flags("weft inspect", "Says what is in a model and what memory its shards need.");
  flags.Add("model", &options.model,
            "Model directory, .gguf file, or org/name that was pulled; empty = the demo model");
  flags.Add("weights", &options.weights, "file, or random: only config.json is read");
  DeclarePlanFlags(flags, &options.plan);
  DeclareStepFlags(flags, &options.step);
  flags.AddSwitch("json", &options.json, "Print one JSON object");
  flags.AddArgument("path", &options.model, "The same as --model");
  return RunCommand(flags, argc, argv, [&options, &flags] {
    WarnOfVariables("weft inspect", flags);
    return Inspect(options);
  });
}

}  // namespace weft::launcher
