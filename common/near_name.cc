#include "common/near_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace weft {
namespace {

// Nobody types longer ones, and the work grows with the length.
constexpr size_t kTypedBytesMax = 64;

// Levenshtein's, and two neighbours that changed places are one step too; a row at a time.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({replaced, row[j] + 1, above[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace

std::string NearName(absl::string_view typed, const std::vector<std::string>& names) {
  if (typed.size() > kTypedBytesMax) return "";
  std::string nearest;
  size_t least = typed.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = Distance(typed, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace weft
