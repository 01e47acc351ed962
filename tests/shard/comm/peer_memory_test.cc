#include "shard/comm/peer_memory.h"

#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "kernels/cuda/comm/all_reduce.h"
#include "kernels/cuda/elementwise/norm.h"
#include "tests/kernels/cuda/comm/peer_rig.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

using kernels::cuda::AllReduceParams;
using kernels::cuda::AllReduceState;
using kernels::cuda::NormParams;
using kernels::cuda::testing::DeviceArray;
namespace gpu = kernels::cuda::testing;

// Before the first call of NCCL: no NVLink multicast.
const bool no_multicast = setenv("NCCL_NVLS_ENABLE", "0", 1) == 0;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr uint32_t kHidden = 8192;
constexpr uint32_t kRowsMax = 16;
constexpr size_t kElements = size_t{kRowsMax} * kHidden;

// What a rank shares: two buffers of partial sums, and the words by which ranks meet.
constexpr uint64_t kPartialBytes = kElements * 2;
constexpr uint64_t kFlagsAt = 2 * kPartialBytes;
constexpr uint64_t kMemoryBytes = kFlagsAt + kernels::cuda::kAllReduceFlags * sizeof(uint32_t);

// A rank in a thread of its own.
struct Member {
  Member(uint32_t rank, uint32_t world, const std::string& token) : rank(rank), world(world) {
    WEFT_CUDA_CHECK(cudaSetDevice(static_cast<int>(rank)));
    WEFT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MeetCall call;
    call.epoch = 1;
    call.token = token;
    call.rank = rank;
    call.world = world;
    call.deadline = absl::Now() + kTimeout;
    call.peer_timeout = kTimeout;
    auto met = MakeNcclMeeting(static_cast<int>(rank))->Meet(call);
    WEFT_CHECK_MSG(met.ok(), std::string(met.status().message()));
    comm.reset(static_cast<NcclCommunicator*>(met->release()));
    residual.emplace(std::vector<float>(kElements, 0.0f));
    weight.emplace(gpu::Halves(std::vector<float>(kHidden, 1.0f)));
    out.emplace(kElements);
    state.emplace(1);
    WEFT_CUDA_CHECK(cudaMemset(state->data(), 0, sizeof(AllReduceState)));
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
  }
  ~Member() {
    memory.reset();
    comm.reset();
    cudaStreamDestroy(stream);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // REQUIRES: connected memory.
  AllReduceParams Params(uint32_t call, uint32_t rows) {
    AllReduceParams params;
    for (uint32_t p = 0; p < world; ++p) {
      params.partial[p] = memory->Of(p) + call % 2 * kPartialBytes;
      params.flags[p] = reinterpret_cast<uint32_t*>(memory->Of(p) + kFlagsAt);
    }
    params.state = state->data();
    params.rank = rank;
    params.world = world;
    params.residual = residual->data();
    params.weight = weight->data();
    params.out = out->data();
    params.rows = rows;
    params.hidden = kHidden;
    params.epsilon = 1e-5f;
    params.abort = host.abort();
    params.status = host.status();
    return params;
  }
  absl::Status Connect() {
    if (memory == nullptr) {
      auto made = PeerMemory::Create(kMemoryBytes);
      if (!made.ok()) return made.status();
      memory = *std::move(made);
    }
    return memory->Connect(*comm, stream, kTimeout);
  }

  const uint32_t rank;
  const uint32_t world;
  cudaStream_t stream = nullptr;
  std::unique_ptr<NcclCommunicator> comm;
  gpu::HostWords host;
  std::unique_ptr<PeerMemory> memory;
  std::optional<DeviceArray<float>> residual;
  std::optional<DeviceArray<__nv_bfloat16>> weight;
  std::optional<DeviceArray<__nv_bfloat16>> out;
  std::optional<DeviceArray<AllReduceState>> state;
};

// `work` on each rank at the same time; `together` is a barrier of all. Assertions of Catch2 are
// for one thread: `work` returns what went wrong.
using Work = std::function<absl::Status(Member&, std::barrier<>&)>;
std::vector<absl::Status> OnEachRank(uint32_t world, const Work& work) {
  WEFT_CHECK(no_multicast);
  const std::string token = *MakeNcclMeeting(0)->Offer(1, world);
  std::vector<absl::Status> statuses(world);
  std::barrier<> together(world);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Member member(rank, world, token);
      statuses[rank] = work(member, together);
      WEFT_CUDA_CHECK(cudaDeviceSynchronize());
      // No rank's memory goes while another's kernels read it.
      if (statuses[rank].ok()) {
        together.arrive_and_wait();
      } else {
        together.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

bool CanRun(uint32_t world) {
  const std::string reason = gpu::NoPeers(world);
  if (reason.empty()) return true;
  test::LeaveOut("peers", std::to_string(world) + " ranks: " + reason);
  return false;
}

absl::Status Wrong(absl::string_view what) { return absl::InternalError(what); }

TEST_CASE("Peer memory is zero everywhere and every rank reaches every rank's", "[cuda][peer]") {
  const uint32_t world = GENERATE(2u, 4u);
  if (!CanRun(world)) return;
  CAPTURE(world);
  const auto statuses = OnEachRank(world, [](Member& member, std::barrier<>& together) {
    const absl::Status opened = member.Connect();
    if (!opened.ok()) return opened;
    const PeerMemory& memory = *member.memory;
    if (memory.bytes() != kMemoryBytes) return Wrong("size");
    if (memory.Of(member.rank) != memory.data()) return Wrong("own address");
    std::vector<uint8_t> seen(kMemoryBytes, 1);
    for (uint32_t p = 0; p < member.world; ++p) {
      WEFT_CUDA_CHECK(cudaMemcpy(seen.data(), memory.Of(p), kMemoryBytes, cudaMemcpyDefault));
      if (std::any_of(seen.begin(), seen.end(), [](uint8_t x) { return x != 0; })) {
        return Wrong("not zero");
      }
    }
    together.arrive_and_wait();
    WEFT_CUDA_CHECK(cudaMemset(memory.data(), static_cast<int>(member.rank) + 1, kMemoryBytes));
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    together.arrive_and_wait();
    for (uint32_t p = 0; p < member.world; ++p) {
      WEFT_CUDA_CHECK(cudaMemcpy(seen.data(), memory.Of(p), kMemoryBytes, cudaMemcpyDefault));
      if (std::any_of(seen.begin(), seen.end(), [p](uint8_t x) { return x != p + 1; })) {
        return Wrong("not what the rank wrote");
      }
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

TEST_CASE("Ranks connect again and again", "[cuda][peer]") {
  if (!CanRun(2)) return;
  const auto statuses = OnEachRank(2, [](Member& member, std::barrier<>& together) {
    for (int i = 0; i < 3; ++i) {
      const absl::Status opened = member.Connect();
      if (!opened.ok()) return opened;
      together.arrive_and_wait();
      member.memory->Disconnect();
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

TEST_CASE("All-reduces over peer memory, data changing", "[cuda][peer][all_reduce]") {
  const uint32_t world = GENERATE(2u, 4u);
  if (!CanRun(world)) return;
  CAPTURE(world);
  constexpr uint32_t kCalls = 400;
  constexpr uint32_t kSets = 6;
  // Small whole numbers: any sum of them is exact.
  const auto value = [](uint32_t rank, uint32_t set, size_t i) {
    return static_cast<float>((rank * 7 + set * 5 + i * 3 + (i >> 7)) % 17) - 8;
  };
  const auto statuses = OnEachRank(world, [&](Member& member, std::barrier<>& together) {
    if (const absl::Status opened = member.Connect(); !opened.ok()) return opened;
    std::vector<std::unique_ptr<DeviceArray<__nv_bfloat16>>> sets;
    std::vector<float> expected(kElements, 0.0f);
    for (uint32_t s = 0; s < kSets; ++s) {
      std::vector<float> values(kElements);
      for (size_t i = 0; i < kElements; ++i) {
        values[i] = value(member.rank, s, i);
        for (uint32_t p = 0; p < member.world; ++p) {
          expected[i] += value(p, s, i) * (kCalls / kSets + (s < kCalls % kSets ? 1 : 0));
        }
      }
      sets.push_back(std::make_unique<DeviceArray<__nv_bfloat16>>(gpu::Halves(values)));
    }
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    together.arrive_and_wait();
    for (uint32_t call = 0; call < kCalls; ++call) {
      WEFT_CUDA_CHECK(cudaMemcpyAsync(member.memory->data() + call % 2 * kPartialBytes,
                                      sets[call % kSets]->data(), kPartialBytes,
                                      cudaMemcpyDeviceToDevice, member.stream));
      WEFT_CUDA_CHECK(AllReduceAddNorm(member.Params(call, kRowsMax), member.stream));
    }
    WEFT_CUDA_CHECK(cudaStreamSynchronize(member.stream));
    if (member.host.Status() != 0) return Wrong("a wait failed");
    return member.residual->Host() == expected ? absl::OkStatus() : Wrong("sums");
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

// Of one of the 64 calls of a graph, on this rank; the median of many replays.
double UsPerCall(Member& member, std::barrier<>& together,
                 const std::function<void(uint32_t call)>& launch) {
  constexpr uint32_t kCalls = 64;
  constexpr int kReplays = 31;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaEvent_t begin, end;
  WEFT_CUDA_CHECK(cudaEventCreate(&begin));
  WEFT_CUDA_CHECK(cudaEventCreate(&end));
  WEFT_CUDA_CHECK(cudaStreamBeginCapture(member.stream, cudaStreamCaptureModeThreadLocal));
  for (uint32_t call = 0; call < kCalls; ++call) launch(call);
  WEFT_CUDA_CHECK(cudaStreamEndCapture(member.stream, &graph));
  WEFT_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<float> times_ms(kReplays);
  for (float& ms : times_ms) {
    together.arrive_and_wait();
    WEFT_CUDA_CHECK(cudaEventRecord(begin, member.stream));
    WEFT_CUDA_CHECK(cudaGraphLaunch(executable, member.stream));
    WEFT_CUDA_CHECK(cudaEventRecord(end, member.stream));
    WEFT_CUDA_CHECK(cudaEventSynchronize(end));
    WEFT_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
  }
  together.arrive_and_wait();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times_ms.begin(), times_ms.begin() + kReplays / 2, times_ms.end());
  return 1e3 * times_ms[kReplays / 2] / kCalls;
}

// What it replaces: NCCL's sum, then the norm that adds it to the residual.
void LaunchNccl(Member& member, uint32_t call, uint32_t rows) {
  uint8_t* const partial = member.memory->data() + call % 2 * kPartialBytes;
  WEFT_CHECK(member.comm
                 ->AllReduce(partial, uint64_t{rows} * kHidden, kernels::cuda::DType::kBfloat16,
                             member.stream)
                 .ok());
  NormParams norm;
  norm.delta = partial;
  norm.residual = member.residual->data();
  norm.weight = member.weight->data();
  norm.out = member.out->data();
  norm.rows = rows;
  norm.hidden = kHidden;
  norm.epsilon = 1e-5f;
  WEFT_CUDA_CHECK(RmsNorm(norm, member.stream));
}

TEST_CASE("All-reduce over peer memory and NCCL's: time", "[cuda][peer][time]") {
  const uint32_t world = GENERATE(2u, 4u);
  if (!CanRun(world)) return;
  const auto statuses = OnEachRank(world, [](Member& member, std::barrier<>& together) {
    if (const absl::Status opened = member.Connect(); !opened.ok()) return opened;
    // NCCL connects its channels at the first use.
    LaunchNccl(member, 0, 1);
    WEFT_CUDA_CHECK(cudaStreamSynchronize(member.stream));
    for (const uint32_t rows : {1u, 2u, 4u, 16u}) {
      const double nccl =
          UsPerCall(member, together, [&](uint32_t call) { LaunchNccl(member, call, rows); });
      const double ours = UsPerCall(member, together, [&](uint32_t call) {
        AllReduceParams params = member.Params(call, rows);
        params.dependent = true;
        WEFT_CUDA_CHECK(AllReduceAddNorm(params, member.stream));
      });
      if (member.rank != 0) continue;
      const std::string shape = std::to_string(member.world) + " ranks, " + std::to_string(rows) +
                                " x " + std::to_string(kHidden);
      gpu::Report("ncclAllReduce + norm", shape, nccl, 2.0 * rows * kHidden);
      gpu::Report("all-reduce over peer memory", shape, ours, 2.0 * rows * kHidden);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
}

}  // namespace
}  // namespace weft::shard
