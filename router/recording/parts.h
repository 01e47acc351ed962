// The files of a recording: their names, and their frames as part_writer.h lays them out. Reading
// waits for the disk and takes nothing on trust; it is for commands, not for serving.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mapped_file.h"

namespace weft::router::recording {

inline constexpr absl::string_view kMagic = "weftrec";
inline constexpr size_t kMagicBytes = 8;
inline constexpr size_t kFrameHeadBytes = 12;

struct Part {
  uint64_t number = 0;
  std::string path;
  uint64_t bytes = 0;
};

// The first bytes of a part in this format.
std::string PartMagic();
// Appends a frame around `payload`, which has fewer than 4 GiB.
void AppendFrame(absl::string_view payload, std::string* out);

std::string PartPath(const std::string& path, uint64_t number);
// The parts of the recordings at `path`, by number; maybe none. NOT_FOUND and so on when its
// directory cannot be read.
absl::StatusOr<std::vector<Part>> FindParts(const std::string& path);

// The frames of one part, in order.
class PartReader {
 public:
  // INVALID_ARGUMENT when it is no part, or one of another format. Messages begin with the path.
  static absl::StatusOr<PartReader> Open(const std::string& path);

  // The next payload, valid while this lives. OUT_OF_RANGE at the end of the part; DATA_LOSS when
  // it is cut or damaged, with the place.
  absl::StatusOr<absl::string_view> Next();

 private:
  explicit PartReader(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  size_t place_ = kMagicBytes;
};

}  // namespace weft::router::recording
