// Batches for the tests of decode attention, with their answer.

#pragma once

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/attention/decode_attention.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::decode_testing {

using testing::DeviceArray;
using testing::DeviceTensor;

struct Case {
  std::vector<uint32_t> lengths;
  // Query heads of each KV head.
  std::vector<uint32_t> groups;
  uint32_t head_dim = 128;
  uint32_t window = 0;
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  uint32_t fixed_split = 0;
  DType type = DType::kBfloat16;
  DType kv_type = DType::kBfloat16;
  // The cache holds one number, and the host has no copy of it; so many layers of it.
  bool timed = false;
  uint32_t kv_copies = 1;
};

// Everything a launch needs, with the host's copy of it. What no row may see is NaN: blocks that
// are in no table, tokens after a context and before a window.
class Problem {
 public:
  Problem(const Case& shape, std::mt19937_64& random);

  // The answer in double precision.
  std::vector<double> Reference() const;
  void Schedule() { WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule_params_, nullptr)); }
  // Into a new output; checks that nothing after it was written.
  std::vector<float> Launch() { return LaunchWith(params_); }
  // The same with a schedule that does not know the block tables, or with kernels that overlap.
  std::vector<float> LaunchWithoutIds();
  std::vector<float> LaunchOverlapping();
  // Sequence `s` of the batch as a batch of its own.
  std::vector<float> LaunchAlone(uint32_t s);

  // For launches of another kind. The output is the caller's.
  const DecodeScheduleParams& schedule_params() const { return schedule_params_; }
  const DecodeAttentionParams& params() const { return params_; }
  // KV cache of another layer, of which a timed case has kv_copies.
  KvLayer Layer(uint32_t layer) const;
  uint32_t sequences() const { return sequences_; }
  uint32_t query_heads() const { return query_heads_; }

 private:
  void FillCache(std::mt19937_64& random);
  void* DeviceCache(const std::vector<float>& cache);
  // With a schedule, made right before in the same stream.
  std::vector<float> LaunchWith(DecodeAttentionParams params,
                                const DecodeScheduleParams* schedule = nullptr,
                                cudaStream_t stream = nullptr);
  void ReferenceRow(size_t s, uint32_t head, uint32_t kv_head, double* out) const;
  const float* Token(const std::vector<float>& cache, size_t s, uint32_t kv_head, uint32_t p) const;

  Case shape_;
  uint32_t sequences_, kv_heads_, query_heads_, query_stride_, table_stride_, pool_blocks_;
  std::vector<uint32_t> begins_, table_;
  std::vector<float> query_, keys_, values_, slopes_, sinks_;
  float scale_;

  std::unique_ptr<DeviceTensor> query_tensor_;
  std::vector<std::unique_ptr<DeviceTensor>> tensors_;
  std::unique_ptr<DeviceArray<uint32_t>> device_lengths_, device_table_, device_begins_;
  std::unique_ptr<DeviceArray<float>> device_slopes_, device_sinks_;
  std::unique_ptr<DeviceArray<uint8_t>> schedule_, workspace_;
  DecodeScheduleParams schedule_params_;
  DecodeAttentionParams params_;
};

}  // namespace weft::kernels::cuda::decode_testing
