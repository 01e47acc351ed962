// Reader of one .safetensors file: header parsed and wholly validated before any tensor is used;
// tensor bytes are never read here. Used while a model is opened, by one thread. Format:
// https://github.com/huggingface/safetensors#format - eight bytes of header length, a JSON object,
// then the tensors' bytes without holes.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "shard/weights/tensor_view.h"

namespace weft::shard {

class SafetensorsFile {
 public:
  // INVALID_ARGUMENT naming file, tensor, expected and found for a damaged header: size, JSON,
  // names that appear twice, dtypes other than F32, F16 and BF16, byte ranges that do not fit the
  // shape, lie outside the file, overlap or leave holes.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  // In the order of their bytes.
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  absl::Status Parse();

  MappedFile file_;
  std::vector<TensorView> tensors_;
};

}  // namespace weft::shard
