// All GPUs that this process sees, and the libraries that shards use on them, for `weft doctor`:
// what is there, whether the kernels run on it, what memory is free and who reaches whose. Asking
// opens every GPU, for as long as the process lives. This header knows nothing of CUDA: a build
// without it has the same function, which says so.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft::shard {

struct SurveyedGpu {
  // As "NVIDIA H200".
  std::string name;
  // FindCudaDevice's answer: whether the kernels run on it.
  absl::Status serves;
  uint64_t total_bytes = 0;
  // By CUDA itself and by others.
  uint64_t used_bytes = 0;
  // Indexes of GPUs whose memory it cannot reach by itself.
  std::vector<uint32_t> out_of_reach;
};

struct GpuSurvey {
  // Why there is no GPU to use at all: no driver, one that is too old, none to be seen, or a build
  // without CUDA (UNIMPLEMENTED). OK with at least one GPU below.
  absl::Status any;
  // Versions of CUDA, as "13.0": what the driver serves, and what this build was made with.
  std::string driver_cuda;
  std::string build_cuda;
  // Versions and files of what was loaded, as "NCCL 2.28.9 (/usr/lib/libnccl.so.2)".
  std::vector<std::string> libraries;
  std::vector<SurveyedGpu> gpus;
};

GpuSurvey SurveyGpus();

}  // namespace weft::shard
