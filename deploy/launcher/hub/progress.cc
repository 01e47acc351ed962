#include "deploy/launcher/hub/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft::hub {

std::string FormatBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f %s", decimals, bytes, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<uint64_t>(std::ceil(std::min(seconds, 1e9)));
  if (whole >= 3600) {
    return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
  }
  if (whole >= 60) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrCat(whole, " s");
}

Progress::Progress(uint32_t files, uint64_t bytes, uint64_t have)
    : files_(files), bytes_(bytes), arrived_(have) {}

void Progress::OnArrived(uint64_t bytes_in_all, absl::Time now) {
  arrived_ = bytes_in_all;
  // What was thrown away and is fetched anew is no negative rate.
  if (!samples_.empty() && bytes_in_all < samples_.back().second) samples_.clear();
  if (samples_.empty() || now - samples_.back().first >= kSampleEach) {
    samples_.emplace_back(now, bytes_in_all);
  }
  while (samples_.size() > 2 && now - samples_.front().first > kWindow) samples_.pop_front();
}

double Progress::bytes_per_s() const {
  if (samples_.size() < 2) return 0;
  const double seconds = absl::ToDoubleSeconds(samples_.back().first - samples_.front().first);
  return static_cast<double>(samples_.back().second - samples_.front().second) / seconds;
}

std::string Progress::Line() const {
  const double share =
      bytes_ == 0 ? 1 : static_cast<double>(arrived_) / static_cast<double>(bytes_);
  std::string line =
      absl::StrFormat("%s of %s (%d %%)", FormatBytes(static_cast<double>(arrived_)),
                      FormatBytes(static_cast<double>(bytes_)), static_cast<int>(share * 100));
  if (const double rate = bytes_per_s(); rate > 0) {
    absl::StrAppend(&line, ", ", FormatBytes(rate), "/s, ",
                    FormatSeconds(static_cast<double>(bytes_ - std::min(arrived_, bytes_)) / rate),
                    " left");
  }
  absl::StrAppend(&line, ", ", files_done_, " of ", files_, files_ == 1 ? " file" : " files");
  return line;
}

}  // namespace weft::hub
