#include "deploy/launcher/serve_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/model_path.h"
#include "common/status.h"
#include "deploy/launcher/pull_model.h"

namespace weft::launcher {
namespace {

constexpr char kRouter[] = "router";
constexpr char kShards[] = "shards";

// What the launcher says to the children by itself.
const std::set<std::string>& RouterWithheld() {
  static const auto* const names =
      new std::set<std::string>{"model",          "shard",
                                "groups",         "supervisor-socket",
                                "shard-tls-cert", "shard-tls-key",
                                "shard-tls-ca",   "die-with-parent",
                                "launcher-id",    "launcher-generation"};
  return *names;
}

const std::set<std::string>& ShardWithheld() {
  static const auto* const names = new std::set<std::string>{
      "model",         "rank",         "world",     "socket",       "listen",
      "tls-cert",      "tls-key",      "tls-ca",    "metrics-port", "die-with-parent",
      "load-progress", "device-index", "comm-host", "comm-ports",   "rank-from-hostname",
      "host-groups",   "host-group"};
  return *names;
}

std::vector<std::string> ChildEnvironment(const Flags& flags, const char* const* environment) {
  std::vector<std::string> out;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (flags.environment_names().count(text.substr(0, text.find('='))) == 0) out.push_back(text);
  }
  return out;
}

// They may have been chosen since they were given.
bool IsPort(const std::string& name) { return name == "http-port" || name == "grpc-port"; }

// Appends "--name=value" of what was given for `owner`, but not of the ports, which may have been
// chosen since.
void AppendGiven(const Flags& flags, const std::string& owner, std::vector<std::string>* argv) {
  for (const Flags::GivenFlag& given : flags.Given(owner)) {
    if (IsPort(given.name)) continue;
    for (const std::string& value : given.values) {
      argv->push_back(absl::StrCat("--", given.name, "=", value));
    }
  }
}

bool ComputesOnCpu(const Flags& flags) {
  for (const Flags::GivenFlag& given : flags.Given(kShards)) {
    if (given.name == "device" && !given.values.empty()) return given.values.back() == "cpu";
  }
  return false;
}

// For the router's /config: where values came from before they became arguments.
std::vector<std::string> Origins(const Flags& flags, const ServeOptions& options,
                                 const ServePlaces& places) {
  std::vector<std::pair<std::string, std::string>> origins;
  for (const char* own : {"shard", "supervisor-socket", "launcher-id", "launcher-generation"}) {
    origins.emplace_back(own, "weft serve");
  }
  if (options.replicas > 1) origins.emplace_back("groups", "weft serve");
  origins.emplace_back("model", options.model.empty() ? "weft serve" : flags.Origin("model"));
  if (!places.model_name.empty() && options.router.served_model_name.empty()) {
    origins.emplace_back("served-model-name", "weft serve");
  }
  bool has_http_port = false;
  bool has_grpc_port = false;
  for (const Flags::GivenFlag& given : flags.Given(kRouter)) {
    origins.emplace_back(given.name, given.origin);
    has_http_port |= given.name == "http-port";
    has_grpc_port |= given.name == "grpc-port";
  }
  if (!has_http_port) origins.emplace_back("http-port", "default");
  if (!has_grpc_port) origins.emplace_back("grpc-port", "default");
  return flags.HandedOn(origins, RouterConfigPath(places.run_dir));
}

std::string DemoModelPath() {
  if (const char* demo = std::getenv("WEFT_DEMO_MODEL")) return demo;
  const char* weft_cache = std::getenv("WEFT_CACHE");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  return absl::StrCat(weft_cache ? weft_cache
                      : cache    ? absl::StrCat(cache, "/weft")
                                 : absl::StrCat(home ? home : "", "/.cache/weft"),
                      "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
}

}  // namespace

void DeclareServeFlags(Flags& flags, ServeOptions* options) {
  flags.Group("Server");
  flags.Add("model", &options->model,
            "Model directory or .gguf file, or org/name[@revision] that weft pull has fetched; "
            "without it the demo model is served");
  flags.AddSwitch("pull", &options->pull,
                  "Fetch --model org/name from the hub before the start, as weft pull does");
  flags.AddList("pull-include", &options->pull_include,
                "Only files that this glob matches, as '*Q4_K_M.gguf'; of several .gguf files it "
                "also says which one is served");
  flags.AddNumber("shards", &options->shards, 1, kWorldMax, "Shard processes of a replica");
  flags.AddNumber("replicas", &options->replicas, 1, router::kShardGroupsMax,
                  "Replicas of the model behind one router: groups of --shards processes each");
  flags.AddNumber(
      "shard-metrics-port", &options->shard_metrics_port, -1, 65535 - (kWorldMax - 1),
      "Port of shard 0's /metrics, shard r listens r above it, 0 = free ones, -1 = off");
  flags.For(kRouter, RouterWithheld());
  router::DeclareRouterFlags(flags, &options->router);
  flags.For(kShards, ShardWithheld());
  shard::DeclareShardFlags(flags, &options->shard);
}

void WarnOfVariables(absl::string_view program, const Flags& flags) {
  ServeOptions ignored;
  Flags serve("weft serve", "");
  DeclareServeFlags(serve, &ignored);
  for (const auto& unknown : flags.UnknownVariables(environ, serve.environment_names())) {
    LogRaw(absl::StrCat(program, ": ", unknown.Line(), "\n"));
  }
}

absl::StatusOr<std::string> ResolveModel(const ServeOptions& options) {
  if (!options.model.empty()) {
    absl::StatusOr<std::string> found = FindModel(options.model, options.pull_include);
    if (!found.ok()) return Annotate(found.status(), "--model");
    return found;
  }
  const std::string path = DemoModelPath();
  if (!CheckModelPath(path).ok()) {
    return absl::NotFoundError(absl::StrCat("no --model was given and the demo model is not at ",
                                            path, "; run deploy/setup.sh to fetch it"));
  }
  return path;
}

absl::StatusOr<std::string> SiblingBinary(const std::string& name) {
  char buffer[4096];
  const ssize_t length = readlink("/proc/self/exe", buffer, sizeof(buffer));
  if (length <= 0) return absl::InternalError("cannot read /proc/self/exe");
  std::string path(buffer, static_cast<size_t>(length));
  path = path.substr(0, path.rfind('/') + 1) + name;
  if (access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " is not there; build the target ", name));
  }
  return path;
}

std::string ShardSocketPath(const std::string& run_dir, uint32_t rank) {
  return absl::StrCat(run_dir, "/shard-", rank, ".sock");
}

std::string RouterConfigPath(const std::string& run_dir) {
  return absl::StrCat(run_dir, "/router.conf");
}

bool IsTheRoutersNews(const Flags& flags, const std::string& name) {
  return flags.Belongs(name, kRouter) && !IsPort(name);
}

std::string RouterConfig(const Flags& flags) {
  std::string text;
  for (const Flags::GivenFlag& given : flags.Given(kRouter)) {
    if (given.origin != "file" || IsPort(given.name)) continue;
    const auto quote = [](std::string* out, const std::string& value) {
      // The format has no escapes, and two kinds of quotes.
      const char mark = absl::StrContains(value, '"') ? '\'' : '"';
      absl::StrAppend(out, std::string(1, mark), value, std::string(1, mark));
    };
    absl::StrAppend(&text, given.name, " = [", absl::StrJoin(given.values, ", ", quote), "]\n");
  }
  return text;
}

std::vector<ChildSpec> ShardSpecs(const Flags& flags, const ServeOptions& options,
                                  const ServePlaces& places, const char* const* environment) {
  std::vector<ChildSpec> specs;
  for (uint32_t rank = 0; rank < options.all_shards(); ++rank) {
    ChildSpec spec;
    spec.name = absl::StrCat("shard-", rank);
    spec.argv = {places.shard_binary,
                 absl::StrCat("--model=", places.model),
                 absl::StrCat("--rank=", rank % options.shards),
                 absl::StrCat("--world=", options.shards),
                 absl::StrCat("--socket=", ShardSocketPath(places.run_dir, rank)),
                 "--load-progress"};
    if (options.replicas > 1) {
      spec.argv.push_back(absl::StrCat("--host-groups=", options.replicas));
      spec.argv.push_back(absl::StrCat("--host-group=", rank / options.shards));
    }
    if (const int32_t port = options.shard_metrics_port; port >= 0) {
      const uint32_t own = port == 0 ? 0 : static_cast<uint32_t>(port) + rank;
      spec.argv.push_back(absl::StrCat("--metrics-port=", own));
    }
    AppendGiven(flags, kShards, &spec.argv);
    // Each rank its own GPU of this host; more ranks than GPUs are refused by name.
    if (!ComputesOnCpu(flags)) spec.argv.push_back(absl::StrCat("--device-index=", rank));
    spec.environment = ChildEnvironment(flags, environment);
    specs.push_back(std::move(spec));
  }
  return specs;
}

ChildSpec RouterSpec(const Flags& flags, const ServeOptions& options, const ServePlaces& places,
                     const char* const* environment) {
  ChildSpec spec;
  spec.name = "router";
  spec.numbered = true;
  spec.argv = {places.router_binary, absl::StrCat("--model=", places.model),
               absl::StrCat("--http-port=", options.router.http_port),
               absl::StrCat("--grpc-port=", options.router.grpc_port),
               absl::StrCat("--supervisor-socket=", places.run_dir, "/supervisor.sock")};
  for (uint32_t rank = 0; rank < options.all_shards(); ++rank) {
    spec.argv.push_back(absl::StrCat("--shard=unix:", ShardSocketPath(places.run_dir, rank)));
  }
  if (options.replicas > 1) spec.argv.push_back(absl::StrCat("--groups=", options.replicas));
  if (!places.model_name.empty() && options.router.served_model_name.empty()) {
    spec.argv.push_back(absl::StrCat("--served-model-name=", places.model_name));
  }
  AppendGiven(flags, kRouter, &spec.argv);
  for (std::string& argument : Origins(flags, options, places))
    spec.argv.push_back(std::move(argument));
  spec.environment = ChildEnvironment(flags, environment);
  return spec;
}

}  // namespace weft::launcher
