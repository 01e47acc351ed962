// Keeps gRPC's callback threads for the rest of the process. They go down with their last user, and
// when that comes within milliseconds of their start gRPC 1.51 now and then aborts or sleeps for
// ten seconds; a test that starts and stops servers would do that at random. Thread-safe.

#pragma once

namespace weft::testing {

// Call before the first server or channel of a test.
void KeepGrpcThreads();

}  // namespace weft::testing
