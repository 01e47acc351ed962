#include "deploy/convert/zip_archive.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "deploy/convert/little_endian.h"

namespace weft::convert {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr uint32_t kEntryMagic = 0x02014b50;
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocatorMagic = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kEntryBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kCommentBytesMax = 65535;
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kEncrypted = 1;
// "The true number is in the zip64 field."
constexpr uint32_t kIn64 = 0xffffffff;
// A checkpoint has an entry for each storage and some five more.
constexpr uint64_t kEntriesMax = 1u << 18;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat(parts..., "; the file is truncated or damaged: copy or download it again"));
}

// Where the directory lies.
struct Directory {
  uint64_t at = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

absl::StatusOr<size_t> FindEnd(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kEndBytes) return Bad("is too short for a zip file");
  const size_t last = bytes.size() - kEndBytes;
  const size_t first = last > kCommentBytesMax ? last - kCommentBytesMax : 0;
  for (size_t at = last + 1; at-- > first;) {
    if (LittleEndian<uint32_t>(bytes.data() + at) == kEndMagic) return at;
  }
  return Bad("has no directory at its end, as every zip file has");
}

absl::StatusOr<Directory> FindDirectory(absl::Span<const uint8_t> bytes) {
  WEFT_ASSIGN_OR_RETURN(const size_t end, FindEnd(bytes));
  const uint8_t* record = bytes.data() + end;
  Directory found = {LittleEndian<uint32_t>(record + 16), LittleEndian<uint32_t>(record + 12),
                     LittleEndian<uint16_t>(record + 10)};
  uint64_t limit = end;
  const bool has_locator =
      end >= kLocatorBytes && LittleEndian<uint32_t>(record - kLocatorBytes) == kLocatorMagic;
  if (has_locator) {
    const uint64_t at = LittleEndian<uint64_t>(record - kLocatorBytes + 8);
    if (end < kLocatorBytes + kEnd64Bytes || at > end - kLocatorBytes - kEnd64Bytes ||
        LittleEndian<uint32_t>(bytes.data() + at) != kEnd64Magic) {
      return Bad("its zip64 directory is not where the end of the file says");
    }
    record = bytes.data() + at;
    found = {LittleEndian<uint64_t>(record + 48), LittleEndian<uint64_t>(record + 40),
             LittleEndian<uint64_t>(record + 32)};
    limit = at;
  }
  if (found.at > limit || found.bytes > limit - found.at) {
    return Bad("its directory of ", found.bytes, " bytes at ", found.at, " lies outside the file");
  }
  if (found.entries > kEntriesMax || found.entries > found.bytes / kEntryBytes) {
    return Bad("its directory of ", found.bytes, " bytes claims ", found.entries,
               " entries (at most ", kEntriesMax, ")");
  }
  return found;
}

// One entry as the directory tells it.
struct Told {
  absl::string_view name;
  uint64_t bytes = 0;
  uint64_t packed_bytes = 0;
  uint64_t header_at = 0;
};

// Replaces numbers that did not fit into 32 bits by those of the zip64 field in `extra`.
bool ReadZip64(absl::Span<const uint8_t> extra, Told* told) {
  if (told->bytes != kIn64 && told->packed_bytes != kIn64 && told->header_at != kIn64) return true;
  ByteCursor cursor(extra);
  while (true) {
    const auto kind = cursor.Number<uint16_t>();
    const auto size = cursor.Number<uint16_t>();
    if (!kind.has_value() || !size.has_value()) return false;
    const auto field = cursor.Bytes(*size);
    if (!field.has_value()) return false;
    if (*kind != kZip64Field) continue;
    ByteCursor numbers(*field);
    for (uint64_t* number : {&told->bytes, &told->packed_bytes, &told->header_at}) {
      if (*number != kIn64) continue;
      const auto whole = numbers.Number<uint64_t>();
      if (!whole.has_value()) return false;
      *number = *whole;
    }
    return true;
  }
}

absl::StatusOr<Told> ReadEntry(ByteCursor* cursor) {
  const auto fixed = cursor->Bytes(kEntryBytes);
  if (!fixed.has_value() || LittleEndian<uint32_t>(fixed->data()) != kEntryMagic) {
    return Bad("its directory is damaged");
  }
  const uint8_t* const record = fixed->data();
  const auto name = cursor->Bytes(LittleEndian<uint16_t>(record + 28));
  const auto extra = cursor->Bytes(LittleEndian<uint16_t>(record + 30));
  const auto comment = cursor->Bytes(LittleEndian<uint16_t>(record + 32));
  if (!name.has_value() || !extra.has_value() || !comment.has_value()) {
    return Bad("its directory is cut");
  }
  Told told = {AsText(*name), LittleEndian<uint32_t>(record + 24),
               LittleEndian<uint32_t>(record + 20), LittleEndian<uint32_t>(record + 42)};
  const std::string shown = absl::CHexEscape(told.name);
  if (!ReadZip64(*extra, &told)) return Bad("entry ", shown, ": has no zip64 sizes");
  const uint16_t flags = LittleEndian<uint16_t>(record + 8);
  const uint16_t method = LittleEndian<uint16_t>(record + 10);
  if ((flags & kEncrypted) != 0 || method != 0 || told.bytes != told.packed_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", shown, ": is packed or encrypted, which torch.save never does"));
  }
  return told;
}

// The bytes of `told`; *end is where they end in the file.
absl::StatusOr<absl::Span<const uint8_t>> DataOf(absl::Span<const uint8_t> bytes,
                                                 uint64_t directory_at, const Told& told) {
  const std::string shown = absl::CHexEscape(told.name);
  if (told.header_at > directory_at || directory_at - told.header_at < kLocalBytes) {
    return Bad("entry ", shown, ": begins at byte ", told.header_at,
               ", behind the file's contents, which end at ", directory_at);
  }
  const uint8_t* const header = bytes.data() + told.header_at;
  const uint64_t name_bytes = LittleEndian<uint16_t>(header + 26);
  const uint64_t skipped = kLocalBytes + name_bytes + LittleEndian<uint16_t>(header + 28);
  const uint64_t room = directory_at - told.header_at;
  if (LittleEndian<uint32_t>(header) != kLocalMagic || skipped > room ||
      AsText({header + kLocalBytes, name_bytes}) != told.name) {
    return Bad("entry ", shown, ": is not at byte ", told.header_at,
               ", where the directory has it");
  }
  if (told.bytes > room - skipped) {
    return Bad("entry ", shown, ": claims ", told.bytes, " bytes of the ", room - skipped,
               " that lie before the directory");
  }
  return bytes.subspan(told.header_at + skipped, told.bytes);
}

// Entries over each other would make few bytes many.
absl::Status CheckApart(std::vector<std::pair<const uint8_t*, const ZipEntry*>> headers) {
  std::sort(headers.begin(), headers.end());
  for (size_t i = 1; i < headers.size(); ++i) {
    const ZipEntry& before = *headers[i - 1].second;
    if (headers[i].first >= before.data.data() + before.data.size()) continue;
    return Bad("entries ", absl::CHexEscape(before.name), " and ",
               absl::CHexEscape(headers[i].second->name), " overlap");
  }
  return absl::OkStatus();
}

}  // namespace

bool ZipArchive::Looks(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(uint32_t) && LittleEndian<uint32_t>(bytes.data()) == kLocalMagic;
}

absl::StatusOr<ZipArchive> ZipArchive::Parse(absl::Span<const uint8_t> bytes) {
  WEFT_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes));
  ByteCursor cursor(bytes.subspan(directory.at, directory.bytes));
  ZipArchive archive;
  std::vector<const uint8_t*> headers;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    WEFT_ASSIGN_OR_RETURN(const Told told, ReadEntry(&cursor));
    WEFT_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> data, DataOf(bytes, directory.at, told));
    if (!archive.by_name_.emplace(told.name, archive.entries_.size()).second) {
      return Bad("entry ", absl::CHexEscape(told.name), " appears twice");
    }
    archive.entries_.push_back({told.name, data});
    headers.push_back(bytes.data() + told.header_at);
  }
  std::vector<std::pair<const uint8_t*, const ZipEntry*>> placed;
  for (size_t i = 0; i < headers.size(); ++i) placed.emplace_back(headers[i], &archive.entries_[i]);
  WEFT_RETURN_IF_ERROR(CheckApart(std::move(placed)));
  return archive;
}

const ZipEntry* ZipArchive::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace weft::convert
