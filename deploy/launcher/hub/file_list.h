// A hub's list of a model's files, and its checks: whatever a hub says is hostile until it has
// passed here. The format is the answer of GET /api/models/{id}/revision/{revision}?blobs=true.
// Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft::hub {

// What a file is called in the cache, and what its bytes are held against.
struct BlobName {
  enum class Kind {
    // SHA-256 of the bytes: files in large-file storage.
    kSha256,
    // SHA-1 of git's blob: all others.
    kGitBlob,
    // Something else that a server calls the version by: nothing to check bytes against.
    kOpaque,
  };
  Kind kind = Kind::kOpaque;
  std::string text;

  bool empty() const { return text.empty(); }
};

// Of an ETag or a digest, in whatever quotes. INVALID_ARGUMENT when it cannot be a file's name.
absl::StatusOr<BlobName> ParseBlobName(absl::string_view text);

struct HubFile {
  // In the repository, '/' between its parts.
  std::string path;
  // Neither is there when the list did not say: then the file's own headers do.
  absl::optional<uint64_t> bytes;
  BlobName blob;
};

struct ModelFileList {
  // 40 digits.
  std::string commit;
  std::vector<HubFile> files;
};

// OK when `path` may be made below a directory: relative, no part empty, ".", ".." or too long, no
// control characters, valid UTF-8. INVALID_ARGUMENT shows it escaped.
absl::Status CheckRepositoryPath(absl::string_view path);

// INVALID_ARGUMENT says what is wrong with the list.
absl::StatusOr<ModelFileList> ParseFileList(absl::string_view json);

// The files that hold the weights, by `model.safetensors.index.json`: without repetition, sorted.
absl::StatusOr<std::vector<std::string>> ParseSafetensorsIndex(absl::string_view json);

// Text from outside for people to read: control characters escaped, cut.
std::string Shown(absl::string_view text);

}  // namespace weft::hub
