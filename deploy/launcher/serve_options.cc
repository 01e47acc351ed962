#include "deploy/launcher/serve_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

struct Forward {
  const char* name;
  bool to_router;
  bool to_shards;
  const char* help;
  // May stand without a value, which means true.
  bool is_switch = false;
};

constexpr bool kRouter = true;
constexpr bool kShards = true;
constexpr bool kSwitch = true;

// Everything else a child can be told; `weft-router --help` and `weft-shard --help` have defaults.
constexpr Forward kForwards[] = {
    {"weights", false, kShards, "file, or random: a shape without weights, for benchmarks"},
    {"device", false, kShards, "auto, cpu or cuda"},
    {"dtype", false, kShards, "auto, float32 or bfloat16"},
    {"kv-dtype", false, kShards, "auto, float32, float16 or bfloat16"},
    {"kv-memory", false, kShards, "KV pool of all shards of this host, bytes (KiB, MiB, GiB)"},
    {"memory-fraction", false, kShards, "share of a GPU's memory that may be in use"},
    {"deterministic", false, kShards,
     "CUDA, one shard, bfloat16: tokens depend on their own sequence alone; slower", kSwitch},
    {"cpu-isa", false, kShards, "auto, portable, avx2 or avx512_bf16"},
    {"threads", false, kShards, "compute threads of each shard"},
    {"running-max", kRouter, kShards, "sequences in the running batch"},
    {"step-tokens-max", kRouter, kShards, "tokens of one step"},
    {"served-model-name", kRouter, false, "name that requests use"},
    {"queue-requests-max", kRouter, false, "requests that may wait"},
    {"queue-tokens-max", kRouter, false, "tokens that may wait"},
    {"inter-token-target-ms", kRouter, false, "target between two tokens of a running stream"},
    {"admin-port", kRouter, false, "port of the operations routes"},
    {"io-threads", kRouter, false, "threads that serve connections"},
    {"text-threads", kRouter, false, "threads that tokenise and detokenise"},
    {"body-bytes-max", kRouter, false, "largest request body, bytes"},
    {"strict-fields", kRouter, false, "refuse unknown request fields", kSwitch},
    {"slow-reader-timeout-s", kRouter, false, "a reader that takes nothing this long is dropped"},
    {"recovery-timeout-s", kRouter, false, "how long open streams wait for a lost shard"},
    {"hang-timeout-ms", kRouter, false, "a silent shard is dead after this"},
};

}  // namespace

void DeclareServeFlags(Flags& flags, ServeOptions* options) {
  flags.Add("model", &options->model,
            "Model directory or .gguf file; without it the demo model is served");
  flags.Add("shards", &options->shards, "Shard processes, 1 .. 64")->check(CLI::Range(1, 64));
  flags.Add("host", &options->host, "Address to listen on");
  flags.Add("http-port", &options->http_port, "HTTP port, 0 = a free one");
  flags.Add("grpc-port", &options->grpc_port, "gRPC port, 0 = a free one");
  flags
      .Add("shard-metrics-port", &options->shard_metrics_port,
           "Port of shard 0's /metrics, shard r listens r above it; 0 = free ones, -1 = off")
      ->check(CLI::Range(-1, 65535 - 63));
  flags.Add("drain-timeout-s", &options->drain_timeout_s,
            "Seconds that running requests get after SIGTERM");
  flags.Add("log-format", &options->log_format, "text or json");
  flags.Add("log-level", &options->log_level, "trace, debug, info, warn or error");
  options->forwarded.reserve(std::size(kForwards));
  for (const Forward& forward : kForwards) {
    options->forwarded.push_back({forward.name, "", forward.to_router, forward.to_shards});
    const char* target = forward.to_router && forward.to_shards ? "router and shards: "
                         : forward.to_router                    ? "router: "
                                                                : "shards: ";
    std::string* value = &options->forwarded.back().value;
    const std::string help = absl::StrCat(target, forward.help);
    if (forward.is_switch) {
      flags.AddSwitch(forward.name, value, help);
    } else {
      flags.Add(forward.name, value, help);
    }
  }
  flags.app().footer(
      "Flags marked \"router\" or \"shards\" are passed on to these processes; their defaults and\n"
      "ranges: weft-router --help, weft-shard --help.");
}

absl::StatusOr<std::string> ResolveModel(const ServeOptions& options) {
  struct stat info {};
  if (!options.model.empty()) {
    if (stat(options.model.c_str(), &info) != 0) {
      return absl::NotFoundError(absl::StrCat(
          "--model: ", options.model, " does not exist; give a model directory or a .gguf file"));
    }
    return options.model;
  }
  std::string path;
  if (const char* demo = std::getenv("WEFT_DEMO_MODEL")) {
    path = demo;
  } else {
    const char* weft_cache = std::getenv("WEFT_CACHE");
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    path = weft_cache ? weft_cache
           : cache    ? absl::StrCat(cache, "/weft")
                      : absl::StrCat(home ? home : "", "/.cache/weft");
    absl::StrAppend(&path, "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  if (stat(path.c_str(), &info) != 0) {
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

std::vector<ChildSpec> ShardSpecs(const ServeOptions& options, const std::string& binary,
                                  const std::string& model, const std::string& run_dir) {
  std::vector<ChildSpec> specs;
  for (uint32_t rank = 0; rank < options.shards; ++rank) {
    ChildSpec spec;
    spec.name = absl::StrCat("shard-", rank);
    spec.argv = {binary,
                 absl::StrCat("--model=", model),
                 absl::StrCat("--rank=", rank),
                 absl::StrCat("--world=", options.shards),
                 absl::StrCat("--socket=", ShardSocketPath(run_dir, rank)),
                 absl::StrCat("--log-format=", options.log_format),
                 absl::StrCat("--log-level=", options.log_level)};
    if (const int32_t port = options.shard_metrics_port; port >= 0) {
      const uint32_t own = port == 0 ? 0 : static_cast<uint32_t>(port) + rank;
      spec.argv.push_back(absl::StrCat("--metrics-port=", own));
    }
    for (const ForwardedFlag& flag : options.forwarded) {
      if (flag.to_shards && !flag.value.empty()) {
        spec.argv.push_back(absl::StrCat("--", flag.name, "=", flag.value));
      }
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

ChildSpec RouterSpec(const ServeOptions& options, const std::string& binary,
                     const std::string& model, const std::string& run_dir) {
  ChildSpec spec;
  spec.name = "router";
  spec.argv = {binary,
               absl::StrCat("--model=", model),
               absl::StrCat("--host=", options.host),
               absl::StrCat("--http-port=", options.http_port),
               absl::StrCat("--grpc-port=", options.grpc_port),
               absl::StrCat("--drain-timeout-s=", options.drain_timeout_s),
               absl::StrCat("--supervisor-socket=", run_dir, "/supervisor.sock"),
               absl::StrCat("--log-format=", options.log_format),
               absl::StrCat("--log-level=", options.log_level)};
  for (uint32_t rank = 0; rank < options.shards; ++rank) {
    spec.argv.push_back(absl::StrCat("--shard=unix:", ShardSocketPath(run_dir, rank)));
  }
  for (const ForwardedFlag& flag : options.forwarded) {
    if (flag.to_router && !flag.value.empty()) {
      spec.argv.push_back(absl::StrCat("--", flag.name, "=", flag.value));
    }
  }
  return spec;
}

}  // namespace weft::launcher
