#include "shard/device/cuda/local_device.h"

#include "absl/strings/str_cat.h"

namespace weft::shard {

absl::StatusOr<uint32_t> LocalGpu(const GpuChoice& choice, uint32_t visible) {
  if (visible == 0) return absl::NotFoundError("this process sees no GPU");
  if (!choice.index.has_value()) return choice.rank % visible;
  if (*choice.index < visible) return *choice.index;
  return absl::NotFoundError(
      absl::StrCat("--device-index ", *choice.index, ": this process sees ", visible,
                   visible == 1 ? " GPU" : " GPUs", "; name one of 0 .. ", visible - 1,
                   ", use as many shards as there are GPUs, or see CUDA_VISIBLE_DEVICES"));
}

}  // namespace weft::shard
