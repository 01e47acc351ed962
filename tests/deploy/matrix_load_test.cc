#include "deploy/launcher/matrix_load.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("A step reads the experts that its rows take, and a token multiplies its own",
          "[launcher]") {
  const shard::MatrixParameters mixtral = {1000, 800, 8, 2};
  CHECK(ParametersOfToken(mixtral) == 400.0);
  CHECK(ParametersRead(mixtral, 1) == 400.0);
  // Both rows miss an expert with a chance of 9 in 16.
  CHECK(ParametersRead(mixtral, 2) == 200.0 + 800.0 * 7 / 16);
  CHECK(ParametersRead(mixtral, 1000) == Approx(1000.0));
  const shard::MatrixParameters plain = {1000, 0, 0, 0};
  CHECK(ParametersOfToken(plain) == 1000.0);
  CHECK(ParametersRead(plain, 64) == 1000.0);
}

}  // namespace
}  // namespace weft
