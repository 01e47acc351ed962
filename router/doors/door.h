// The doors by name, for what is counted by door. A plain value.

#pragma once

#include <cstdint>

namespace weft::router {

enum class Door : uint8_t { kTgi, kOpenAi, kGrpc };

}  // namespace weft::router
