#include "shard/device/cuda/expert_counts.h"

#include <algorithm>
#include <thread>

#include "absl/time/clock.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

constexpr absl::Duration kCopyMax = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::shared_ptr<CudaExpertCounts>> CudaExpertCounts::Create(const DecoderSpec& spec,
                                                                           const uint64_t* counts) {
  std::shared_ptr<CudaExpertCounts> made(new CudaExpertCounts(spec, counts));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&made->device_), "current device"));
  WEFT_ASSIGN_OR_RETURN(made->stream_, MakeStream());
  const uint64_t bytes = uint64_t{spec.layers} * spec.experts.count * sizeof(uint64_t);
  WEFT_ASSIGN_OR_RETURN(made->copy_, AllocatePinned(bytes, "rows of experts"));
  made->last_.resize(made->layers().size() * made->experts());
  return made;
}

absl::Status CudaExpertCounts::Fetch() {
  // Each thread has a current device of its own.
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "choosing the device"));
  // A copy that was late is waited for, and not begun again.
  if (!copying_) {
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(copy_.data(), counts_, copy_.bytes(),
                                                    cudaMemcpyDeviceToHost, stream_.get()),
                                    "copy of experts' rows"));
    copying_ = true;
  }
  const absl::Time deadline = absl::Now() + kCopyMax;
  cudaError_t state = cudaStreamQuery(stream_.get());
  for (; state == cudaErrorNotReady; state = cudaStreamQuery(stream_.get())) {
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("the device gave no copy of experts' rows in a second");
    }
    std::this_thread::yield();
  }
  copying_ = false;
  WEFT_RETURN_IF_ERROR(CudaStatus(state, "copy of experts' rows"));
  const auto* const all = reinterpret_cast<const uint64_t*>(copy_.data());
  for (size_t place = 0; place < layers().size(); ++place) {
    std::copy_n(all + size_t{layers()[place]} * experts(), experts(),
                last_.begin() + static_cast<ptrdiff_t>(place * experts()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> CudaExpertCounts::Read() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (counts_ != nullptr) WEFT_RETURN_IF_ERROR(Fetch());
  return last_;
}

void CudaExpertCounts::Detach() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Of a device that is lost the numbers of the last reading stay.
  Fetch().IgnoreError();
  counts_ = nullptr;
}

}  // namespace weft::shard
