// The rows of each expert on a GPU: a small array that a kernel behind the routing adds to, and
// which is copied to the host when somebody reads, on a stream of its own. No step ever waits for
// that. Made and detached by the model runner, whose workspace holds the array; read by any thread
// but the device thread.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/runtime/stream.h"
#include "shard/expert_load.h"
#include "shard/model/decoder_spec.h"

namespace weft::shard {

class CudaExpertCounts : public ExpertLoad {
 public:
  // Of the current device; `counts` is [layers, experts] there, until Detach.
  static absl::StatusOr<std::shared_ptr<CudaExpertCounts>> Create(const DecoderSpec& spec,
                                                                  const uint64_t* counts);

  absl::StatusOr<std::vector<uint64_t>> Read() override;
  // The array is about to be freed. From here on Read gives what it held. REQUIRES: no step runs.
  void Detach();

 private:
  CudaExpertCounts(const DecoderSpec& spec, const uint64_t* counts)
      : ExpertLoad(spec.LayersWithExperts(), spec.experts.count), counts_(counts) {}
  // Brings last_ up to date. REQUIRES: mutex_.
  absl::Status Fetch();

  int device_ = 0;
  CudaStream stream_;
  // Not absl's: ThreadSanitizer cannot see inside a packaged library.
  std::mutex mutex_;
  // Null when detached.
  const uint64_t* counts_;
  // The array of all layers on the host; while copying_ the device writes it.
  PinnedBuffer copy_;
  bool copying_ = false;
  std::vector<uint64_t> last_;
};

}  // namespace weft::shard
