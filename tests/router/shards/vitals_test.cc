#include "router/shards/vitals.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/process_stat.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr ShardProcess kProcess{1, 2, 3};

TEST_CASE("A silent process is hung only when it uses no CPU time", "[router][shards]") {
  constexpr int64_t kTimeoutUs = 1'000'000;
  ShardVitals vitals;
  vitals.Restart(0);
  int64_t cpu_us = 700'000;
  const ProcessCpuReader reader = [&cpu_us](const ShardProcess&) { return cpu_us; };
  CHECK(!vitals.ProcessHung(100'000, kTimeoutUs, kProcess, &reader));
  cpu_us = 800'000;  // what it did before it fell silent does not count
  CHECK(!vitals.ProcessHung(300'000, kTimeoutUs, kProcess, &reader));
  CHECK(!vitals.ProcessHung(999'999, kTimeoutUs, kProcess, &reader));
  CHECK(vitals.ProcessHung(1'000'000, kTimeoutUs, kProcess, &reader));
  cpu_us = 900'000;  // slow: it worked
  CHECK(!vitals.ProcessHung(1'000'000, kTimeoutUs, kProcess, &reader));
  CHECK(!vitals.ProcessHung(1'799'999, kTimeoutUs, kProcess, &reader));
  CHECK(vitals.ProcessHung(1'800'000, kTimeoutUs, kProcess, &reader));
  const ProcessCpuReader gone = [](const ShardProcess&) { return std::nullopt; };
  vitals.OnStep(3'000'000);
  CHECK(!vitals.ProcessHung(3'999'999, kTimeoutUs, kProcess, &gone));
  CHECK(vitals.ProcessHung(4'000'000, kTimeoutUs, kProcess, &gone));
  CHECK(vitals.ProcessHung(4'000'000, kTimeoutUs, kProcess, nullptr));
}

TEST_CASE("A device thread is hung when it owes a step and neither beats nor works",
          "[router][shards]") {
  constexpr int64_t kTimeoutUs = 1'000'000;
  ShardVitals vitals;
  vitals.Restart(0);
  wire::InfoResponse info;
  info.set_heartbeat_age_us(0);
  info.set_cpu_time_us(1000);
  vitals.OnInfo(info, 100'000);
  CHECK(!vitals.DeviceHung(5'000'000, kTimeoutUs, 0, true));  // owes nothing
  CHECK(vitals.DeviceHung(1'100'000, kTimeoutUs, 50'000, true));
  CHECK(!vitals.DeviceHung(1'100'000, kTimeoutUs, 200'000, true));  // owes it since a short time
  info.set_heartbeat_age_us(900'000);
  info.set_cpu_time_us(600'000);  // it computes
  vitals.OnInfo(info, 1'000'000);
  CHECK(!vitals.DeviceHung(1'100'000, kTimeoutUs, 50'000, true));
}

TEST_CASE("A process that waits for an accelerator is not alive for its CPU time",
          "[router][shards]") {
  constexpr int64_t kTimeoutUs = 2'000'000;
  constexpr int64_t kInfoUs = 200'000;
  ShardVitals vitals;
  vitals.Restart(0);
  wire::InfoResponse info;
  // A step is launched at 0 and within its allowance for three seconds; then it is over due. The
  // wait takes a tenth of a core.
  int64_t hung_us = 0;
  for (int64_t now_us = kInfoUs; hung_us == 0 && now_us < 20'000'000; now_us += kInfoUs) {
    info.set_heartbeat_age_us(now_us < 3'000'000 ? 0 : static_cast<uint64_t>(now_us));
    info.set_cpu_time_us(static_cast<uint64_t>(now_us / 10));
    vitals.OnInfo(info, now_us);
    if (vitals.DeviceHung(now_us, kTimeoutUs, 1, /*works_on_cpu=*/false)) hung_us = now_us;
  }
  CHECK(hung_us > 3'000'000);
  CHECK(hung_us <= 3'000'000 + kTimeoutUs + kInfoUs);
  CHECK(!vitals.DeviceHung(hung_us, kTimeoutUs, 1, /*works_on_cpu=*/true));
}

TEST_CASE("A process is read about only where its pid means the same one", "[router][shards]") {
  const auto pid = static_cast<uint64_t>(getpid());
  const ShardProcess self{pid, ReadProcessStat(pid)->start_ticks, PidNamespace()};
  CHECK(ReadShardCpuUs(self).has_value());
  // In another container the number belongs to somebody else.
  CHECK(!ReadShardCpuUs({pid, self.start_ticks, self.pid_namespace + 1}).has_value());
  CHECK(!ReadShardCpuUs({pid, self.start_ticks, 0}).has_value());
  // So it does after the process has ended and another has taken its number.
  CHECK(!ReadShardCpuUs({pid, self.start_ticks + 1, self.pid_namespace}).has_value());
  CHECK(!ReadShardCpuUs({uint64_t{1} << 40, self.start_ticks, self.pid_namespace}).has_value());
}

}  // namespace
}  // namespace weft::router
