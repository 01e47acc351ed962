// A shard's GPU is a matter of its host: what it is told, or what it sees.

#include "shard/device/cuda/local_device.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace weft::shard {
namespace {

TEST_CASE("A shard that sees one GPU takes it, whatever its rank", "[shard][cuda]") {
  for (const uint32_t rank : {0u, 1u, 5u, 63u}) CHECK(LocalGpu({{}, rank}, 1).value() == 0);
}

TEST_CASE("Ranks of one host that see all of its GPUs take different ones", "[shard][cuda]") {
  // The second host of two with four GPUs each.
  std::set<uint32_t> taken;
  for (const uint32_t rank : {4u, 5u, 6u, 7u}) taken.insert(LocalGpu({{}, rank}, 4).value());
  CHECK(taken == std::set<uint32_t>{0, 1, 2, 3});
}

TEST_CASE("A GPU asked for is taken, and one that is not there refused with the way out",
          "[shard][cuda]") {
  CHECK(LocalGpu({2, 0}, 4).value() == 2);
  CHECK(LocalGpu({0, 7}, 4).value() == 0);
  const absl::Status beyond = LocalGpu({4, 0}, 4).status();
  CHECK(absl::IsNotFound(beyond));
  CHECK_THAT(std::string(beyond.message()),
             Catch::Contains("--device-index 4") && Catch::Contains("0 .. 3"));
  CHECK(absl::IsNotFound(LocalGpu({{}, 0}, 0).status()));
}

}  // namespace
}  // namespace weft::shard
