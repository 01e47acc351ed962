// Clang's coverage counters in memory that forked processes share, so that libFuzzer sees what code
// a child of a fuzz target reached. Call once, before the first fork; does nothing in builds
// without counters.

#pragma once

namespace weft::test {

void ShareCoverageCounters();

}  // namespace weft::test
