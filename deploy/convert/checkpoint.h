// The .bin files of a model directory: pytorch_model.bin, or the parts that
// pytorch_model.bin.index.json lists. All are opened and checked, and their tensors put together,
// before anything is written. Used by `weft convert`, one thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/convert/safetensors_writer.h"
#include "deploy/convert/torch_file.h"

namespace weft::convert {

class Checkpoint {
 public:
  // INVALID_ARGUMENT or NOT_FOUND naming the file: what TorchFile refuses, parts that are missing
  // or lie elsewhere, tensors that the index has and its part has not, names in two parts, and
  // tensors that together ask for several times the bytes of the files.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // In the order of the parts; views live as long as the checkpoint.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  // Of all tensors, shared storages counted for each.
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status AddFile(const std::string& path);
  absl::Status AddIndex(const std::string& directory, const std::string& index_path);
  absl::Status CheckTogether(const std::string& directory);

  std::vector<std::unique_ptr<TorchFile>> files_;
  std::vector<SourceTensor> tensors_;
  uint64_t bytes_ = 0;
};

}  // namespace weft::convert
