// What was built: version and source revision, filled in by CMake.

#pragma once

namespace weft {

// Semantic version, for example "0.1.0".
const char* Version();
// Source revision, or "unknown" outside a checkout.
const char* Revision();

}  // namespace weft
