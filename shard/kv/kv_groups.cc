#include "shard/kv/kv_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace weft::shard {
namespace {

// Layers of one window.
struct Windowed {
  uint32_t window_tokens;
  std::vector<uint32_t> layers;
};

std::vector<Windowed> ByWindow(const DecoderSpec& spec) {
  std::vector<Windowed> out;
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    const uint32_t window = spec.attention(layer).window_tokens;
    const auto same = [window](const Windowed& other) { return other.window_tokens == window; };
    auto at = std::find_if(out.begin(), out.end(), same);
    if (at == out.end()) at = out.insert(out.end(), Windowed{window, {}});
    at->layers.push_back(layer);
  }
  return out;
}

// Groups of `size` layers each.
uint32_t GroupCount(const std::vector<Windowed>& windows, uint32_t size) {
  uint32_t groups = 0;
  for (const Windowed& window : windows) {
    groups += (static_cast<uint32_t>(window.layers.size()) + size - 1) / size;
  }
  return groups;
}

uint32_t ChooseSize(const DecoderSpec& spec, const std::vector<Windowed>& windows) {
  uint32_t best = spec.layers;
  for (uint32_t size = spec.layers; size > 0; --size) {
    const uint32_t groups = GroupCount(windows, size);
    // The layers are the same for all sizes: the least room wastes least.
    if (groups <= kKvGroupsMax && groups * size < GroupCount(windows, best) * best) best = size;
  }
  return best;
}

}  // namespace

std::vector<uint32_t> KvGroups::windows() const {
  std::vector<uint32_t> out;
  for (const KvGroup& group : groups) out.push_back(group.window_tokens);
  return out;
}

double KvGroups::waste() const {
  const double room = static_cast<double>(groups.size()) * block_layers;
  return room == 0 ? 0 : 1 - static_cast<double>(places.size()) / room;
}

KvGroups MakeKvGroups(const DecoderSpec& spec) {
  const std::vector<Windowed> windows = ByWindow(spec);
  KvGroups out;
  out.block_layers = ChooseSize(spec, windows);
  out.places.resize(spec.layers);
  for (const Windowed& window : windows) {
    for (uint32_t i = 0; i < window.layers.size(); ++i) {
      const uint32_t index = i % out.block_layers;
      if (index == 0) out.groups.push_back({window.window_tokens, {}});
      out.groups.back().layers.push_back(window.layers[i]);
      out.places[window.layers[i]] = {out.count() - 1, index};
    }
  }
  // More windows than groups would need a table of their own each; families have two at most.
  WEFT_CHECK_LE(out.count(), kKvGroupsMax);
  return out;
}

std::string Describe(const KvGroups& groups) {
  std::string line =
      absl::StrCat(groups.count(), groups.count() == 1 ? " group of " : " groups of ",
                   groups.block_layers, " layers");
  const char* separator = ": ";
  for (size_t at = 0; at < groups.groups.size();) {
    const uint32_t window = groups.groups[at].window_tokens;
    size_t end = at;
    while (end < groups.groups.size() && groups.groups[end].window_tokens == window) ++end;
    absl::StrAppend(&line, separator, end - at, " of ",
                    window == 0 ? "the whole context" : absl::StrCat("window ", window));
    separator = ", ";
    at = end;
  }
  if (groups.waste() > 0) absl::StrAppendFormat(&line, "; %.1f %% wasted", 100 * groups.waste());
  return line;
}

}  // namespace weft::shard
