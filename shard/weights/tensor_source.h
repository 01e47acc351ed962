// All tensors of a model under one roof, whichever files they come from: name, type, shape, bytes.
// Made while a model is opened; read-only and thread-safe afterwards. Knows no family and reads no
// tensor bytes.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf.h"
#include "shard/weights/safetensors.h"
#include "shard/weights/tensor_view.h"

namespace weft::shard {

class TensorSource {
 public:
  // model.safetensors of `directory`, or the parts that model.safetensors.index.json lists (only
  // the tensors that the index names count).
  static absl::StatusOr<std::unique_ptr<TensorSource>> OpenDirectory(const std::string& directory);
  static std::unique_ptr<TensorSource> FromGguf(std::unique_ptr<GgufFile> file);

  // Directory or file, for messages.
  const std::string& path() const { return path_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Null when there is none of that name.
  const TensorView* Find(absl::string_view name) const;

 private:
  TensorSource() = default;
  absl::Status AddIndex(const std::string& index_path);
  void BuildIndex();

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> parts_;
  std::unique_ptr<GgufFile> gguf_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace weft::shard
