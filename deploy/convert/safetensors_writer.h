// Writes one .safetensors file: header, then the tensors without holes, those of wide elements
// first so that each lies at a multiple of its element. Streams from the files that are mapped:
// pages are dropped behind the copy, so that memory does not grow with the model (of a view with
// strides the pages stay until its end, and are the page cache's). Used by `weft convert`, one
// thread. Format: https://github.com/huggingface/safetensors#format

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "deploy/convert/torch_file.h"

namespace weft::convert {

// A tensor and the file that its storage lies in.
struct SourceTensor {
  const TorchTensor* tensor = nullptr;
  const MappedFile* file = nullptr;
};

// Bytes of the header that WriteSafetensors writes in front of `tensors`.
uint64_t HeaderBytes(const std::vector<SourceTensor>& tensors);

// Writes all of `tensors` to the descriptor `fd`, at its position. `between` is asked after each
// few MiB whether to go on: its error ends the writing. Errors of the disk name no file: the caller
// knows it.
absl::Status WriteSafetensors(int fd, const std::vector<SourceTensor>& tensors,
                              absl::FunctionRef<absl::Status()> between);

// All of `bytes`.
absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes);

}  // namespace weft::convert
