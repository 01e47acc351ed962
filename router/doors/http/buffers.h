// Gives the memory of a buffer back. Assigning an empty string, or clear(), would keep it.

#pragma once

#include <string>

namespace weft::router {

inline void GiveBack(std::string* buffer) { std::string().swap(*buffer); }

}  // namespace weft::router
