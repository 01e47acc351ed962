#include "router/text/parts/mark_matcher.h"

#include <utility>

#include "absl/strings/match.h"

namespace weft::router {

MarkMatcher::MarkMatcher(std::vector<absl::string_view> marks) : marks_(std::move(marks)) {
  for (const absl::string_view mark : marks_) first_.set(static_cast<unsigned char>(mark.front()));
}

int MarkMatcher::Take(char c, std::string* released) {
  if (held_.empty() && !MayBegin(c)) {
    released->push_back(c);
    return kNone;
  }
  held_.push_back(c);
  // Each turn gives a byte away for good, so a text costs its length times that of the marks.
  size_t dropped = 0;
  while (dropped < held_.size()) {
    const absl::string_view rest = absl::string_view(held_).substr(dropped);
    for (size_t i = 0; i < marks_.size(); ++i) {
      if (!absl::StartsWith(marks_[i], rest)) continue;
      const bool whole = marks_[i].size() == rest.size();
      released->append(held_, 0, dropped);
      held_.erase(0, whole ? held_.size() : dropped);
      return whole ? static_cast<int>(i) : kNone;
    }
    ++dropped;
  }
  released->append(held_);
  held_.clear();
  return kNone;
}

std::string MarkMatcher::Release() { return std::exchange(held_, std::string()); }

}  // namespace weft::router
