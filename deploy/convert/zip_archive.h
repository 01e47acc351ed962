// Directory of a zip file whose entries are stored as they are, as torch.save writes them: names
// and where their bytes lie, zip64 included. Nothing is unpacked and no name becomes a path.
// Checksums are not compared: torch can be told to leave them out. Used while a checkpoint is
// opened, by one thread; views live as long as the bytes.
// Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT

#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::convert {

struct ZipEntry {
  absl::string_view name;
  absl::Span<const uint8_t> data;
};

class ZipArchive {
 public:
  // Whether `bytes` begin as a zip file does.
  static bool Looks(absl::Span<const uint8_t> bytes);

  // INVALID_ARGUMENT, with the entry's name where there is one, for a directory that is cut or
  // damaged, names that appear twice, packed or encrypted entries, and entries that lie outside
  // the file, inside its directory or over each other.
  static absl::StatusOr<ZipArchive> Parse(absl::Span<const uint8_t> bytes);

  // In the order of the directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Null when there is none.
  const ZipEntry* Find(absl::string_view name) const;

 private:
  ZipArchive() = default;

  std::vector<ZipEntry> entries_;
  absl::flat_hash_map<absl::string_view, size_t> by_name_;
};

}  // namespace weft::convert
