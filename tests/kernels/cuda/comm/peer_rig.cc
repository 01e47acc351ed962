#include "tests/kernels/cuda/comm/peer_rig.h"

#include <cstdio>
#include <thread>

#include "common/check.h"

namespace weft::kernels::cuda::testing {
namespace {

template <typename T>
std::unique_ptr<DeviceArray<T>> Zeroed(size_t size) {
  auto array = std::make_unique<DeviceArray<T>>(size);
  WEFT_CUDA_CHECK(cudaMemset(array->data(), 0, size * sizeof(T)));
  return array;
}

void EnablePeer(int peer) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  WEFT_CUDA_CHECK(error);
}

}  // namespace

uint32_t GpuCount() {
  if (!NoGpu().empty()) return 0;
  int count = 0;
  WEFT_CUDA_CHECK(cudaGetDeviceCount(&count));
  return static_cast<uint32_t>(count);
}

std::string NoPeers(uint32_t gpus) {
  const uint32_t count = GpuCount();
  if (count == 0) return NoGpu();
  if (count < gpus) {
    return std::to_string(gpus) + " GPUs wanted, " + std::to_string(count) + " there";
  }
  for (uint32_t a = 0; a < gpus; ++a) {
    for (uint32_t b = 0; b < gpus; ++b) {
      int can = 1;
      if (a != b) {
        WEFT_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, static_cast<int>(a), static_cast<int>(b)));
      }
      if (can == 0) {
        return "GPU " + std::to_string(a) + " cannot access GPU " + std::to_string(b);
      }
    }
  }
  return "";
}

HostWords::HostWords() {
  WEFT_CUDA_CHECK(
      cudaHostAlloc(&words_, 2 * sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped));
  Clear();
}

HostWords::~HostWords() { cudaFreeHost(words_); }

void HostWords::Clear() {
  for (int i = 0; i < 2; ++i) static_cast<volatile uint32_t*>(words_)[i] = 0;
}

PeerRank::PeerRank(uint32_t rank, int device, size_t elements, uint32_t hidden)
    : rank(rank), device(device) {
  WEFT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (auto& buffer : partial) buffer = std::make_unique<DeviceArray<__nv_bfloat16>>(elements);
  for (auto& box : mail) box = Zeroed<uint32_t>(AllReduceMailBytes(hidden) / sizeof(uint32_t));
  flags = Zeroed<uint32_t>(kAllReduceFlags);
  state = Zeroed<AllReduceState>(1);
  residual = Zeroed<float>(elements);
  weight = std::make_unique<DeviceArray<__nv_bfloat16>>(Halves(std::vector<float>(hidden, 1.0f)));
  out = std::make_unique<DeviceArray<__nv_bfloat16>>(elements);
  WEFT_CUDA_CHECK(cudaDeviceSynchronize());
}

PeerRank::~PeerRank() { cudaStreamDestroy(stream); }

PeerRig::PeerRig(uint32_t world, uint32_t rows_max, uint32_t hidden) : hidden_(hidden) {
  const uint32_t gpus = GpuCount();
  WEFT_CHECK_LE(world, gpus * kRanksOfGpuMax);
  if (gpus < world) {
    std::printf("%u ranks share %u GPUs\n", world, gpus);
  }
  for (uint32_t r = 0; r < world; ++r) {
    const int device = static_cast<int>(r % gpus);
    WEFT_CUDA_CHECK(cudaSetDevice(device));
    ranks_.push_back(std::make_unique<PeerRank>(r, device, size_t{rows_max} * hidden, hidden));
    for (uint32_t p = 0; p < world; ++p) {
      const int peer = static_cast<int>(p % gpus);
      if (peer != device) EnablePeer(peer);
    }
  }
  WEFT_CUDA_CHECK(cudaSetDevice(0));
}

AllReduceParams PeerRig::Params(uint32_t rank, uint32_t call, uint32_t rows) {
  AllReduceParams params;
  for (uint32_t p = 0; p < world(); ++p) {
    params.partial[p] = ranks_[p]->partial[call % 2]->data();
    params.mail[p] = ranks_[p]->mail[call % 2]->data();
    params.flags[p] = ranks_[p]->flags->data();
  }
  PeerRank& own = *ranks_[rank];
  params.state = own.state->data();
  params.rank = rank;
  params.world = world();
  params.residual = own.residual->data();
  params.weight = own.weight->data();
  params.out = own.out->data();
  params.rows = rows;
  params.hidden = hidden_;
  params.epsilon = 1e-5f;
  params.abort = own.host.abort();
  params.status = own.host.status();
  return params;
}

void PeerRig::ForEachRank(const std::function<void(PeerRank&)>& work) {
  for (auto& rank : ranks_) {
    WEFT_CUDA_CHECK(cudaSetDevice(rank->device));
    work(*rank);
  }
  WEFT_CUDA_CHECK(cudaSetDevice(0));
}

void PeerRig::OnEachRank(const std::function<void(PeerRank&)>& work) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks_) {
    threads.emplace_back([&work, rank = rank.get()] {
      WEFT_CUDA_CHECK(cudaSetDevice(rank->device));
      work(*rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

AllReduceParams WithoutMail(AllReduceParams params) {
  for (void*& mail : params.mail) mail = nullptr;
  return params;
}

std::vector<__nv_bfloat16> Halves(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> out;
  out.reserve(values.size());
  for (float value : values) out.push_back(__float2bfloat16_rn(value));
  return out;
}

}  // namespace weft::kernels::cuda::testing
