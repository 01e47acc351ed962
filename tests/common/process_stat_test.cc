#include "common/process_stat.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("This process can be read about, whatever its name", "[common][process]") {
  char name[16] = {};
  REQUIRE(prctl(PR_GET_NAME, name) == 0);
  REQUIRE(prctl(PR_SET_NAME, "a) 1 (b\n2) c") == 0);
  const auto pid = static_cast<uint64_t>(getpid());
  const std::optional<ProcessStat> first = ReadProcessStat(pid);
  REQUIRE(first.has_value());
  CHECK(first->start_ticks > 0);
  const std::optional<ProcessStat> second = ReadProcessStat(pid);
  REQUIRE(second.has_value());
  CHECK(second->start_ticks == first->start_ticks);
  CHECK(second->cpu_us >= first->cpu_us);
  CHECK(prctl(PR_SET_NAME, name) == 0);
  CHECK(PidNamespace() != 0);
  CHECK(ResidentBytes() > 0);
  CHECK(ProportionalBytes(pid) > 0);
  CHECK(OpenFiles() >= 3);
}

TEST_CASE("Nothing is read about a process that is not there", "[common][process]") {
  CHECK(!ReadProcessStat(uint64_t{1} << 40).has_value());
  CHECK(ProportionalBytes(uint64_t{1} << 40) == 0);
}

}  // namespace
}  // namespace weft
