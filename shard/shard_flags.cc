#include "shard/shard_flags.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/status.h"

namespace weft::shard {
namespace {

// Flags as they are typed.
struct Texts {
  std::string weights = "file";
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  std::string kv_memory = "auto";
  double memory_fraction = 0.9;
  std::string cpu_isa = "auto";
  std::string log_format = "text";
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
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
  parser.Add("dtype", &texts->dtype, "Activations: auto, float32 or bfloat16");
  parser.Add("kv-dtype", &texts->kv_dtype, "KV cache: auto, float32, float16 or bfloat16");
  parser.Add("kv-memory", &texts->kv_memory,
             "KV pool of all ranks of this host, bytes (KiB, MiB, GiB); auto = 1GiB on the CPU, "
             "all that --memory-fraction leaves on CUDA");
  parser.Add("memory-fraction", &texts->memory_fraction,
             "Share of a GPU's memory that may be in use, 0.05 .. 0.99");
  parser.AddSwitch(
      "deterministic", &flags->memory.deterministic,
      "CUDA, one shard: a token does not depend on what else is in its batch nor on how "
      "its prompt was cut; slower");
  parser.Add("running-max", &texts->running_max,
             "Sequences of the running batch, 1 .. 1024; 0 = 64 on the CPU, 512 on CUDA");
  parser.Add("step-tokens-max", &texts->step_tokens_max,
             "Tokens of one step, running-max .. 16384; 0 = 512 on the CPU, 8192 on CUDA");
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

template <typename T>
absl::Status CheckRange(const char* name, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": ", value, " is not in ", least, " .. ", most));
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

// Auto takes GPUs where there are any; then there has to be one for this rank: a group is of one
// kind.
absl::Status ResolveDevice(const std::string& device, ShardFlags* flags) {
  if (device == "cpu") return absl::OkStatus();
  if (device != "auto" && device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device: \"", device, "\" is not one of auto, cpu, cuda"));
  }
  absl::StatusOr<CudaDevice> found = FindCudaDevice(flags->rank);
  if (found.ok()) {
    flags->gpu = *std::move(found);
  } else if (device == "cuda" || (flags->rank > 0 && FindCudaDevice(0).ok())) {
    return found.status();
  }
  return absl::OkStatus();
}

absl::Status ResolvePool(const Texts& texts, bool cuda, MemoryFlags* memory) {
  if (texts.kv_memory == "auto") {
    if (cuda) memory->kv_memory_bytes = 0;
  } else {
    absl::StatusOr<uint64_t> kv_memory = ParseBytes(texts.kv_memory);
    if (!kv_memory.ok()) return Annotate(kv_memory.status(), "--kv-memory");
    memory->kv_memory_bytes = *kv_memory;
  }
  WEFT_RETURN_IF_ERROR(CheckRange("memory-fraction", texts.memory_fraction, 0.05, 0.99));
  memory->memory_fraction = texts.memory_fraction;
  return absl::OkStatus();
}

absl::Status ResolveMemory(const Texts& texts, uint32_t world, bool cuda, MemoryFlags* memory) {
  absl::StatusOr<NumberType> dtype = ParseNumberType(texts.dtype);
  if (!dtype.ok()) return Annotate(dtype.status(), "--dtype");
  absl::StatusOr<NumberType> kv_dtype = ParseNumberType(texts.kv_dtype);
  if (!kv_dtype.ok()) return Annotate(kv_dtype.status(), "--kv-dtype");
  memory->dtype = *dtype;
  memory->kv_dtype = *kv_dtype;
  WEFT_RETURN_IF_ERROR(ResolvePool(texts, cuda, memory));
  memory->running_max = texts.running_max;
  if (memory->running_max == 0) memory->running_max = cuda ? kRunningDefaultCuda : kRunningDefault;
  WEFT_RETURN_IF_ERROR(CheckRange("running-max", memory->running_max, 1u, kRunningMax));
  memory->step_tokens_max = texts.step_tokens_max;
  if (memory->step_tokens_max == 0) {
    memory->step_tokens_max =
        std::max(cuda ? kStepTokensDefaultCuda : kStepTokensDefault, memory->running_max);
  }
  WEFT_RETURN_IF_ERROR(
      CheckRange("step-tokens-max", memory->step_tokens_max, memory->running_max, kStepTokensMax));
  WEFT_RETURN_IF_ERROR(CheckRange("threads", texts.threads, 0u, 1024u));
  memory->threads = texts.threads > 0 ? texts.threads : std::max(1u, UsableCores() / world);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  struct Unit {
    const char* suffix;
    double bytes;
  };
  double scale = 1.0;
  absl::string_view number = text;
  for (const Unit& unit :
       {Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0}}) {
    if (!absl::EndsWith(text, unit.suffix)) continue;
    number.remove_suffix(3);
    scale = unit.bytes;
  }
  number = absl::StripAsciiWhitespace(number);
  double value = 0.0;
  if (!absl::SimpleAtod(number, &value) || !(value > 0.0) || !(value * scale <= 1e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a number of bytes; write 1073741824, 512MiB or 1GiB"));
  }
  return static_cast<uint64_t>(std::llround(value * scale));
}

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
  WEFT_RETURN_IF_ERROR(ResolveDevice(texts.device, flags));
  WEFT_RETURN_IF_ERROR(ResolveMemory(texts, flags->world, flags->gpu.has_value(), &flags->memory));
  WEFT_RETURN_IF_ERROR(CheckRange("metrics-port", texts.metrics_port, -1, 65535));
  if (texts.metrics_port >= 0) flags->metrics_port = static_cast<uint32_t>(texts.metrics_port);
  WEFT_RETURN_IF_ERROR(CheckRange("peer-timeout-s", texts.peer_timeout_s, 1u, 3600u));
  flags->peer_timeout = absl::Seconds(texts.peer_timeout_s);
  if (texts.cpu_isa != "auto") flags->isa = texts.cpu_isa;
  WEFT_ASSIGN_OR_RETURN(flags->log_format, ParseLogFormat(texts.log_format));
  return absl::OkStatus();
}

}  // namespace weft::shard
