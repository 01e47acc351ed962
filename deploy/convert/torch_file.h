// A checkpoint as torch.save wrote it: names, shapes and storages of its tensors, all checked
// before any of them is used. Both formats: the zip archive of torch 1.6 and later, and the row of
// pickles before it. Bytes of tensors are never read here. Used by `weft convert`, one thread.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mapped_file.h"
#include "deploy/convert/strided_view.h"
#include "deploy/convert/torch_type.h"
#include "deploy/convert/unpickler.h"

namespace weft::convert {

struct TorchTensor {
  std::string name;
  const TorchType* type = nullptr;
  StridedView view;
  // The whole storage, which other tensors may share.
  absl::Span<const uint8_t> storage;
};

class TorchFile {
 public:
  // INVALID_ARGUMENT naming file, tensor, expected and found for all that is no checkpoint of
  // tensors alone: a damaged archive, a pickle that names anything else (see Unpickler), values
  // that are no tensors, names that appear twice, tensors that do not lie in their storage.
  static absl::StatusOr<std::unique_ptr<TorchFile>> Open(const std::string& path);

  // In the order of the checkpoint.
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }

 private:
  explicit TorchFile(MappedFile file) : file_(std::move(file)) {}
  absl::Status Parse();
  absl::Status ParseArchive();
  absl::Status ParseLegacy();
  // Takes the tensors of the dictionary `top`; storages[i] are the bytes of pickle.storages()[i].
  absl::Status Take(const Unpickler& pickle, const PickleValue& top,
                    const std::vector<absl::Span<const uint8_t>>& storages);

  MappedFile file_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace weft::convert
