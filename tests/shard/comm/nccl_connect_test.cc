// Ranks that cannot reach each other are told so, in time and with the way out.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "shard/comm/nccl_communicator.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/comm/rank_processes.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

void NeedGpu() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 1) {
    test::SkipTest("gpu", "there is none");
  }
}

// NCCL looks for its network once in a process, so each case asks a process of its own: this
// program again with a hidden case.
int AskAgain(const char* hidden_case, const char* variable, const std::string& value) {
  RankProcesses again(1, [&](uint32_t) {
    setenv(variable, value.c_str(), 1);
    execl("/proc/self/exe", "weft_cuda_comm_test", hidden_case, nullptr);
    return 98;
  });
  return again.Wait(0);
}

TEST_CASE("Without a network interface the meeting says what to set", "[cuda][comm]") {
  NeedGpu();
  CHECK(AskAgain("[no_interface]", "NCCL_SOCKET_IFNAME", "=nosuch0") == 0);
}

TEST_CASE("Hidden: an offer without a network interface", "[.][no_interface]") {
  const auto offered = MakeNcclMeeting(0)->Offer(1, 2);
  REQUIRE(!offered.ok());
  const std::string message(offered.status().message());
  CAPTURE(message);
  CHECK(message.find("an id for the group") != std::string::npos);
  CHECK(message.find("NCCL_SOCKET_IFNAME") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("A rank whose first rank is gone stops waiting at its deadline", "[cuda][comm]") {
  NeedGpu();
  test::TempDir folder;
  const std::string file = folder.path() + "/token";
  // The process that made the token ends, so nobody listens at its address any more.
  REQUIRE(AskAgain("[offer_and_go]", "RANK_TOKEN_FILE", file) == 0);
  MeetCall call;
  call.epoch = 1;
  std::ifstream(file) >> call.token;
  call.rank = 1;
  call.world = 2;
  call.peer_timeout = absl::Seconds(2);
  const absl::Time begin = absl::Now();
  call.deadline = begin + absl::Seconds(2);
  const auto met = MakeNcclMeeting(0)->Meet(call);
  REQUIRE(!met.ok());
  const std::string message(met.status().message());
  CAPTURE(message);
  CHECK(message.find("NCCL_SOCKET_IFNAME") != std::string::npos);
  CHECK(message.find('\n') == std::string::npos);
  // NCCL itself tries for minutes; aborting what it has begun takes some of its own time.
  CHECK(absl::Now() - begin < absl::Seconds(10));
}

TEST_CASE("Hidden: a token whose maker ends", "[.][offer_and_go]") {
  const auto offered = MakeNcclMeeting(0)->Offer(1, 2);
  REQUIRE(offered.ok());
  const char* const file = std::getenv("RANK_TOKEN_FILE");
  REQUIRE(file != nullptr);
  std::ofstream(file) << *offered;
}

}  // namespace
}  // namespace weft::shard
