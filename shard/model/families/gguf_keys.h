// GGUF metadata of one architecture with checked access: every error names file and key. Made and
// read by a family's code while a model is opened, by one thread; knows no family.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf.h"

namespace weft::shard {

// Keys "<architecture>.<name>", called by `name`; a view of the file.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, absl::string_view architecture)
      : file_(file), architecture_(architecture) {}

  const GgufFile& file() const { return file_; }
  bool Has(absl::string_view name) const { return file_.Has(Key(name)); }
  // An integer that fits uint32; NOT_FOUND when absent, INVALID_ARGUMENT for another type or a
  // larger one. …Or gives `otherwise` when absent.
  absl::StatusOr<uint32_t> Uint(absl::string_view name) const;
  absl::StatusOr<uint32_t> UintOr(absl::string_view name, uint32_t otherwise) const;
  absl::StatusOr<float> Float(absl::string_view name) const;
  absl::StatusOr<float> FloatOr(absl::string_view name, float otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view name, bool otherwise) const;

  std::string Key(absl::string_view name) const;
  // "<file>: <key>".
  std::string Where(absl::string_view name) const;
  // INVALID_ARGUMENT "<file>: <key>: <what>".
  absl::Status Bad(absl::string_view name, absl::string_view what) const;

 private:
  const GgufFile& file_;
  absl::string_view architecture_;
};

// The integer under a whole key, with the errors of GgufKeys::Uint.
absl::StatusOr<uint32_t> GgufUint(const GgufFile& file, const std::string& key);

}  // namespace weft::shard
