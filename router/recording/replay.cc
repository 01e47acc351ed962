#include "router/recording/replay.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/recording/parts.h"
#include "router/recording/player.h"

namespace weft::router::recording {
namespace {

// One part by its own name, or all of a recording.
absl::StatusOr<std::vector<Part>> PartsOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    Part part;
    part.path = path;
    // A part that was renamed has no number.
    if (!absl::SimpleAtoi(path.substr(path.rfind('.') + 1), &part.number)) part.number = 0;
    return std::vector<Part>{part};
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Part> parts, FindParts(path));
  if (parts.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no ", PartPath(path, 1), " nor any other ",
                                            "part; name what --record was given, or one part"));
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    const uint64_t expected = parts[i - 1].number + 1;
    if (parts[i].number == expected) continue;
    return absl::DataLossError(absl::StrCat(PartPath(path, expected), " is missing between ",
                                            parts[i - 1].path, " and ", parts[i].path,
                                            "; each part can be replayed by its own name"));
  }
  return parts;
}

}  // namespace

absl::Status Replay(const std::string& path, ReplayReport* report) {
  *report = {};
  WEFT_ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsOf(path));
  Player player(report);
  for (const Part& part : parts) {
    WEFT_ASSIGN_OR_RETURN(PartReader reader, PartReader::Open(part.path));
    report->parts.push_back(part.path);
    uint64_t frames = 0;
    for (; report->difference.empty(); ++frames) {
      const absl::StatusOr<absl::string_view> payload = reader.Next();
      if (absl::IsOutOfRange(payload.status())) break;
      WEFT_RETURN_IF_ERROR(payload.status());
      WEFT_RETURN_IF_ERROR(player.Play(part.number, *payload));
    }
    // A router that is killed as it begins its next part leaves one with nothing in it.
    const bool may_be_empty = parts.size() > 1 && part.path == parts.back().path;
    if (frames == 0 && report->difference.empty() && !may_be_empty) {
      return absl::DataLossError(absl::StrCat(
          part.path, " holds no event: its router ended before it wrote one, or it was cut"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::router::recording
