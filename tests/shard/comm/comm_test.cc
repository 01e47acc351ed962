// Communicators: sums in rank order bit for bit, gathers larger than a window, aborts, dead and
// late peers, bad tokens.

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/clock.h"
#include "shard/comm/local_communicator.h"
#include "shard/comm/shm_communicator.h"
#include "tests/shard/comm/rank_processes.h"

namespace weft::shard {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

// Values whose sum depends on the order of addition.
float Value(uint32_t rank, int64_t i, int round) {
  auto bits = static_cast<uint32_t>(i * 1000003 + round * 7919 + rank * 97 + 1);
  for (int turn = 0; turn < 3; ++turn) bits = (bits ^ (bits >> 15)) * 0x2c1b3c6du;
  const float scale = rank % 2 == 0 ? 1.0f : 1e6f;
  return scale * (static_cast<float>(bits) / 4294967296.0f - 0.5f);
}

std::unique_ptr<ShmCommunicator> Open(const std::string& token, const ShmShape& shape, Rank rank,
                                      absl::Duration timeout = kLong) {
  auto comm = ShmCommunicator::Open(token, shape, rank, timeout, nullptr);
  if (!comm.ok()) {
    std::fprintf(stderr, "rank %u: %s\n", rank, comm.status().ToString().c_str());
    _exit(90);
  }
  return std::move(comm).value();
}

// One rank's part of the sums test: several rounds over odd counts.
int SumRounds(const std::string& token, const ShmShape& shape, Rank rank) {
  auto comm = Open(token, shape, rank);
  if (!comm->Meet(kLong).ok()) return 1;
  const int64_t counts[] = {1, 3, 576, 1023, 1025, shape.capacity_floats};
  std::vector<float> target(static_cast<size_t>(shape.capacity_floats));
  for (int round = 0; round < 60; ++round) {
    const int64_t count = counts[round % 6];
    float* staged = comm->Stage(count);
    if (reinterpret_cast<uintptr_t>(staged) % 64 != 0) return 2;
    for (int64_t i = 0; i < count; ++i) staged[i] = Value(rank, i, round);
    std::fill(target.begin(), target.end(), 0.25f);
    if (!comm->AllReduceAdd(target.data(), count).ok()) return 3;
    for (int64_t i = 0; i < count; ++i) {
      float sum = Value(0, i, round);
      for (uint32_t r = 1; r < shape.world; ++r) sum += Value(r, i, round);
      const float expected = 0.25f + sum;
      if (std::memcmp(&expected, &target[static_cast<size_t>(i)], sizeof(float)) != 0) return 4;
    }
    if (count < shape.capacity_floats && target[static_cast<size_t>(count)] != 0.25f) return 5;
  }
  return 0;
}

int GatherRounds(const std::string& token, const ShmShape& shape, Rank rank) {
  auto comm = Open(token, shape, rank);
  if (!comm->Meet(kLong).ok()) return 1;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4097}, size_t{100003}}) {
    std::vector<uint8_t> mine(bytes), all(bytes * shape.world + 1, 0xee);
    for (size_t i = 0; i < bytes; ++i) mine[i] = static_cast<uint8_t>(i * 31 + rank * 101 + bytes);
    if (!comm->AllGather(mine.data(), bytes, all.data()).ok()) return 2;
    for (uint32_t r = 0; r < shape.world; ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        if (all[r * bytes + i] != static_cast<uint8_t>(i * 31 + r * 101 + bytes)) return 3;
      }
    }
    if (all.back() != 0xee) return 4;
    // An all-reduce between gathers meets the windows' parity wherever it is.
    float* staged = comm->Stage(7);
    std::fill(staged, staged + 7, 1.0f);
    std::vector<float> target(7, 0.0f);
    if (!comm->AllReduceAdd(target.data(), 7).ok()) return 5;
    if (target[6] != static_cast<float>(shape.world)) return 6;
  }
  return 0;
}

}  // namespace

TEST_CASE("Shared-memory all-reduce sums in rank order, bit for bit", "[shard][comm]") {
  const uint32_t world = GENERATE(2u, 3u, 4u);
  const ShmShape shape{world, 7, 1153};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  RankProcesses ranks(world, [&](Rank rank) { return SumRounds(segment->token(), shape, rank); });
  for (Rank rank = 0; rank < world; ++rank) CHECK(ranks.Wait(rank) == 0);
}

TEST_CASE("Shared-memory gathers go in pieces when they exceed a window", "[shard][comm]") {
  const uint32_t world = GENERATE(2u, 3u);
  const ShmShape shape{world, 8, 1000};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  RankProcesses ranks(world,
                      [&](Rank rank) { return GatherRounds(segment->token(), shape, rank); });
  for (Rank rank = 0; rank < world; ++rank) CHECK(ranks.Wait(rank) == 0);
}

TEST_CASE("A late rank is waited for by sleeping, and the wait is counted", "[shard][comm]") {
  const ShmShape shape{2, 9, 64};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  int gate[2];
  int met[2];
  REQUIRE(pipe(gate) == 0);
  REQUIRE(pipe(met) == 0);
  RankProcesses ranks(2, [&](Rank rank) {
    auto comm = Open(segment->token(), shape, rank);
    if (!comm->Meet(kLong).ok()) return 1;
    std::vector<float> target(4, 0.0f);
    float* staged = comm->Stage(4);
    std::fill(staged, staged + 4, 2.0f);
    char byte = 0;
    if (rank == 0 && write(met[1], "x", 1) != 1) return 2;
    if (rank == 1 && read(gate[0], &byte, 1) != 1) return 2;
    const uint64_t before_us = comm->waited_us();
    const int64_t begin_us = MonotonicClock().NowUs();
    if (!comm->AllReduceAdd(target.data(), 4).ok()) return 3;
    const uint64_t waited_us = comm->waited_us() - before_us;
    const auto elapsed_us = static_cast<uint64_t>(MonotonicClock().NowUs() - begin_us);
    if (rank == 0 && (waited_us < 1000 || waited_us > elapsed_us + 1)) return 4;
    return target[3] == 4.0f ? 0 : 5;
  });
  // Rank 0 spins for 20 us and then sleeps in the kernel.
  char byte = 0;
  REQUIRE(read(met[0], &byte, 1) == 1);
  const bool asleep = WaitUntilAsleep(ranks.pid(0));
  const int64_t begin_us = MonotonicClock().NowUs();
  while (MonotonicClock().NowUs() - begin_us < 5000) {
  }
  CHECK(asleep);
  REQUIRE(write(gate[1], "x", 1) == 1);
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
  for (const int fd : {gate[0], gate[1], met[0], met[1]}) close(fd);
}

// A byte into a pipe whenever somebody asks for the time: once when a heartbeat is made, and once
// with each beat.
class PipeClock : public Clock {
 public:
  explicit PipeClock(int fd) : fd_(fd) {}
  int64_t NowUs() const override {
    if (write(fd_, "x", 1) != 1) _exit(91);
    return 0;
  }

 private:
  const int fd_;
};

TEST_CASE("A rank shows life while it waits for another", "[shard][comm]") {
  const ShmShape shape{2, 14, 64};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  int beats[2];
  REQUIRE(pipe(beats) == 0);
  // Rank 1 comes when rank 0 has shown life three times; without that rank 0 gives up.
  RankProcesses ranks(2, [&](Rank rank) {
    close(beats[rank]);
    const PipeClock clock(beats[1]);
    std::optional<Heartbeat> heartbeat;
    if (rank == 0) heartbeat.emplace(clock);
    auto comm = ShmCommunicator::Open(segment->token(), shape, rank, absl::Seconds(10),
                                      rank == 0 ? &*heartbeat : nullptr);
    if (!comm.ok()) return 1;
    char byte = 0;
    for (int i = 0; rank == 1 && i < 4; ++i) {
      if (read(beats[0], &byte, 1) != 1) return 2;
    }
    return (*comm)->Meet(absl::Seconds(10)).ok() ? 0 : 3;
  });
  close(beats[0]);
  close(beats[1]);
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("Abort ends the waits of all ranks at once, present and future", "[shard][comm]") {
  const ShmShape shape{3, 10, 64};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  RankProcesses ranks(3, [&](Rank rank) {
    auto comm = Open(segment->token(), shape, rank);
    if (!comm->Meet(kLong).ok()) return 1;
    float target[4] = {};
    (void)comm->Stage(4);
    if (rank == 2) {
      comm->Abort();
    } else {
      const int64_t begin_us = MonotonicClock().NowUs();
      const absl::Status status = comm->AllReduceAdd(target, 4);
      if (!absl::IsAborted(status) || !absl::StrContains(status.message(), "rank 2")) return 2;
      if (MonotonicClock().NowUs() - begin_us > 30'000'000) return 3;
    }
    return absl::IsAborted(comm->AllGather(target, 4, target)) ? 0 : 4;
  });
  for (Rank rank = 0; rank < 3; ++rank) CHECK(ranks.Wait(rank) == 0);
}

TEST_CASE("A peer killed in a barrier ends the wait with its name", "[shard][comm]") {
  const ShmShape shape{2, 11, 64};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  int ready[2];
  int go[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(go) == 0);
  RankProcesses ranks(2, [&](Rank rank) {
    auto comm = Open(segment->token(), shape, rank, rank == 0 ? absl::Milliseconds(300) : kLong);
    if (!comm->Meet(kLong).ok()) return 1;
    float target[4] = {};
    char byte = 0;
    if (rank == 1 && write(ready[1], "x", 1) != 1) return 2;
    if (rank == 0 && read(go[0], &byte, 1) != 1) return 3;
    // Rank 1 has arrived at the first collective when it dies, never at the second.
    absl::Status status;
    for (int i = 0; i < 2 && status.ok(); ++i) {
      (void)comm->Stage(4);
      status = comm->AllReduceAdd(target, 4);
      if (i == 0 && !status.ok()) return 4;
    }
    const bool named = absl::StrContains(status.message(), "waiting for rank 1 (process ");
    return absl::IsDeadlineExceeded(status) && named ? 0 : 5;
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(WaitUntilAsleep(ranks.pid(1)));
  REQUIRE(kill(ranks.pid(1), SIGKILL) == 0);
  CHECK(ranks.Wait(1) == -SIGKILL);
  REQUIRE(write(go[1], "x", 1) == 1);
  CHECK(ranks.Wait(0) == 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

TEST_CASE("A rank that never joins is named when the meeting times out", "[shard][comm]") {
  const ShmShape shape{3, 12, 64};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  RankProcesses ranks(2, [&](Rank rank) {
    auto comm = Open(segment->token(), shape, rank);
    const absl::Status status = comm->Meet(rank == 0 ? absl::Milliseconds(200) : kLong);
    if (rank == 1) return absl::IsAborted(status) ? 0 : 1;
    return absl::IsDeadlineExceeded(status) &&
                   absl::StrContains(status.message(), "rank 2 (process never joined)")
               ? 0
               : 2;
  });
  // Rank 0 may find rank 1 missing first when that is slow to start; both must end.
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("Tokens that do not fit are refused before anything is mapped", "[shard][comm]") {
  const ShmShape shape{2, 13, 128};
  const auto segment = ShmSegment::Create(shape);
  REQUIRE(segment.ok());
  const std::string& token = segment->token();
  const auto open = [](const std::string& text, const ShmShape& s, Rank rank = 1) {
    return ShmCommunicator::Open(text, s, rank, kLong, nullptr).status();
  };
  CHECK(absl::IsInvalidArgument(open("", shape)));
  CHECK(absl::IsInvalidArgument(open(std::string(5000, 'x'), shape)));
  CHECK(absl::IsInvalidArgument(open("weft-shm-1 1 13 2 128 /etc/passwd", shape)));
  CHECK(absl::IsInvalidArgument(open("weft-shm-1 1 13 2 128 /proc/1/../fd", shape)));
  CHECK(absl::IsInvalidArgument(open("weft-shm-1 x 13 2 128 /proc/1/fd/1", shape)));
  CHECK_FALSE(open("weft-shm-1 1 13 2 128 /proc/4294967295/fd/0", shape).ok());
  const absl::Status epoch = open(token, ShmShape{2, 14, 128});
  CHECK(absl::IsFailedPrecondition(epoch));
  CHECK(absl::StrContains(epoch.message(), "epoch is 13"));
  CHECK(absl::IsFailedPrecondition(open(token, ShmShape{3, 13, 128})));
  CHECK(absl::IsFailedPrecondition(open(token, ShmShape{2, 13, 129})));
  // Somebody else's file behind a well-formed token: not a sealed memfd.
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const size_t slash = token.rfind('/');
  const absl::Status other = open(absl::StrCat(token.substr(0, slash + 1), fileno(file)), shape);
  std::fclose(file);
  CHECK(absl::IsFailedPrecondition(other));
  // The right file with another magic: a descriptor number used again.
  const std::string forged = absl::StrReplaceAll(token, {{"weft-shm-1 ", "weft-shm-1 1"}});
  CHECK_FALSE(open(forged, shape).ok());
  // A rank has one process.
  auto first = ShmCommunicator::Open(token, shape, 1, kLong, nullptr);
  REQUIRE(first.ok());
  CHECK(absl::IsAlreadyExists(open(token, shape)));
}

TEST_CASE("The local communicator adds, gathers and aborts", "[shard][comm]") {
  auto comm = MakeLocalCommunicator(33);
  CHECK(comm->world() == 1);
  float* staged = comm->Stage(33);
  CHECK(reinterpret_cast<uintptr_t>(staged) % 64 == 0);
  for (int i = 0; i < 33; ++i) staged[i] = static_cast<float>(i);
  std::vector<float> target(33, 1.0f);
  REQUIRE(comm->AllReduceAdd(target.data(), 33).ok());
  CHECK(target[32] == 33.0f);
  const int mine = 5;
  int all = 0;
  REQUIRE(comm->AllGather(&mine, sizeof(mine), &all).ok());
  CHECK(all == 5);
  comm->Abort();
  CHECK(absl::IsAborted(comm->AllReduceAdd(target.data(), 33)));
  CHECK(absl::IsAborted(comm->AllGather(&mine, sizeof(mine), &all)));
}

// A measurement, not a check: prints the latency of all-reduces between two processes.
TEST_CASE("All-reduce latency between two processes", "[shard][comm][bench][.]") {
  for (const int64_t count : {int64_t{576}, int64_t{512} * 576}) {
    const int rounds = count == 576 ? 20000 : 1000;
    const ShmShape shape{2, 1, 512 * 576};
    const auto segment = ShmSegment::Create(shape);
    REQUIRE(segment.ok());
    RankProcesses ranks(2, [&](Rank rank) {
      auto comm = Open(segment->token(), shape, rank);
      if (!comm->Meet(kLong).ok()) return 1;
      std::vector<float> target(static_cast<size_t>(count));
      std::vector<double> us;
      for (int i = 0; i < rounds; ++i) {
        float* staged = comm->Stage(count);
        std::fill(staged, staged + count, 1.0f);
        const auto begin = std::chrono::steady_clock::now();
        if (!comm->AllReduceAdd(target.data(), count).ok()) return 2;
        us.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                .count());
      }
      std::sort(us.begin(), us.end());
      if (rank == 0) {
        std::printf("all-reduce of %ld floats, 2 processes: p50 %.2f us, p90 %.2f, p99 %.2f\n",
                    static_cast<long>(count), us[us.size() / 2], us[us.size() * 9 / 10],
                    us[us.size() * 99 / 100]);
        std::fflush(stdout);
      }
      return 0;
    });
    CHECK(ranks.Wait(0) == 0);
    CHECK(ranks.Wait(1) == 0);
  }
}

}  // namespace weft::shard
