// Reader of GGUF files (versions 2 and 3): metadata and tensor table, validated before use. The
// file is memory-mapped read-only; views point into the map and live as long as the GgufFile. Used
// by the shard (weights, config) and by the router (tokenizer, chat template). Thread-safe after
// Open; never reads tensor data by itself. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mapped_file.h"
#include "common/tensor_type.h"

namespace weft {

struct GgufTensor {
  std::string name;
  // Innermost first: dims[0] = inputs, dims[1] = outputs.
  std::vector<uint64_t> dims;
  TensorType type;
  // The tensor's bytes in the map.
  absl::Span<const uint8_t> data;
};

class GgufFile {
 public:
  // Maps and validates `path`: magic, version, counts, string and array bounds, alignment, types,
  // dims, offsets inside the file, no overlaps. Errors name file, key or tensor, expected and
  // found.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  ~GgufFile();

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const;
  // The map that all views point into.
  const MappedFile& file() const;

  // Metadata. NOT_FOUND when the key is absent, INVALID_ARGUMENT when it has another type; both
  // name file and key. Integers of any width and sign convert when the value fits.
  bool Has(absl::string_view key) const;
  absl::StatusOr<uint64_t> GetUint(absl::string_view key) const;
  absl::StatusOr<double> GetFloat(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;
  absl::StatusOr<std::vector<absl::string_view>> GetStrings(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloats(absl::string_view key) const;

  absl::Span<const GgufTensor> tensors() const;
  // Null when there is none of that name.
  const GgufTensor* FindTensor(absl::string_view name) const;

  // Tells the kernel that the map's pages are not needed for now; they are read again on use.
  void DropPages() const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
