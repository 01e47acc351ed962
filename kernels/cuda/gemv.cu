#include "kernels/cuda/gemv.h"

#include <cuda_runtime.h>

#include "kernels/cuda/device/gemv_input.cuh"
#include "kernels/cuda/device/gemv_work.cuh"

namespace weft::kernels::cuda {
namespace {

// Lane's part of the products of the unit's two rows of the weight with the rows of the input.
template <int kRows>
struct Products {
  float sum[2][kRows];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[0][r] = sum[1][r] = 0;
  }

  // A step: eight elements of each; `x` goes from row to row by `stride`.
  __device__ __forceinline__ void Add(const uint4& first, const uint4& second, const uint4* x,
                                      uint32_t stride) {
    uint4 rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) rows[r] = x[r * stride];
    AddPair(first.x, second.x, rows, &uint4::x);
    AddPair(first.y, second.y, rows, &uint4::y);
    AddPair(first.z, second.z, rows, &uint4::z);
    AddPair(first.w, second.w, rows, &uint4::w);
  }

 private:
  __device__ __forceinline__ void AddPair(uint32_t first, uint32_t second,
                                          const uint4 (&rows)[kRows], uint32_t uint4::*pair) {
    const float2 a = UnpackBfloat16(first);
    const float2 b = UnpackBfloat16(second);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float2 x = UnpackBfloat16(rows[r].*pair);
      sum[0][r] = fmaf(a.x, x.x, sum[0][r]);
      sum[1][r] = fmaf(b.x, x.x, sum[1][r]);
      sum[0][r] = fmaf(a.y, x.y, sum[0][r]);
      sum[1][r] = fmaf(b.y, x.y, sum[1][r]);
    }
  }
};

__device__ __forceinline__ float RoundToBfloat16(float x) {
  return ToFloat(FromFloat<__nv_bfloat16>(x));
}

// As kernels/cuda/activation.cu has it.
__device__ __forceinline__ float GatedSilu(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

// A unit's elements of `out`: lane r < kRows has those of row r.
template <int kRows>
class UnitOut {
 public:
  // `load`: the sums will be complete. What `out` holds is under way while they are made.
  __device__ __forceinline__ UnitOut(const GemvParams& params, const GemvPlan& plan,
                                     const GemvRange& range, uint32_t unit, bool load) {
    const uint32_t column = plan.gated ? unit : 2 * unit;
    const uint32_t lane = threadIdx.x % kWarp;
    at_ = size_t{lane} * params.out_stride + range.begin + column;
    has_second_ = !plan.gated && column + 1 < range.count;
    if (!load || params.epilogue != GemvEpilogue::kAccumulate || lane >= kRows) return;
    const auto* out = static_cast<const float*>(params.out) + at_;
    before_[0] = LoadWritten(out);
    if (has_second_) before_[1] = LoadWritten(out + 1);
  }

  // All lanes have all sums.
  __device__ __forceinline__ void Write(const GemvParams& params,
                                        const float (&total)[2][kRows]) const {
    const uint32_t lane = threadIdx.x % kWarp;
    float first = 0;
    float second = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      first = lane == r ? total[0][r] : first;
      second = lane == r ? total[1][r] : second;
    }
    if (lane >= kRows) return;
    if (params.epilogue == GemvEpilogue::kGatedSilu) {
      first = GatedSilu(RoundToBfloat16(first), RoundToBfloat16(second));
    } else if (params.epilogue == GemvEpilogue::kAccumulate) {
      first += before_[0];
      second += before_[1];
    }
    if (params.out_type == DType::kFloat32) {
      StoreAs<float>(params.out, first, second);
    } else {
      StoreAs<__nv_bfloat16>(params.out, first, second);
    }
  }

 private:
  template <typename T>
  __device__ __forceinline__ void StoreAs(void* out, float first, float second) const {
    T* to = static_cast<T*>(out) + at_;
    to[0] = FromFloat<T>(first);
    if (has_second_) to[1] = FromFloat<T>(second);
  }

  size_t at_;
  float before_[2] = {0, 0};
  bool has_second_;
};

// A warp.
template <int kRows>
class Worker {
 public:
  __device__ __forceinline__ Worker(const GemvParams& params, const GemvPlan& plan, char* shared,
                                    const uint4* x, float* carried)
      : warp_(threadIdx.x / kWarp),
        range_(plan, warp_),
        stream_(params, plan, range_),
        x_(x + threadIdx.x % kWarp),
        carried_(carried + warp_ * GemvShape::kCarriedFloats) {
    ring_ = SharedAddress(shared) + warp_ * GemvShape::kDepth * GemvShape::kSlotBytes +
            threadIdx.x % kWarp * 16;
    slot_ = ring_;
  }

  // Fills the ring with the first steps.
  __device__ __forceinline__ void Prefetch(const GemvParams& params, const GemvPlan& plan) {
#pragma unroll 1
    for (uint32_t i = 0; i < GemvShape::kDepth; ++i) {
      stream_.Issue(params, plan, range_, ring_ + i * GemvShape::kSlotBytes);
    }
    if (params.dependent) stream_.PrefetchLater(params);
  }

  // The units from `block` on that are taken together, over one panel.
  __device__ __forceinline__ void TakeBlock(const GemvParams& params, const GemvPlan& plan,
                                            uint32_t block, uint32_t panel) {
    const uint32_t end = min(block + plan.block_units, range_.Units(plan));
    const bool last = panel + 1 == plan.panels;
    for (uint32_t unit = block; unit < end; ++unit) {
      const UnitOut<kRows> out(params, plan, range_, unit, last);
      float total[2][kRows] = {};
      float* carried = carried_ + (unit - block) * 2 * kGemvRowsMax;
      if (panel != 0) Carry(carried, total);
      AddPanel(params, plan, panel, total);
      if (last) {
        out.Write(params, total);
      } else if (threadIdx.x % kWarp == 0) {
        Keep(total, carried);
      }
    }
  }

 private:
  static __device__ __forceinline__ void Carry(const float* from, float (&total)[2][kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      total[0][r] = from[r];
      total[1][r] = from[kGemvRowsMax + r];
    }
  }
  static __device__ __forceinline__ void Keep(const float (&total)[2][kRows], float* to) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      to[r] = total[0][r];
      to[kGemvRowsMax + r] = total[1][r];
    }
  }

  __device__ __forceinline__ void AddPanel(const GemvParams& params, const GemvPlan& plan,
                                           uint32_t panel, float (&total)[2][kRows]) {
    uint32_t left = min(plan.panel_steps, plan.steps - panel * plan.panel_steps);
    const uint4* x = x_;
    while (left != 0) {
      const uint32_t count = min(left, plan.segment_steps);
      Products<kRows> products;
      products.Clear();
#pragma unroll 1
      for (uint32_t i = 0; i < count; ++i) {
        WaitForCopies<GemvShape::kDepth - 1>();
        products.Add(LoadShared(slot_), LoadShared(slot_ + GemvShape::kStepBytes), x,
                     plan.panel_steps * kWarp);
        IssueNext(params, plan);
        x += kWarp;
      }
      left -= count;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        total[0][r] += WarpSum(products.sum[0][r]);
        total[1][r] += WarpSum(products.sum[1][r]);
      }
    }
  }

  __device__ __forceinline__ void IssueNext(const GemvParams& params, const GemvPlan& plan) {
    stream_.Issue(params, plan, range_, slot_);
    // Not earlier: a dependent's first weights are to keep the memory busy while this kernel ends
    // and the dependent waits for it. Requested earlier, they would be there by then. The first
    // warp has the most work.
    if (stream_.left_of_all == 0 && warp_ == 0) LaunchDependents();
    slot_ += GemvShape::kSlotBytes;
    if (slot_ == ring_ + GemvShape::kDepth * GemvShape::kSlotBytes) slot_ = ring_;
  }

  static __device__ __forceinline__ uint4 LoadShared(uint32_t from) {
    uint4 out;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(from)
                 : "memory");
    return out;
  }

  uint32_t warp_;
  GemvRange range_;
  GemvStream stream_;
  const uint4* x_;
  float* carried_;
  uint32_t ring_;
  uint32_t slot_;
};

template <int kRows>
__global__ void __launch_bounds__(GemvShape::kThreads, 2)
    MultiplyRows(const __grid_constant__ GemvParams params, const __grid_constant__ GemvPlan plan) {
  extern __shared__ __align__(128) char shared[];
  auto* carried = reinterpret_cast<float*>(shared + GemvShape::kRing);
  float* sums = carried + GemvShape::kWarps * GemvShape::kCarriedFloats;
  float* scales = sums + GemvShape::kWarps * kGemvRowsMax;
  auto* x = reinterpret_cast<uint4*>(shared + GemvShape::kFixed);

  Worker<kRows> worker(params, plan, shared, x, carried);
  worker.Prefetch(params, plan);
  GemvInput<kRows> input(params, x, sums, scales);
  WaitForPredecessors();
  input.FillFirst(params, GemvPanel(plan, 0));
  __syncthreads();
  // All warps go through the panels of the first, which has the most units.
  const uint32_t units = GemvRange(plan, 0).Units(plan);
  for (uint32_t block = 0; block < units; block += plan.block_units) {
    for (uint32_t panel = 0; panel < plan.panels; ++panel) {
      if (block + panel != 0) {
        __syncthreads();
        input.Fill(params, GemvPanel(plan, panel));
        __syncthreads();
      }
      worker.TakeBlock(params, plan, block, panel);
    }
  }
}

template <int kRows>
cudaError_t Launch(const GemvParams& params, cudaStream_t stream) {
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const GemvPlan plan = GemvPlan::Of(params);
  error = cudaFuncSetAttribute(MultiplyRows<kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(GemvShape::kSharedMax));
  if (error != cudaSuccess) return error;
  // Room for the next kernel's block, whatever this one's needs are.
  error = cudaFuncSetAttribute(MultiplyRows<kRows>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(std::min(plan.columns, static_cast<uint32_t>(multiprocessors)));
  config.blockDim = dim3(GemvShape::kThreads);
  config.dynamicSmemBytes = plan.SharedBytes(kRows);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = params.dependent ? 1 : 0;
  error = cudaLaunchKernelEx(&config, MultiplyRows<kRows>, params, plan);
  return error != cudaSuccess ? error : cudaGetLastError();
}

bool IsValid(const GemvParams& params) {
  if (params.rows > kGemvRowsMax || params.k == 0 || params.k % GemvShape::kVector != 0) {
    return false;
  }
  switch (params.epilogue) {
    case GemvEpilogue::kStore:
      return true;
    case GemvEpilogue::kAccumulate:
      return params.out_type == DType::kFloat32;
    case GemvEpilogue::kGatedSilu:
      return params.out_type == DType::kBfloat16 && params.n % 2 == 0;
  }
  return false;
}

}  // namespace

cudaError_t Gemv(const GemvParams& params, cudaStream_t stream) {
  if (!IsValid(params)) return cudaErrorInvalidValue;
  if (params.rows == 0 || params.n == 0) return cudaSuccess;
  switch (params.rows) {
    case 1:
      return Launch<1>(params, stream);
    case 2:
      return Launch<2>(params, stream);
    case 3:
      return Launch<3>(params, stream);
    default:
      return Launch<4>(params, stream);
  }
}

}  // namespace weft::kernels::cuda
