// How many rows each expert of each layer has got, counted on demand (--expert-load): what a
// device's runner makes and /metrics shows. Outlives the runner; any thread but those that run
// steps reads it.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::shard {

class ExpertLoad {
 public:
  virtual ~ExpertLoad() = default;

  // The layers that have experts, ascending, and how many each of them has.
  const std::vector<uint32_t>& layers() const { return layers_; }
  uint32_t experts() const { return experts_; }

  // Rows since the start of the process, those of warm-ups left out: of layers()[i] and expert e at
  // i * experts() + e. None ever falls. May wait for a copy from the device, at most a second:
  // DEADLINE_EXCEEDED then.
  virtual absl::StatusOr<std::vector<uint64_t>> Read() = 0;

 protected:
  ExpertLoad(std::vector<uint32_t> layers, uint32_t experts)
      : layers_(std::move(layers)), experts_(experts) {}

 private:
  const std::vector<uint32_t> layers_;
  const uint32_t experts_;
};

}  // namespace weft::shard
