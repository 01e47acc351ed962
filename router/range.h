// An interval of numbers that a request field may take, with its words for error messages. One
// definition for all doors. Pure.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::router {

struct Range {
  double low;
  double high;
  bool low_open = false;

  // False for NaN.
  bool Contains(double value) const {
    return (low_open ? value > low : value >= low) && value <= high;
  }
  std::string Text() const {
    return low_open ? absl::StrCat("greater than ", low, " and at most ", high)
                    : absl::StrCat("between ", low, " and ", high);
  }
};

inline constexpr Range kShareRange = {0, 1};
inline constexpr Range kPositiveShareRange = {0, 1, true};
inline constexpr Range kPenaltyRange = {-2, 2};

}  // namespace weft::router
