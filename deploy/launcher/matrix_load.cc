#include "deploy/launcher/matrix_load.h"

#include <cmath>

namespace weft {
namespace {

double WithExperts(const shard::MatrixParameters& matrices, double share) {
  const auto of_experts = static_cast<double>(matrices.of_experts);
  return static_cast<double>(matrices.all) - of_experts + of_experts * share;
}

double ShareTaken(const shard::MatrixParameters& matrices) {
  if (matrices.experts == 0) return 1;
  return static_cast<double>(matrices.experts_taken) / matrices.experts;
}

}  // namespace

double ParametersOfToken(const shard::MatrixParameters& matrices) {
  return WithExperts(matrices, ShareTaken(matrices));
}

double ParametersRead(const shard::MatrixParameters& matrices, uint32_t rows) {
  return WithExperts(matrices, 1 - std::pow(1 - ShareTaken(matrices), rows));
}

}  // namespace weft
