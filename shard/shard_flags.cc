#include "shard/flags.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/status.h"
#include "shard/kv/memory_texts.h"

namespace weft::shard {
namespace {

// Flags as they are typed.
struct Texts {
  std::string weights = "file";
  std::string device = "auto";
  MemoryTexts memory;
  bool deterministic = false;
  std::string cpu_isa = "auto";
  std::string log_format = "text";
  uint32_t threads = 0;
  int metrics_port = -1;
  uint32_t peer_timeout_s = 30;
};

void Declare(Flags& parser, ShardFlags* flags, Texts* texts) {
  parser.Add("model", &flags->model, "Model directory or .gguf file");
  parser.Add("weights", &texts->weights,
             "file, or random: only config.json is read, for benchmarks");
  parser.Add("rank", &flags->rank, "This shard's rank, 0 .. world - 1");
  parser.Add("world", &flags->world, "Shards of the group, 1 .. 64");
  parser.Add("socket", &flags->listen.socket, "Unix socket to listen on, an absolute path");
  parser.Add("listen", &flags->listen.listen,
             "host:port to listen on instead; port 0 = a free one");
  parser.Add("tls-cert", &flags->listen.tls_cert, "PEM file: certificate of this shard");
  parser.Add("tls-key", &flags->listen.tls_key, "PEM file: its key");
  parser.Add("tls-ca", &flags->listen.tls_ca, "PEM file: authority of the router's certificate");
  parser.Add("device", &texts->device, "auto, cpu or cuda");
  DeclareMemoryFlags(parser, &texts->memory);
  parser.AddSwitch("deterministic", &texts->deterministic,
                   "CUDA, one shard, bfloat16: a token does not depend on what else is in its "
                   "batch nor on how its prompt was cut; slower");
  parser.Add("threads", &texts->threads, "Compute threads, 0 = cores / world");
  parser.Add("cpu-isa", &texts->cpu_isa, "auto, avx512_bf16, avx2 or portable");
  parser.Add("peer-timeout-s", &texts->peer_timeout_s,
             "Longest wait for another rank in a step, seconds, 1 .. 3600");
  parser.Add("metrics-port", &texts->metrics_port,
             "Port of /metrics, 0 = a free one; without it there is none");
  parser.Add("metrics-host", &flags->metrics_host, "Address of /metrics");
  parser.Add("log-format", &texts->log_format, "text or json");
  parser.Add("log-level", &flags->log_level, "trace, debug, info, warn or error");
  parser.AddSwitch("die-with-parent", &flags->die_with_parent,
                   "Be killed when the parent process dies");
}

// Cores this process may use.
uint32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

// Whether the weights are random.
absl::StatusOr<bool> ResolveWeights(const std::string& weights) {
  if (weights == "file" || weights == "random") return weights == "random";
  return absl::InvalidArgumentError(
      absl::StrCat("--weights: \"", weights, "\" is not one of file, random"));
}

absl::Status CheckDevice(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--device: \"", device, "\" is not one of auto, cpu, cuda"));
}

// Auto takes GPUs where there are any; then there has to be one for this rank: a group is of one
// kind.
absl::Status ResolveDevice(const std::string& device, ShardFlags* flags) {
  if (device == "cpu") return absl::OkStatus();
  absl::StatusOr<CudaDevice> found = FindCudaDevice(flags->rank);
  if (found.ok()) {
    flags->gpu = *std::move(found);
  } else if (device == "cuda" || (flags->rank > 0 && FindCudaDevice(0).ok())) {
    return absl::Status(
        found.status().code(),
        absl::StrCat("--device ", device, ": ", found.status().message(), ", or use --device cpu"));
  } else {
    flags->no_gpu = found.status();
  }
  return absl::OkStatus();
}

absl::Status ResolveCompute(const Texts& texts, bool cuda, ShardFlags* flags) {
  WEFT_ASSIGN_OR_RETURN(flags->memory, ResolveMemory(texts.memory, cuda));
  flags->memory.deterministic = texts.deterministic;
  flags->memory.threads =
      texts.threads > 0 ? texts.threads : std::max(1u, UsableCores() / flags->world);
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseShardFlags(int argc, char** argv, ShardFlags* flags, std::string* help_text) {
  Flags parser("weft-shard", "One slice of a model, served to a weft-router");
  Texts texts;
  Declare(parser, flags, &texts);
  WEFT_RETURN_IF_ERROR(parser.Parse(argc, argv, help_text));
  if (!help_text->empty()) return absl::OkStatus();

  if (flags->model.empty()) {
    return absl::InvalidArgumentError("--model: name a model directory or a .gguf file");
  }
  WEFT_RETURN_IF_ERROR(CheckRange("world", flags->world, 1u, kWorldMax));
  WEFT_RETURN_IF_ERROR(CheckRange("rank", flags->rank, 0u, flags->world - 1));
  WEFT_ASSIGN_OR_RETURN(flags->random_weights, ResolveWeights(texts.weights));
  WEFT_RETURN_IF_ERROR(CheckDevice(texts.device));
  WEFT_RETURN_IF_ERROR(CheckRange("threads", texts.threads, 0u, 1024u));
  WEFT_RETURN_IF_ERROR(CheckRange("metrics-port", texts.metrics_port, -1, 65535));
  if (texts.metrics_port >= 0) flags->metrics_port = static_cast<uint32_t>(texts.metrics_port);
  WEFT_RETURN_IF_ERROR(CheckRange("peer-timeout-s", texts.peer_timeout_s, 1u, 3600u));
  flags->peer_timeout = absl::Seconds(texts.peer_timeout_s);
  if (texts.cpu_isa != "auto") flags->isa = texts.cpu_isa;
  WEFT_ASSIGN_OR_RETURN(flags->log_format, ParseLogFormat(texts.log_format));
  // A wrong value is named although there is no GPU: the look for one comes last.
  WEFT_RETURN_IF_ERROR(ResolveCompute(texts, texts.device == "cuda", flags));
  WEFT_RETURN_IF_ERROR(ResolveDevice(texts.device, flags));
  return ResolveCompute(texts, flags->gpu.has_value(), flags);
}

}  // namespace weft::shard
