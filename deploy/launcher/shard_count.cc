#include "deploy/launcher/shard_count.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cuda/runner.h"
#include "shard/weights/loader.h"
#include "shard/weights/slice_plan.h"

namespace weft::launcher {

absl::Status CheckGpus(const std::string& device, uint32_t shards,
                       absl::FunctionRef<absl::Status(uint32_t index)> find) {
  if (device != "auto" && device != "cuda") return absl::OkStatus();
  for (uint32_t index = 0; index < shards; ++index) {
    const absl::Status found = find(index);
    if (found.ok()) continue;
    // Shards say themselves that they take the CPU, and why.
    if (index == 0 && device == "auto") return absl::OkStatus();
    if (index > 0 && absl::IsNotFound(found)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shards ", shards, ": each shard takes a GPU of its own, and this host shows ", index,
          "; use --shards ", index, ", or --device cpu, or see CUDA_VISIBLE_DEVICES"));
    }
    return Annotate(found, absl::StrCat("--device ", device, " (or use --device cpu)"));
  }
  return absl::OkStatus();
}

absl::Status CheckShardCount(const std::string& model, const ServeOptions& options) {
  // One shard has nothing to be cut, and says itself what is wrong with its GPU.
  if (options.shards == 1) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const auto files, options.shard.weights == "random"
                                              ? shard::ModelFiles::OpenShape(model)
                                              : shard::ModelFiles::Open(model));
  const absl::StatusOr<shard::SlicePlan> slice =
      shard::MakeSlicePlan(files->spec(), 0, options.shards, files->mlp_multiple());
  if (!slice.ok()) return Annotate(slice.status(), absl::StrCat("--shards: ", model));
  return CheckGpus(options.shard.device, options.shards, [](uint32_t index) {
    return shard::FindCudaDevice({index, index}).status();
  });
}

}  // namespace weft::launcher
