// The end of an epoch whose device thread does not come to end it: it is inside a call of CUDA that
// waits for the device, which waits for another rank.

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "shard/comm/nccl_communicator.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using kernels::cuda::testing::DeviceArray;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr uint64_t kCount = 4096;

std::unique_ptr<NcclCommunicator> Meet(uint32_t rank, const std::string& token) {
  WEFT_CUDA_CHECK(cudaSetDevice(static_cast<int>(rank)));
  MeetCall call;
  call.epoch = 1;
  call.token = token;
  call.rank = rank;
  call.world = 2;
  call.deadline = absl::Now() + kTimeout;
  call.peer_timeout = kTimeout;
  auto met = MakeNcclMeeting(static_cast<int>(rank))->Meet(call);
  WEFT_CHECK_MSG(met.ok(), std::string(met.status().message()));
  return std::unique_ptr<NcclCommunicator>(static_cast<NcclCommunicator*>(met->release()));
}

// The ranks connect at their first sum.
void SumTogether(NcclCommunicator& communicator) {
  DeviceArray<float> values(kCount);
  const absl::Status summed =
      communicator.AllReduce(values.data(), kCount, DType::kFloat32, nullptr);
  WEFT_CHECK_MSG(summed.ok(), std::string(summed.message()));
  WEFT_CUDA_CHECK(cudaDeviceSynchronize());
}

TEST_CASE("An abort asked for again frees a thread that waits for its device", "[cuda][comm]") {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
    test::SkipTest("gpus", "there is " + std::to_string(gpus));
  }
  const auto offered = MakeNcclMeeting(0)->Offer(1, 2);
  REQUIRE(offered.ok());
  std::unique_ptr<NcclCommunicator> peer;
  std::thread other([&] {
    peer = Meet(1, *offered);
    SumTogether(*peer);
  });
  std::unique_ptr<NcclCommunicator> mine = Meet(0, *offered);
  SumTogether(*mine);
  other.join();
  absl::Notification waits;
  absl::Notification free;
  std::thread device([&] {
    WEFT_CUDA_CHECK(cudaSetDevice(0));
    DeviceArray<float> values(kCount);
    // The peer never comes.
    const absl::Status alone = mine->AllReduce(values.data(), kCount, DType::kFloat32, nullptr);
    WEFT_CHECK_MSG(alone.ok(), std::string(alone.message()));
    waits.Notify();
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    free.Notify();
    mine->BeginEnd();
    mine->FinishEnd();
  });
  waits.WaitForNotification();
  mine->Abort();
  const absl::Time deadline = absl::Now() + kTimeout;
  while (!free.WaitForNotificationWithTimeout(absl::Milliseconds(50)) && absl::Now() < deadline) {
    mine->Abort();
  }
  // Joining a thread that waits for good would hide it.
  WEFT_CHECK_MSG(free.HasBeenNotified(), "the device thread still waits for its device");
  device.join();
  WEFT_CUDA_CHECK(cudaSetDevice(1));
  peer.reset();
}

}  // namespace
}  // namespace weft::shard
