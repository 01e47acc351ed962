// Runs scripts, each in a process of its own, so that a broken invariant, a failed CHECK and a
// crash are all an answer; and makes a failing script small.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/router/script.h"
#include "tests/sim/router/watch.h"

namespace weft::router::sim {

struct Outcome {
  // Empty: nothing was broken. Otherwise the last words of the process.
  std::string failure;
  Counts counts;
  // Of processor time, without the process's own beginning and end.
  double seconds = 0;
};

Outcome RunScript(const Script& script);

// What stays the same while a failing script shrinks: the invariant, or the place of the check.
std::string KindOfFailure(const std::string& failure);

// A script with as few actions and settings as can be found within `seconds` that fails in the same
// way as `script`. `runs`, which may be null, gets the number of scripts tried.
Script Shrink(const Script& script, const std::string& failure, double seconds, int* runs);

}  // namespace weft::router::sim
