#include "deploy/launcher/shard_progress.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace weft::launcher {
namespace {

constexpr int kBarCells = 20;

}  // namespace

bool ShardProgress::OnLine(size_t rank, absl::string_view line) {
  if (rank >= shards_.size()) return false;
  Shard heard;
  heard.spoke = true;
  if (line == "loaded") {
    heard.loaded = true;
    shards_[rank] = heard;
    return true;
  }
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 4 || words[0] != "loading" ||
      !absl::SimpleAtoi(words[1], &heard.done_bytes) ||
      !absl::SimpleAtoi(words[2], &heard.total_bytes) ||
      !absl::SimpleAtoi(words[3], &heard.elapsed_us)) {
    return false;
  }
  shards_[rank] = heard;
  return true;
}

std::string ShardProgress::Line() const {
  if (std::none_of(shards_.begin(), shards_.end(),
                   [](const Shard& shard) { return shard.spoke; })) {
    return "";
  }
  std::string line;
  for (size_t rank = 0; rank < shards_.size(); ++rank) {
    absl::StrAppend(&line, rank == 0 ? "" : "   ", "shard-", rank, " ", Describe(shards_[rank]));
  }
  return line;
}

std::string ShardProgress::Describe(const Shard& shard) {
  if (!shard.spoke) return "starting";
  if (shard.loaded) return "ready";
  const double total_bytes = static_cast<double>(shard.total_bytes);
  const double share = shard.total_bytes == 0
                           ? 0.0
                           : std::min(1.0, static_cast<double>(shard.done_bytes) / total_bytes);
  const double gbytes_per_s = shard.elapsed_us == 0 ? 0.0
                                                    : static_cast<double>(shard.done_bytes) * 1e-3 /
                                                          static_cast<double>(shard.elapsed_us);
  const int cells = static_cast<int>(share * kBarCells);
  return absl::StrFormat("[%s%s] %3.0f %%  %.2f GB/s", std::string(cells, '#'),
                         std::string(kBarCells - cells, '.'), share * 100, gbytes_per_s);
}

}  // namespace weft::launcher
