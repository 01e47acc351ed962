// Numbers nobody can guess: router ids, hash keys, seeds of requests without one. Thread-safe.

#pragma once

#include <cstdint>

namespace weft::router {

// 64 random bits from the kernel, never 0.
uint64_t RandomId();

}  // namespace weft::router
