// splitmix64: a mixing function for numbers that tests make of seeds and positions. Pure.

#pragma once

#include <cstdint>

namespace weft::test {

inline constexpr uint64_t kSplitmixStep = 0x9e3779b97f4a7c15;

// Its finaliser: every bit of `x` changes half the bits of the result; 0 stays 0.
constexpr uint64_t SplitmixFinish(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The number that follows the state `x`.
constexpr uint64_t Splitmix(uint64_t x) { return SplitmixFinish(x + kSplitmixStep); }

}  // namespace weft::test
