#include "common/process_stat.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <vector>

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

TEST_CASE("A process's CPU time is that of its own code and of the kernel's for it",
          "[common][process]") {
  const auto own_us = [](bool kernel) {
    rusage use{};
    REQUIRE(getrusage(RUSAGE_SELF, &use) == 0);
    const timeval& time = kernel ? use.ru_stime : use.ru_utime;
    return int64_t{time.tv_sec} * 1'000'000 + time.tv_usec;
  };
  const bool kernel = GENERATE(false, true);
  INFO("in the kernel " << kernel);
  const auto pid = static_cast<uint64_t>(getpid());
  const int64_t before_us = ReadProcessStat(pid)->cpu_us;
  const int64_t begin_us = own_us(kernel);
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  REQUIRE(zero >= 0);
  std::vector<char> bytes(1u << 20);
  uint64_t sum = 0;
  while (own_us(kernel) - begin_us < 200'000) {
    for (int i = 0; i < 10; ++i) {
      if (kernel) {
        REQUIRE(read(zero, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
      } else {
        for (size_t k = 0; k < bytes.size(); ++k) sum += ++bytes[k];
      }
    }
  }
  close(zero);
  CHECK(sum != 1);
  // Counted in ticks of 10 ms.
  CHECK(ReadProcessStat(pid)->cpu_us - before_us >= 170'000);
}

TEST_CASE("Nothing is read about a process that is not there", "[common][process]") {
  CHECK(!ReadProcessStat(uint64_t{1} << 40).has_value());
  CHECK(ProportionalBytes(uint64_t{1} << 40) == 0);
}

}  // namespace
}  // namespace weft
