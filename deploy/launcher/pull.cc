// weft pull: a model's files from a hub into the cache that Hugging Face's libraries use, too.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/model_id.h"
#include "deploy/launcher/pull_model.h"
#include "deploy/launcher/run_command.h"

namespace weft::launcher {
namespace {

constexpr char kDescription[] =
    "Fetches a model's files from a hub into the cache; weft serve --model org/name serves it.\n"
    "Variables: HF_ENDPOINT (the hub), HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, "
    "https_proxy, no_proxy.";

void Declare(Flags& flags, std::string* model, hub::PullOptions* options) {
  flags.Add("model", model, "org/name, or org/name@revision: a branch, a tag or a commit");
  flags.AddList("include", &options->include,
                "Only files that this glob matches, as '*Q4_K_M.gguf'; without it what weft reads");
  flags.AddList("exclude", &options->exclude, "No files that this glob matches");
  flags.AddSwitch("dry-run", &options->dry_run, "Only say what would be fetched");
  flags.AddNumber("connections", &options->transfer.connections, 1, hub::kConnectionsMax,
                  "Requests at once");
  flags.AddNumber("retries", &options->transfer.retries, 0, 100,
                  "Tries after one that brought nothing, each after a longer wait");
  flags.AddNumber("stall-timeout-s", &options->transfer.stall_timeout_s, 1, 3600,
                  "A connection that brings nothing for so long is given up, s");
  flags.AddNumber("lock-timeout-s", &options->transfer.lock_timeout_s, 0, 86400,
                  "How long to wait for another program that fetches the same, s");
  flags.AddArgument("name", model, "The same as --model");
}

absl::Status RunNamed(const std::string& model, hub::PullOptions options) {
  if (model.empty()) {
    return absl::InvalidArgumentError("name a model, as in weft pull org/name");
  }
  WEFT_ASSIGN_OR_RETURN(options.id, hub::ParseModelId(model));
  WEFT_ASSIGN_OR_RETURN(const std::string snapshot, PullModel(options, PullOutput::kPlain));
  if (options.dry_run) return absl::OkStatus();
  // What can be served of it, for scripts; else where it lies.
  const absl::StatusOr<std::string> served = FindModel(model, options.include);
  FlushLogs();
  if (!served.ok()) LogRaw(absl::StrCat(served.status().message(), "\n"));
  std::printf("%s\n", (served.ok() ? *served : snapshot).c_str());
  return absl::OkStatus();
}

}  // namespace

int RunPull(int argc, char** argv) {
  std::string model;
  hub::PullOptions options;
  Flags flags("weft pull", kDescription);
  Declare(flags, &model, &options);
  return RunCommand(flags, argc, argv, [&model, &options] { return RunNamed(model, options); });
}

}  // namespace weft::launcher
