#include "deploy/convert/safetensors_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "boost/json.hpp"
#include "common/status.h"
#include "deploy/convert/little_endian.h"

namespace weft::convert {
namespace {

// A multiple of every element and of a page.
constexpr size_t kPieceBytes = 4u << 20;
constexpr size_t kHeaderAlignment = 8;

std::vector<SourceTensor> InFileOrder(std::vector<SourceTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.tensor->type->bytes > b.tensor->type->bytes;
  });
  return tensors;
}

// With its length in front, padded by blanks so that the data begin at a multiple of eight.
std::string Header(const std::vector<SourceTensor>& tensors) {
  // Readers of other projects ask for this before they take a file for torch's.
  std::string text = "{\"__metadata__\":{\"format\":\"pt\"}";
  uint64_t at = 0;
  for (const SourceTensor& source : tensors) {
    const TorchTensor& tensor = *source.tensor;
    const uint64_t bytes = tensor.view.bytes();
    absl::StrAppend(&text, ",", boost::json::serialize(boost::json::string(tensor.name)),
                    ":{\"dtype\":\"", tensor.type->safetensors_name, "\",\"shape\":[",
                    absl::StrJoin(tensor.view.shape, ","), "],\"data_offsets\":[", at, ",",
                    at + bytes, "]}");
    at += bytes;
  }
  text += "}";
  while (text.size() % kHeaderAlignment != 0) text += ' ';
  uint64_t size = text.size();
  std::string header(reinterpret_cast<const char*>(&size), sizeof(size));
  return header + text;
}

}  // namespace

uint64_t HeaderBytes(const std::vector<SourceTensor>& tensors) {
  return Header(InFileOrder(tensors)).size();
}

absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(int fd, const std::vector<SourceTensor>& tensors,
                              absl::FunctionRef<absl::Status()> between) {
  const std::vector<SourceTensor> ordered = InFileOrder(tensors);
  const std::string header = Header(ordered);
  WEFT_RETURN_IF_ERROR(
      WriteAll(fd, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  for (const SourceTensor& source : ordered) {
    const TorchTensor& tensor = *source.tensor;
    const absl::Span<const uint8_t> extent = tensor.view.Extent(tensor.storage);
    const bool straight = tensor.view.contiguous();
    const auto write_piece = [&](absl::Span<const uint8_t> piece) -> absl::Status {
      // Read in here, an error of the disk is an error; on touch it would be a signal.
      if (straight) WEFT_RETURN_IF_ERROR(source.file->Populate(piece));
      WEFT_RETURN_IF_ERROR(WriteAll(fd, piece));
      if (straight) source.file->Drop(piece);
      return between();
    };
    // Rows of a view with strides come from everywhere in its extent.
    if (!straight) WEFT_RETURN_IF_ERROR(source.file->Populate(extent));
    WEFT_RETURN_IF_ERROR(
        Annotate(VisitElements(tensor.view, tensor.storage, kPieceBytes, write_piece),
                 absl::StrCat("tensor ", absl::CHexEscape(tensor.name))));
    source.file->Drop(extent);
  }
  return absl::OkStatus();
}

}  // namespace weft::convert
