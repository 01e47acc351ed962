#include "router/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace weft::router {
namespace {

std::vector<size_t> MakeFallback(absl::string_view text) {
  std::vector<size_t> fallback(text.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = fallback[length - 1];
    if (text[i] == text[length]) ++length;
    fallback[i] = length;
  }
  return fallback;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_in_text)
    : include_in_text_(include_in_text) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) {
    WEFT_CHECK(!text.empty());
    Stop stop;
    stop.fallback = MakeFallback(text);
    stop.text = std::move(text);
    stops_.push_back(std::move(stop));
  }
}

size_t StopMatcher::Advance(char byte) {
  size_t winner = stops_.size();
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.matched > 0 && byte != stop.text[stop.matched]) {
      stop.matched = stop.fallback[stop.matched - 1];
    }
    if (byte != stop.text[stop.matched]) continue;
    if (++stop.matched < stop.text.size()) continue;
    if (winner == stops_.size() || stop.text.size() > stops_[winner].text.size()) winner = i;
  }
  return winner;
}

StopMatcher::Result StopMatcher::Push(absl::string_view text) {
  Result result;
  if (stops_.empty()) {
    result.text.assign(text.data(), text.size());
    return result;
  }
  result.text = std::move(held_);
  held_.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t winner = Advance(text[i]);
    if (winner == stops_.size()) continue;
    result.text.append(text.data(), i + 1);
    result.matched = true;
    result.stop_index = winner;
    if (!include_in_text_) result.text.resize(result.text.size() - stops_[winner].text.size());
    return result;
  }
  result.text.append(text.data(), text.size());
  size_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  held_ = result.text.substr(result.text.size() - hold);
  result.text.resize(result.text.size() - hold);
  return result;
}

std::string StopMatcher::Flush() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, std::string());
}

}  // namespace weft::router
