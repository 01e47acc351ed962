// Finds stop strings in streamed text, inside a piece or across pieces, and holds back text only
// while it may be the beginning of a stop string. Owned by one request, called by one text worker
// at a time, after the Detokenizer.
//
// Which match wins does not depend on how the text is cut into pieces: the text is read byte by
// byte and the first stop string that is complete ends it (earliest end). Of several that end at
// the same byte the longest wins (it begins first, so less text is given out); of equal ones the
// lowest index.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::router {

class StopMatcher {
 public:
  struct Result {
    // Text that is certain now. On a match: all text before the stop string, with the stop string
    // itself when include_in_text; what came after it is dropped.
    std::string text;
    bool matched = false;
    // Index into `stops` of the one that matched.
    size_t stop_index = 0;
  };

  // `stops`: at most kStopSequencesMax of 1 .. kStopSequenceBytesMax bytes (checked by the doors);
  // an empty list makes Push return its argument.
  StopMatcher(std::vector<std::string> stops, bool include_in_text);

  // Takes the next piece of text. REQUIRES: no match so far.
  Result Push(absl::string_view text);
  // The end of the stream without a match: the text still held back.
  std::string Flush();

  const std::string& stop(size_t index) const { return stops_[index].text; }

 private:
  struct Stop {
    std::string text;
    // Knuth-Morris-Pratt: for each prefix, the length of its longest proper suffix that is also a
    // prefix.
    std::vector<size_t> fallback;
    // Bytes of this stop matched at the end of the text so far.
    size_t matched = 0;
  };

  // Advances every stop by one byte; the index of the winner, or stops_.size().
  size_t Advance(char byte);

  std::vector<Stop> stops_;
  bool include_in_text_;
  // The last bytes of the text, not given out: always the longest partial match.
  std::string held_;
};

}  // namespace weft::router
