// Where the demo model is: WEFT_DEMO_MODEL, or the cache that deploy/setup.sh fills.

#pragma once

#include <cstdlib>
#include <string>

namespace weft::shard {

inline std::string DemoModelPath() {
  if (const char* path = std::getenv("WEFT_DEMO_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return base + "/weft/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace weft::shard
