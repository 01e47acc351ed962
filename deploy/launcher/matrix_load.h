// How many of a model's parameters a step has to do with, for the shares of a device's speed that
// `weft bench step` prints. Pure; any thread.

#pragma once

#include <cstdint>

#include "shard/control/executor.h"

namespace weft {

// Parameters that one token is multiplied with.
double ParametersOfToken(const shard::MatrixParameters& matrices);

// Parameters that a step of `rows` tokens reads: of experts those that some row takes, on average
// when rows choose by chance and independently, all experts alike. Rows that agree read fewer.
double ParametersRead(const shard::MatrixParameters& matrices, uint32_t rows);

}  // namespace weft
