#include "deploy/launcher/shard_count.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/model_path.h"
#include "common/status.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cuda/runner.h"
#include "shard/weights/slice_plan.h"

namespace weft::launcher {

absl::Status CheckGpus(const std::string& device, uint32_t shards,
                       absl::FunctionRef<absl::Status(uint32_t index)> find, uint32_t replicas) {
  if (device != "auto" && device != "cuda") return absl::OkStatus();
  for (uint32_t index = 0; index < shards * replicas; ++index) {
    const absl::Status found = find(index);
    if (found.ok()) continue;
    // Shards say themselves that they take the CPU, and why.
    if (index == 0 && device == "auto") return absl::OkStatus();
    if (index > 0 && absl::IsNotFound(found) && replicas > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--replicas ", replicas, ": with --shards ", shards, " they take ", shards * replicas,
          " GPUs, and this host shows ", index, "; use --replicas ", std::max(1u, index / shards),
          ", or --device cpu, or see CUDA_VISIBLE_DEVICES"));
    }
    if (index > 0 && absl::IsNotFound(found)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shards ", shards, ": each shard takes a GPU of its own, and this host shows ", index,
          "; use --shards ", index, ", or --device cpu, or see CUDA_VISIBLE_DEVICES"));
    }
    return Annotate(found, absl::StrCat("--device ", device, " (or use --device cpu)"));
  }
  return absl::OkStatus();
}

namespace {

absl::Status FindGpu(uint32_t index) { return shard::FindCudaDevice({index, index}).status(); }

std::string ReadToEnd(int fd) {
  std::string text;
  char buffer[1024];
  ssize_t count = 0;
  while ((count = read(fd, buffer, sizeof(buffer))) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

// CheckGpus of this host, asked by a process of its own: CUDA's driver keeps devices open and
// memory taken in the process that asks, and the launcher lives longer than any shard.
absl::Status CheckGpusApart(const std::string& device, uint32_t shards, uint32_t replicas) {
  int ends[2];
  // Without descriptors or processes nothing will start: whoever starts the children names it.
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::OkStatus();
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string why(CheckGpus(device, shards, FindGpu, replicas).message());
    // What a reader that is gone misses is missed by nobody.
    const ssize_t ignored = write(ends[1], why.data(), why.size());
    _exit(ignored < 0 ? 1 : 0);
  }
  close(ends[1]);
  const std::string why = ReadToEnd(ends[0]);
  close(ends[0]);
  while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  // One that ended without a word leaves it to the shards to say what is wrong.
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(why);
}

}  // namespace

absl::Status CheckProcessMemory(const MemoryLimit& host, const ServeOptions& options) {
  const uint64_t bytes = options.replicas * shard::HostProcessBytes(options.shards);
  if (host.bytes == 0 || host.bytes >= bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("launcher, router and ", options.all_shards(),
                   options.all_shards() == 1 ? " shard" : " shards", " take ", bytes >> 20,
                   " MiB before they load anything, of ", host.bytes >> 20, " MiB ", host.name,
                   ": raise the limit; `weft inspect MODEL` says what the model takes"));
}

absl::StatusOr<std::unique_ptr<shard::ModelFiles>> OpenModel(const std::string& path,
                                                             const std::string& weights,
                                                             bool serves) {
  if (weights != "file" && weights != "random") {
    return absl::InvalidArgumentError(
        absl::StrCat("--weights: \"", weights, "\" is not one of file, random"));
  }
  const bool random = weights == "random";
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<shard::ModelFiles> files,
      random ? shard::ModelFiles::OpenShape(path) : shard::ModelFiles::Open(path));
  if (serves || !random) WEFT_RETURN_IF_ERROR(CheckTokenizerFile(path));
  return files;
}

absl::Status CheckShardCount(const std::string& model, const ServeOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const auto files, OpenModel(model, options.shard.weights, /*serves=*/true));
  if (options.all_shards() > kWorldMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas ", options.replicas, ": with --shards ", options.shards, " they are ",
        options.all_shards(), " processes; at most ", kWorldMax, " are possible"));
  }
  // One shard has nothing to be cut, and says itself what is wrong with its GPU.
  if (options.all_shards() == 1) return absl::OkStatus();
  for (uint32_t rank = 0; options.shards > 1 && rank < options.shards; ++rank) {
    const absl::StatusOr<shard::SlicePlan> slice =
        shard::MakeSlicePlan(files->spec(), rank, options.shards, files->mlp_multiple());
    if (!slice.ok()) return Annotate(slice.status(), absl::StrCat("--shards: ", model));
    WEFT_RETURN_IF_ERROR(Annotate(files->CheckCuts(*slice), "--shards"));
  }
  if (options.shard.device == "cpu") return absl::OkStatus();
  return CheckGpusApart(options.shard.device, options.shards, options.replicas);
}

}  // namespace weft::launcher
