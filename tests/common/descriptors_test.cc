#include "common/descriptors.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("The soft limit of open files becomes the hard one", "[common]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 64;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const absl::StatusOr<uint64_t> raised = RaiseDescriptorLimit();
  REQUIRE(raised.ok());
  CHECK(*raised == before.rlim_max);
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace weft
