#include "kernels/cuda/sampling/sampler.h"

#include <cuda_runtime.h>

#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kCountThreads = 1024;

// Places arrays one after the other; with a null base it only counts.
class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<uint8_t*>(base)) {}
  template <typename T>
  void Place(T** array, uint64_t count) {
    *array = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (count * sizeof(T) + 15) / 16 * 16;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* base_;
  uint64_t bytes_ = 0;
};

uint64_t PlaceWork(uint64_t rows, uint32_t vocabulary, uint32_t features, void* base,
                   SamplerWork* work) {
  Layout layout(base);
  *work = SamplerWork{};
  work->chunks = (vocabulary + kChunk - 1) / kChunk;
  work->adjusted_stride = (uint64_t{vocabulary} + 3) / 4 * 4;
  const uint64_t all_chunks = rows * work->chunks;
  layout.Place(&work->best, all_chunks);
  if ((features & kSamplerFilters) != 0) {
    layout.Place(&work->states, rows);
    layout.Place(&work->candidates, rows * kCandidatesMax);
  }
  if ((features & kSamplerLogprobs) != 0) {
    layout.Place(&work->raw, all_chunks);
    layout.Place(&work->raw_top, all_chunks * kSamplerTopLogprobsMax);
    if ((features & kSamplerAdjustments) != 0) {
      layout.Place(&work->adjusted, rows * work->adjusted_stride);
    }
  }
  return layout.bytes();
}

// One block: zeroes the row, marks the prompt, counts the output. The counts are 16-bit halves of
// 32-bit words, for the atomics; a half never overflows into the other, as it is clamped first.
__global__ void __launch_bounds__(kCountThreads) CountTokensOfSlot(CountTokensParams params) {
  for (uint32_t i = threadIdx.x; i < params.vocabulary; i += kCountThreads) params.counts[i] = 0;
  __syncthreads();
  uint32_t* words = reinterpret_cast<uint32_t*>(params.counts);
  for (uint32_t i = threadIdx.x; i < params.count; i += kCountThreads) {
    const uint32_t id = params.ids[i];
    if (id >= params.vocabulary) continue;
    uint32_t* word = words + id / 2;
    const uint32_t shift = id % 2 * 16;
    uint32_t seen = *word;
    for (;;) {
      const uint32_t half = seen >> shift & 0xffffu;
      uint32_t next = half | kCountPromptBit;
      if (i >= params.prompt_count) {
        next = (half & kCountOutputMask) < kCountOutputMask ? half + 1 : half;
      }
      if (next == half) break;
      const uint32_t found = atomicCAS(word, seen, (seen & ~(0xffffu << shift)) | next << shift);
      if (found == seen) break;
      seen = found;
    }
  }
}

}  // namespace

uint64_t SamplerWorkspaceBytes(uint32_t rows, uint32_t vocabulary, uint32_t features) {
  SamplerWork work;
  return PlaceWork(rows, vocabulary, features, nullptr, &work);
}

cudaError_t Sample(const SamplerParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  if (params.vocabulary == 0 || params.vocabulary > kSamplerVocabularyMax ||
      params.row_stride % 4 != 0 || params.count_stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  SamplerWork work;
  PlaceWork(params.rows, params.vocabulary, params.features, params.workspace, &work);
  cudaError_t error = LaunchScan(params, work, stream);
  if (error == cudaSuccess && (params.features & kSamplerFilters) != 0) {
    error = LaunchFilter(params, work, stream);
  }
  return error == cudaSuccess ? LaunchFinish(params, work, stream) : error;
}

cudaError_t CountTokens(const CountTokensParams& params, cudaStream_t stream) {
  CountTokensOfSlot<<<1, kCountThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
