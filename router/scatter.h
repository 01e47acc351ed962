// One 64-bit number out of another, so that neighbours have nothing in common (SplitMix64). Not
// secret. Pure.

#pragma once

#include <cstdint>

namespace weft::router {

inline uint64_t Scatter(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace weft::router
