// Ranks of a group in one process, for tests: one thread, stream and GPU each, with the memory that
// an all-reduce needs mapped to one another. Where there are fewer GPUs than ranks, ranks share
// them: sound as long as all their kernels run on it together, so for two ranks and few rows only.

#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/comm/all_reduce.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

// Kernels of a third rank may wait in a queue for the end of those that wait for them.
inline constexpr uint32_t kRanksOfGpuMax = 2;

// Of this machine; 0 without one that can run the kernels.
uint32_t GpuCount();

// Reason why ranks on that many GPUs cannot reach each other's memory; empty when they can.
// Without it printed, nothing of such a test has run.
std::string NoPeers(uint32_t gpus);

// Two words that host and kernels share.
class HostWords {
 public:
  HostWords();
  ~HostWords();
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;

  uint32_t* abort() { return words_; }
  uint32_t* status() { return words_ + 1; }
  uint32_t Status() const { return *static_cast<volatile uint32_t*>(words_ + 1); }
  void Abort() { *static_cast<volatile uint32_t*>(words_) = 1; }
  void Clear();

 private:
  uint32_t* words_ = nullptr;
};

struct PeerRank {
  PeerRank(uint32_t rank, int device, size_t elements, uint32_t hidden);
  ~PeerRank();

  const uint32_t rank;
  const int device;
  cudaStream_t stream = nullptr;
  HostWords host;
  std::array<std::unique_ptr<DeviceArray<__nv_bfloat16>>, 2> partial;
  std::array<std::unique_ptr<DeviceArray<uint32_t>>, 2> mail;
  std::unique_ptr<DeviceArray<uint32_t>> flags;
  std::unique_ptr<DeviceArray<AllReduceState>> state;
  std::unique_ptr<DeviceArray<float>> residual;
  std::unique_ptr<DeviceArray<__nv_bfloat16>> weight;
  std::unique_ptr<DeviceArray<__nv_bfloat16>> out;
};

class PeerRig {
 public:
  // REQUIRES: no more than kRanksOfGpuMax ranks a GPU.
  PeerRig(uint32_t world, uint32_t rows_max, uint32_t hidden);

  uint32_t world() const { return static_cast<uint32_t>(ranks_.size()); }
  PeerRank& rank(uint32_t rank) { return *ranks_[rank]; }
  // Of call `call`: it takes the buffer of that parity, and the mailbox.
  AllReduceParams Params(uint32_t rank, uint32_t call, uint32_t rows);

  // One after another in this thread, with the rank's device current.
  void ForEachRank(const std::function<void(PeerRank&)>& work);
  // At the same time; returns when all have.
  void OnEachRank(const std::function<void(PeerRank&)>& work);

 private:
  const uint32_t hidden_;
  std::vector<std::unique_ptr<PeerRank>> ranks_;
};

// The same call with rows that the ranks load from each other.
AllReduceParams WithoutMail(AllReduceParams params);

std::vector<__nv_bfloat16> Halves(const std::vector<float>& values);

}  // namespace weft::kernels::cuda::testing
