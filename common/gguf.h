// Reader of GGUF files (versions 2 and 3): metadata and tensor table, validated before use. A model
// may be split over several files (common/gguf_parts.h): any of them opens all. The files are
// memory-mapped read-only; views point into the maps and live as long as the GgufFile. Used
// by the shard (weights, config) and by the router (tokenizer, chat template). Thread-safe after
// Open; never reads tensor data by itself. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
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
  // The tensor's bytes in the map of `file`, which the GgufFile owns.
  absl::Span<const uint8_t> data;
  const MappedFile* file = nullptr;
};

class GgufFile {
 public:
  // Maps and validates `path`: magic, version, counts, string and array bounds, alignment, types,
  // dims, offsets inside the file, no overlaps. Of a split model all parts, whichever `path` names;
  // NOT_FOUND names the one that is missing. Errors name file, key or tensor, expected and found.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  ~GgufFile();

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // Of a split model the first part's.
  const std::string& path() const;

  // Metadata; of a split model the first part's. NOT_FOUND when the key is absent, INVALID_ARGUMENT
  // when it has another type; both name file and key. Integers of any width and sign convert when
  // the value fits.
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

  // Tells the kernel that the maps' pages are not needed for now; they are read again on use.
  void DropPages() const;

 private:
  struct Impl;
  explicit GgufFile(std::vector<std::unique_ptr<Impl>> parts);
  const Impl& metadata() const;
  // Tables of all parts in one; refuses parts that do not belong together.
  absl::Status Join();

  // The first one holds the metadata.
  std::vector<std::unique_ptr<Impl>> parts_;
  std::vector<GgufTensor> tensors_;
  // Index into `tensors_`; keys view the tensors' names.
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;
};

}  // namespace weft
