#include "shard/flags.h"

#include <limits.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cgroup.h"
#include "common/flags.h"
#include "common/model_path.h"
#include "common/status.h"
#include "shard/flag_table.h"
#include "shard/kv/memory_texts.h"
#include "shard/thread_share.h"

namespace weft::shard {
namespace {

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
  absl::StatusOr<CudaDevice> found = FindCudaDevice({flags->device_index, flags->rank});
  if (found.ok()) {
    flags->gpu = *std::move(found);
  } else if (device == "cuda" || FindCudaDevice({0, 0}).ok()) {
    return absl::Status(
        found.status().code(),
        absl::StrCat("--device ", device, ": ", found.status().message(), ", or use --device cpu"));
  } else {
    flags->no_gpu = found.status();
  }
  return absl::OkStatus();
}

// The number at the end of a name like "weft-shard-3".
absl::StatusOr<uint32_t> TrailingNumber(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  uint32_t number = 0;
  if (digits == 0 || name[digits - 1] != '-' || !absl::SimpleAtoi(name.substr(digits), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank-from-hostname: the host's name \"", name,
                     "\" does not end in a dash and a number; give --rank instead"));
  }
  return number;
}

// `rank_given`: --rank has a value of its own, perhaps the one that it has by default.
absl::Status ResolveRank(const ShardFlagValues& values, bool rank_given, ShardFlags* flags) {
  flags->world = values.world;
  flags->log_name = absl::StrCat("shard-", values.host_group * values.world + values.rank);
  if (values.host_group >= values.host_groups) {
    return CheckRange("host-group", values.host_group, 0u, values.host_groups - 1);
  }
  flags->rank = values.rank;
  if (!values.rank_from_hostname) {
    return CheckRange("rank", flags->rank, 0u, flags->world - 1);
  }
  if (rank_given) {
    return absl::InvalidArgumentError(
        "--rank: --rank-from-hostname is given as well, and the two exclude each other; leave one "
        "out");
  }
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return absl::InternalError("--rank-from-hostname: the host has no name");
  }
  WEFT_ASSIGN_OR_RETURN(flags->rank, TrailingNumber(name));
  flags->log_name = absl::StrCat("shard-", flags->rank);
  return CheckRange("rank-from-hostname", flags->rank, 0u, flags->world - 1);
}

absl::StatusOr<PortRange> ParsePorts(const std::string& text) {
  PortRange ports;
  if (text.empty()) return ports;
  const std::vector<std::string> ends = absl::StrSplit(text, '-');
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &ports.first) ||
      !absl::SimpleAtoi(ends.back(), &ports.last) || ports.first < 1 || ports.last < ports.first ||
      ports.last > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--comm-ports: \"", text, "\" is not a range within 1 .. 65535, as 7100-7199"));
  }
  return ports;
}

// Where this rank meets those of other hosts; an address that cannot be listened on is said now and
// not when the group forms.
absl::Status ResolveComm(const ShardFlagValues& values, ShardFlags* flags) {
  WEFT_ASSIGN_OR_RETURN(flags->comm_ports, ParsePorts(values.comm_ports));
  flags->comm_host = values.comm_host;
  if (flags->comm_host.empty()) {
    return values.comm_ports.empty()
               ? absl::OkStatus()
               : absl::InvalidArgumentError("--comm-ports: needs --comm-host");
  }
  if (flags->gpu.has_value() && !values.comm_ports.empty()) {
    return absl::InvalidArgumentError(
        "--comm-ports: NCCL takes ports of the kernel's range (net.ipv4.ip_local_port_range); "
        "leave it out on GPUs");
  }
  return ListenTcp(flags->comm_host, flags->comm_ports).status();
}

// Program, libraries, and a model's headers and vocabulary: what is taken before a plan can say
// what would fit. In less the kernel ends the process without a word.
constexpr uint64_t kStartMiB = 128;

absl::Status CheckStartMemory(const MemoryLimit& host) {
  const uint64_t mib = host.bytes >> 20;
  if (host.bytes == 0 || mib >= kStartMiB) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a shard takes ", kStartMiB, " MiB before it loads anything, of ", mib, " MiB ",
                   host.name, ": raise the limit; `weft inspect MODEL` says what the model takes"));
}

absl::Status ResolveCompute(const ShardFlagValues& texts, bool cuda, ShardFlags* flags) {
  WEFT_ASSIGN_OR_RETURN(flags->memory, ResolveMemory(texts.memory, cuda));
  flags->memory.deterministic = texts.deterministic;
  flags->memory.expert_load = texts.expert_load && flags->rank == 0;
  ShareCores(texts.threads, flags->world * texts.host_groups, UsableCores(), ReadCgroupLimits(""),
             &flags->memory);
  const MemoryLimit host = HostMemoryLimit("");
  flags->memory.host = ShareMemory(host, texts.host_groups);
  return CheckStartMemory(host);
}

}  // namespace

absl::Status ParseShardFlags(int argc, char** argv, ShardFlags* flags, std::string* help_text) {
  Flags parser("weft-shard", "One slice of a model, served to a weft-router");
  ShardFlagValues values;
  DeclareShardFlags(parser, &values);
  WEFT_RETURN_IF_ERROR(parser.Parse(argc, argv, help_text));
  if (!help_text->empty()) return absl::OkStatus();

  if (values.model.empty()) {
    return absl::InvalidArgumentError("--model: name a model directory or a .gguf file");
  }
  flags->model = values.model;
  flags->model_label = values.served_model_name;
  if (const std::vector<std::string> names = ModelNames(values.model);
      flags->model_label.empty() && !names.empty()) {
    flags->model_label = names.front();
  }
  WEFT_RETURN_IF_ERROR(ResolveRank(values, parser.Origin("rank") != "default", flags));
  flags->listen = {values.socket, values.listen, values.tls_cert, values.tls_key, values.tls_ca};
  WEFT_ASSIGN_OR_RETURN(flags->random_weights, ResolveWeights(values.weights));
  WEFT_RETURN_IF_ERROR(CheckDevice(values.device));
  if (values.device_index >= 0) {
    if (values.device == "cpu") {
      return absl::InvalidArgumentError("--device-index: names a GPU, and --device is cpu");
    }
    flags->device_index = static_cast<uint32_t>(values.device_index);
  }
  if (values.metrics_port >= 0) flags->metrics_port = static_cast<uint32_t>(values.metrics_port);
  flags->metrics_host = values.metrics_host;
  if (values.expert_load && flags->rank == 0 && !flags->metrics_port.has_value()) {
    return absl::InvalidArgumentError(
        "--expert-load: is shown by shard 0's /metrics, which has no port: add --metrics-port, or "
        "--shard-metrics-port to weft serve");
  }
  flags->peer_timeout = absl::Seconds(values.peer_timeout_s);
  if (values.cpu_isa != "auto") flags->isa = values.cpu_isa;
  WEFT_ASSIGN_OR_RETURN(flags->log_format, ParseLogFormat(values.log_format));
  flags->log_level = values.log_level;
  flags->watchdog_limit = absl::Seconds(values.watchdog_s);
  flags->die_with_parent = values.die_with_parent;
  flags->load_progress = values.load_progress;
  // A launcher, which alone asks for the progress, has warned already.
  if (!parser.handed() && !values.load_progress) {
    // Those that look like none of these may be meant for the router.
    for (Flags::UnknownVariable& unknown : parser.UnknownVariables(environ)) {
      if (!unknown.near.empty()) flags->unknown_variables.push_back(std::move(unknown));
    }
  }
  // A wrong value is named although there is no GPU: the look for one comes last.
  WEFT_RETURN_IF_ERROR(ResolveCompute(values, values.device == "cuda", flags));
  WEFT_RETURN_IF_ERROR(ResolveDevice(values.device, flags));
  WEFT_RETURN_IF_ERROR(ResolveComm(values, flags));
  return ResolveCompute(values, flags->gpu.has_value(), flags);
}

}  // namespace weft::shard
