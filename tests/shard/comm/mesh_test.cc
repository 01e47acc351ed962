// Ranks of several hosts: sums equal to those through shared memory bit for bit, gathers larger
// than a window, ranks that are late, die, are aborted, do not belong, or were started otherwise.

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/thread.h"
#include "shard/comm/host_meeting.h"
#include "shard/comm/interface_name.h"
#include "shard/comm/mesh_meeting.h"
#include "tests/shard/comm/rank_processes.h"

namespace weft::shard {
namespace {

constexpr Epoch kEpoch = 7;
constexpr int64_t kCapacity = 1153;

std::unique_ptr<GroupMeeting> Meeting(const std::string& host = "127.0.0.1",
                                      int64_t capacity = kCapacity) {
  return MakeMeshMeeting({capacity, host, {}});
}

MeetCall Call(const std::string& token, Rank rank, uint32_t world,
              absl::Duration timeout = absl::Seconds(60)) {
  MeetCall call;
  call.epoch = kEpoch;
  call.token = token;
  call.rank = rank;
  call.world = world;
  call.deadline = absl::Now() + timeout;
  call.peer_timeout = timeout;
  return call;
}

// Rank 0's meeting and its offer, which the other ranks inherit by fork as the router hands it on.
struct Offered {
  explicit Offered(uint32_t world, const std::string& host = "127.0.0.1") : meeting(Meeting(host)) {
    const auto offer = meeting->Offer(kEpoch, world);
    REQUIRE(offer.ok());
    token = *offer;
  }

  // The communicator of `rank`, or null.
  std::unique_ptr<HostCommunicator> Join(Rank rank, uint32_t world,
                                         absl::Duration timeout = absl::Seconds(60)) {
    if (rank != 0) meeting = Meeting();
    auto made = meeting->Meet(Call(token, rank, world, timeout));
    if (!made.ok()) {
      std::fprintf(stderr, "rank %u: %s\n", rank, made.status().ToString().c_str());
      return nullptr;
    }
    return std::unique_ptr<HostCommunicator>(static_cast<HostCommunicator*>(made->release()));
  }

  std::unique_ptr<GroupMeeting> meeting;
  std::string token;
};

// Values whose sum depends on the order of addition.
float Value(uint32_t rank, int64_t i, int round) {
  auto bits = static_cast<uint32_t>(i * 1000003 + round * 7919 + rank * 97 + 1);
  for (int turn = 0; turn < 3; ++turn) bits = (bits ^ (bits >> 15)) * 0x2c1b3c6du;
  const float scale = rank % 2 == 0 ? 1.0f : 1e6f;
  return scale * (static_cast<float>(bits) / 4294967296.0f - 0.5f);
}

int SumRounds(HostCommunicator& comm) {
  const int64_t counts[] = {0, 1, 3, 576, 1023, 1025, kCapacity};
  std::vector<float> target(kCapacity);
  for (int round = 0; round < 70; ++round) {
    const int64_t count = counts[round % 7];
    float* staged = comm.Stage(count);
    if (reinterpret_cast<uintptr_t>(staged) % 64 != 0) return 2;
    for (int64_t i = 0; i < count; ++i) staged[i] = Value(comm.rank(), i, round);
    std::fill(target.begin(), target.end(), 0.25f);
    if (!comm.AllReduceAdd(target.data(), count).ok()) return 3;
    for (int64_t i = 0; i < count; ++i) {
      float sum = Value(0, i, round);
      for (uint32_t r = 1; r < comm.world(); ++r) sum += Value(r, i, round);
      const float expected = 0.25f + sum;
      if (std::memcmp(&expected, &target[static_cast<size_t>(i)], sizeof(float)) != 0) return 4;
    }
    if (count < kCapacity && target[static_cast<size_t>(count)] != 0.25f) return 5;
  }
  return 0;
}

int GatherRounds(HostCommunicator& comm) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4673}, size_t{3000003}}) {
    std::vector<uint8_t> mine(bytes), all(bytes * comm.world() + 1, 0xee);
    for (size_t i = 0; i < bytes; ++i) {
      mine[i] = static_cast<uint8_t>(i * 31 + comm.rank() * 101 + bytes);
    }
    if (!comm.AllGather(mine.data(), bytes, all.data()).ok()) return 12;
    for (uint32_t r = 0; r < comm.world(); ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        if (all[r * bytes + i] != static_cast<uint8_t>(i * 31 + r * 101 + bytes)) return 13;
      }
    }
    if (all.back() != 0xee) return 14;
  }
  return 0;
}

TEST_CASE("Sums and gathers of ranks that meet over TCP are those of one host", "[shard][comm]") {
  const uint32_t world = GENERATE(2u, 3u, 5u);
  Offered offered(world);
  RankProcesses ranks(world, [&](Rank rank) {
    const auto comm = offered.Join(rank, world);
    if (comm == nullptr) return 1;
    const int sums = SumRounds(*comm);
    return sums != 0 ? sums : GatherRounds(*comm);
  });
  for (Rank rank = 0; rank < world; ++rank) CHECK(ranks.Wait(rank) == 0);
}

TEST_CASE("Ranks meet over IPv6, too", "[shard][comm]") {
  Offered offered(2, "::1");
  RankProcesses ranks(2, [&](Rank rank) {
    const auto comm = offered.Join(rank, 2);
    return comm == nullptr ? 1 : SumRounds(*comm);
  });
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("A rank that dies in a collective ends the others' wait at once", "[shard][comm]") {
  Offered offered(3);
  int gate[2];
  int met[2];
  REQUIRE(pipe(gate) == 0);
  REQUIRE(pipe(met) == 0);
  RankProcesses ranks(3, [&](Rank rank) {
    const auto comm = offered.Join(rank, 3);
    if (comm == nullptr) return 1;
    if (rank == 2) {
      char byte = 0;
      if (write(met[1], "x", 1) != 1) return 7;
      return read(gate[0], &byte, 1) == 1 ? 8 : 9;
    }
    std::vector<float> target(4, 0.0f);
    comm->Stage(4);
    const absl::Status status = comm->AllReduceAdd(target.data(), 4);
    // Of the two that are left one hears of the death, the other perhaps of the first one's end.
    return absl::IsUnavailable(status) && absl::StrContains(status.message(), "epoch 7") ? 0 : 2;
  });
  char byte = 0;
  REQUIRE(read(met[0], &byte, 1) == 1);
  const int64_t begin_us = MonotonicClock().NowUs();
  kill(ranks.pid(2), SIGKILL);
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
  CHECK(MonotonicClock().NowUs() - begin_us < 5'000'000);
  CHECK(ranks.Wait(2) == -SIGKILL);
  for (const int fd : {gate[0], gate[1], met[0], met[1]}) close(fd);
}

TEST_CASE("A rank that does not come to a collective is named after the time-out",
          "[shard][comm]") {
  Offered offered(2);
  int gate[2];
  REQUIRE(pipe(gate) == 0);
  RankProcesses ranks(2, [&](Rank rank) {
    const auto comm =
        offered.Join(rank, 2, rank == 0 ? absl::Milliseconds(1500) : absl::Seconds(60));
    if (comm == nullptr) return 1;
    if (rank == 1) {
      char byte = 0;
      return read(gate[0], &byte, 1) == 1 ? 0 : 9;
    }
    std::vector<float> target(4, 0.0f);
    comm->Stage(4);
    const absl::Status status = comm->AllReduceAdd(target.data(), 4);
    if (!absl::IsDeadlineExceeded(status) ||
        !absl::StrContains(status.message(), "rank 0 gave up waiting for rank 1")) {
      return 2;
    }
    // It has left the epoch, and waits for nobody again.
    return absl::IsAborted(comm->AllReduceAdd(target.data(), 4)) ? 0 : 3;
  });
  CHECK(ranks.Wait(0) == 0);
  REQUIRE(write(gate[1], "x", 1) == 1);
  CHECK(ranks.Wait(1) == 0);
  close(gate[0]);
  close(gate[1]);
}

TEST_CASE("Ranks at different collectives say so instead of adding what does not belong together",
          "[shard][comm]") {
  Offered offered(2);
  RankProcesses ranks(2, [&](Rank rank) {
    const auto comm = offered.Join(rank, 2);
    if (comm == nullptr) return 1;
    std::vector<float> target(8, 0.0f);
    const int64_t count = rank == 0 ? 4 : 8;
    comm->Stage(count);
    const absl::Status status = comm->AllReduceAdd(target.data(), count);
    if (absl::IsUnavailable(status)) return 0;  // the other one has seen it and gone
    return absl::IsInternal(status) && absl::StrContains(status.message(), "is at collective 2 of")
               ? 0
               : 2;
  });
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("A meeting names the rank that does not come, and ends when it is aborted",
          "[shard][comm]") {
  Offered offered(3);
  const auto late = offered.meeting->Meet(Call(offered.token, 0, 3, absl::Milliseconds(100)));
  CHECK(absl::IsDeadlineExceeded(late.status()));
  CHECK(absl::StrContains(late.status().message(), "waited for rank 1, 2 of epoch 7"));

  auto meeting = Meeting();
  const auto offer = meeting->Offer(kEpoch, 2);
  REQUIRE(offer.ok());
  auto aborting = Thread::Start("aborting", [&] { meeting->Abort(kEpoch); });
  REQUIRE(aborting.ok());
  CHECK(absl::IsAborted(meeting->Meet(Call(*offer, 0, 2)).status()));
}

TEST_CASE("An offer is listened to until it is withdrawn", "[shard][comm]") {
  Offered offered(2);
  offered.meeting->Withdraw(kEpoch);
  CHECK(absl::IsAborted(offered.meeting->Meet(Call(offered.token, 0, 2)).status()));
  const auto other = Meeting()->Meet(Call(offered.token, 1, 2, absl::Milliseconds(200)));
  CHECK(absl::IsDeadlineExceeded(other.status()));
  CHECK(absl::StrContains(other.status().message(), "Connection refused"));
}

// `world` ranks of which the last has another secret, epoch, or nothing to say.
TEST_CASE("Who does not belong to the epoch is not let in", "[shard][comm]") {
  Offered offered(2);
  const std::vector<std::string> words = absl::StrSplit(offered.token, ' ');
  std::string wrong = offered.token;
  char& digit = wrong[absl::string_view("mesh ").size()];
  digit = digit == '0' ? '1' : '0';
  int refused[2];
  REQUIRE(pipe(refused) == 0);
  RankProcesses ranks(3, [&](Rank rank) {
    if (rank == 2) {  // a stranger that takes the place of rank 1, and comes before it
      const auto stranger = Meeting()->Meet(Call(wrong, 1, 2, absl::Seconds(20)));
      MeetCall other_epoch = Call(offered.token, 1, 2, absl::Seconds(20));
      other_epoch.epoch = kEpoch + 1;
      const auto late = Meeting()->Meet(other_epoch);
      if (write(refused[1], "x", 1) != 1) return 2;
      return absl::IsUnavailable(stranger.status()) && absl::IsUnavailable(late.status()) ? 0 : 1;
    }
    if (rank == 1) {
      char byte = 0;
      if (read(refused[0], &byte, 1) != 1) return 3;
      const TcpEndpoint first{words[2], static_cast<uint32_t>(std::stoi(words[3]))};
      Patience patience;
      patience.deadline = absl::Now() + absl::Seconds(20);
      const auto silent = ConnectTcp(first, patience);
      if (!silent.ok()) return 2;
      const auto comm = offered.Join(rank, 2);
      return comm == nullptr ? 1 : SumRounds(*comm);
    }
    const auto comm = offered.Join(rank, 2);
    return comm == nullptr ? 1 : SumRounds(*comm);
  });
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
  CHECK(ranks.Wait(2) == 0);
  close(refused[0]);
  close(refused[1]);
}

TEST_CASE("Who connects and says nothing is sent away while the others are waited for",
          "[shard][comm][long]") {
  Offered offered(2);
  const std::vector<std::string> words = absl::StrSplit(offered.token, ' ');
  RankProcesses ranks(2, [&](Rank rank) {
    if (rank == 0) return offered.Join(0, 2) == nullptr ? 1 : 0;
    Patience patience;
    patience.deadline = absl::Now() + absl::Seconds(30);
    const auto silent =
        ConnectTcp({words[2], static_cast<uint32_t>(std::stoi(words[3]))}, patience);
    if (!silent.ok()) return 2;
    char byte = 0;
    const absl::Status closed = ReadAll(*silent, &byte, 1, patience);
    if (!absl::IsUnavailable(closed)) return 3;
    return offered.Join(1, 2) == nullptr ? 1 : 0;
  });
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("Ranks that were started in different ways are told what to change", "[shard][comm]") {
  Offered offered(2);
  const auto in_memory = MakeHostMeeting(kCapacity);
  const auto told = in_memory->Meet(Call(offered.token, 1, 2));
  CHECK(absl::IsFailedPrecondition(told.status()));
  CHECK(absl::StrContains(told.status().message(), "--comm-host"));
  const auto offer = in_memory->Offer(kEpoch, 2);
  REQUIRE(offer.ok());
  CHECK(absl::StrContains(Meeting()->Meet(Call(*offer, 1, 2)).status().message(), "--comm-host"));

  // Another --step-tokens-max: the first rank knows and says it.
  RankProcesses ranks(2, [&](Rank rank) {
    if (rank == 1) {
      return Meeting("127.0.0.1", kCapacity + 1)->Meet(Call(offered.token, 1, 2)).ok() ? 1 : 0;
    }
    const auto differs = offered.meeting->Meet(Call(offered.token, 0, 2));
    return absl::StrContains(differs.status().message(), "--step-tokens-max") ? 0 : 2;
  });
  CHECK(ranks.Wait(0) == 0);
  CHECK(ranks.Wait(1) == 0);
}

TEST_CASE("An interface is found by any way to write its address", "[shard][comm]") {
  CHECK(InterfaceName("127.0.0.1").value_or("none") == "lo");
  CHECK(InterfaceName("0:0:0:0:0:0:0:1").value_or("none") == "lo");
  CHECK(absl::IsNotFound(InterfaceName("192.0.2.1").status()));
  CHECK(absl::IsNotFound(InterfaceName("localhost").status()));
}

TEST_CASE("An address that cannot be listened on is a start-up error", "[shard][comm]") {
  CHECK(absl::StrContains(ListenTcp("node-1", {}).status().message(),
                          "--comm-host: \"node-1\" is not an IP address"));
  CHECK(absl::StrContains(ListenTcp("192.0.2.1", {}).status().message(),
                          "--comm-host: 192.0.2.1 is no address of this host"));
  const auto taken = ListenTcp("127.0.0.1", {});
  REQUIRE(taken.ok());
  const uint32_t port = PortOf(*taken);
  CHECK(absl::StrContains(ListenTcp("127.0.0.1", {port, port}).status().message(),
                          "--comm-ports: no port of"));
}

}  // namespace
}  // namespace weft::shard
