// Finds marks in streamed text: holds back what may still become one, and no byte more. Owned by
// one parser. A handful of short marks; none is the beginning of another.

#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::router {

class MarkMatcher {
 public:
  static constexpr int kNone = -1;

  // The marks' characters outlive this.
  explicit MarkMatcher(std::vector<absl::string_view> marks = {});

  // Takes a byte and appends to `released` what cannot belong to a mark any more. The index of the
  // mark that ended with this byte (nothing is held then), or kNone.
  int Take(char c, std::string* released);
  // Whether a mark may begin with this byte.
  bool MayBegin(char c) const { return first_[static_cast<unsigned char>(c)]; }
  const std::string& held() const { return held_; }
  // Gives up what is held.
  std::string Release();

 private:
  std::vector<absl::string_view> marks_;
  std::bitset<256> first_;
  std::string held_;
};

}  // namespace weft::router
