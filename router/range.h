// An interval of numbers that a request field may take, with its words for error messages. One
// definition for all doors and files. Pure.

#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace weft::router {

// Whole numbers with all their digits: 1048576, not 1.04858e+06.
inline std::string NumberText(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p53) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return absl::StrCat(value);
}

struct Range {
  double low;
  double high;
  bool low_open = false;

  // False for NaN.
  bool Contains(double value) const {
    return (low_open ? value > low : value >= low) && value <= high;
  }
  std::string Text() const {
    return low_open
               ? absl::StrCat("greater than ", NumberText(low), " and at most ", NumberText(high))
               : absl::StrCat("between ", NumberText(low), " and ", NumberText(high));
  }
};

inline constexpr Range kShareRange = {0, 1};
inline constexpr Range kPositiveShareRange = {0, 1, true};
inline constexpr Range kPenaltyRange = {-2, 2};
inline constexpr Range kRepetitionPenaltyRange = {kRepetitionPenaltyMin, kRepetitionPenaltyMax};

}  // namespace weft::router
