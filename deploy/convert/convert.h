// weft convert: gives a model directory what serving needs and it lacks, safetensors from .bin
// checkpoints and a tokenizer.json from older files. All that it reads is data: no pickle is run.
// Called by the command and by tests, one thread; waits for the disk.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::convert {

inline constexpr uint64_t kPartBytesDefault = uint64_t{5} << 30;

struct ConvertOptions {
  std::string from = {};
  // Empty = `from` itself, to which the files are added.
  std::string to = {};
  // Most bytes of tensors in a file.
  uint64_t part_bytes = kPartBytesDefault;
};

// Names of the files that were written, in their order; empty when the directory lacked nothing.
// Nothing is overwritten, and on an error nothing is left behind. `say` gets lines on the way;
// `between` is asked every few MiB whether to go on, and its error ends the conversion.
absl::StatusOr<std::vector<std::string>> Convert(const ConvertOptions& options,
                                                 absl::FunctionRef<void(const std::string&)> say,
                                                 absl::FunctionRef<absl::Status()> between);

}  // namespace weft::convert
