// Hosts are told apart by what their kernels say of the boot.

#include "shard/comm/host_id.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/common/temp_dir.h"

namespace weft::shard {
namespace {

std::string HostWith(const test::TempDir& dir, const std::string& boot_id) {
  std::filesystem::create_directories(dir.path() + "/proc/sys/kernel/random");
  dir.Write("proc/sys/kernel/random/boot_id", boot_id);
  return dir.path();
}

TEST_CASE("A host's id is that of its boot", "[shard][comm]") {
  const test::TempDir first;
  const test::TempDir second;
  const test::TempDir again;
  const uint64_t id = HostId(HostWith(first, "5f2b4a1e-0000-4000-8000-000000000001\n"));
  CHECK(id != 0);
  CHECK(id == HostId(HostWith(again, "5f2b4a1e-0000-4000-8000-000000000001\n")));
  CHECK(id != HostId(HostWith(second, "5f2b4a1e-0000-4000-8000-000000000002\n")));
  CHECK(HostId(first.path() + "/nowhere") == 0);
}

TEST_CASE("A rank on another host is refused in words, an unknown host is not", "[shard][comm]") {
  CHECK(CheckSameHost(3, 7, 7).ok());
  CHECK(CheckSameHost(3, 0, 7).ok());
  CHECK(CheckSameHost(3, 7, 0).ok());
  const absl::Status other = CheckSameHost(3, 7, 8);
  CHECK(absl::IsFailedPrecondition(other));
  CHECK_THAT(std::string(other.message()), Catch::Contains("rank 3 is on another host"));
}

}  // namespace
}  // namespace weft::shard
