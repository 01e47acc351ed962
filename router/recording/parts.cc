#include "router/recording/parts.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/fnv.h"
#include "common/status.h"
#include "router/recording/records.h"

namespace weft::router::recording {
namespace {

void AppendLittleEndian(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

uint64_t Checksum(absl::string_view length, absl::string_view payload) {
  Fnv1a<uint64_t> hash;
  hash.AddBytes(length);
  hash.AddBytes(payload);
  return hash.value();
}

}  // namespace

std::string PartMagic() {
  return absl::StrCat(kMagic, std::string(1, static_cast<char>('0' + kFormat)));
}

void AppendFrame(absl::string_view payload, std::string* out) {
  std::string length;
  AppendLittleEndian(payload.size(), 4, &length);
  *out += length;
  AppendLittleEndian(Checksum(length, payload), 8, out);
  out->append(payload.data(), payload.size());
}

std::string PartPath(const std::string& path, uint64_t number) {
  return absl::StrCat(path, ".", number);
}

absl::StatusOr<std::vector<Part>> FindParts(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string begin = absl::StrCat(path.substr(slash + 1), ".");
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot list ", folder));
  const auto close = absl::MakeCleanup([entries] { closedir(entries); });
  std::vector<Part> parts;
  while (const dirent* const entry = readdir(entries)) {
    absl::string_view name = entry->d_name;
    Part part;
    if (!absl::StartsWith(name, begin)) continue;
    const absl::string_view digits = name.substr(begin.size());
    if (!absl::SimpleAtoi(digits, &part.number) || digits != absl::StrCat(part.number)) continue;
    part.path = PartPath(path, part.number);
    struct stat info {};
    // A link that leads nowhere is there and has its number; what is gone meanwhile is not.
    if (stat(part.path.c_str(), &info) != 0 && lstat(part.path.c_str(), &info) != 0) continue;
    part.bytes = static_cast<uint64_t>(info.st_size);
    parts.push_back(std::move(part));
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.number < b.number; });
  return parts;
}

absl::StatusOr<PartReader> PartReader::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const absl::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
  if (bytes.size() < kMagicBytes || !absl::StartsWith(bytes, kMagic)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no part of a recording that weft made with --record"));
  }
  if (bytes.substr(0, kMagicBytes) != PartMagic()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has format ", bytes.substr(kMagic.size(), 1), "; this build reads ",
                     kFormat, ": replay it with the build that recorded it"));
  }
  return PartReader(std::move(file));
}

absl::StatusOr<absl::string_view> PartReader::Next() {
  const absl::string_view bytes(reinterpret_cast<const char*>(file_.bytes().data()),
                                file_.bytes().size());
  const absl::string_view rest = bytes.substr(place_);
  if (rest.empty()) return absl::OutOfRangeError("the end");
  const auto cut = [&] {
    return absl::DataLossError(absl::StrCat(file_.path(), " is cut: it ends at byte ", bytes.size(),
                                            ", inside what begins at byte ", place_));
  };
  if (rest.size() < kFrameHeadBytes) return cut();
  const uint64_t length = LittleEndian(rest.substr(0, 4));
  if (length > rest.size() - kFrameHeadBytes) return cut();
  const absl::string_view payload = rest.substr(kFrameHeadBytes, length);
  if (LittleEndian(rest.substr(4, 8)) != Checksum(rest.substr(0, 4), payload)) {
    return absl::DataLossError(absl::StrCat(file_.path(), " is damaged between the bytes ", place_,
                                            " and ", place_ + kFrameHeadBytes + length));
  }
  place_ += kFrameHeadBytes + length;
  return payload;
}

}  // namespace weft::router::recording
