// The weights of one rank as the CPU kernels read them. A WeightSink during the load: loader
// threads hand in slices and pack them here, each its own matrix, in parallel; Finish checks that
// nothing is missing. Read-only afterwards, shared by all compute threads. Memory is that of the
// packed matrices, in large pages; the embedding doubles as the head when they are tied.

#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory_parts.h"
#include "kernels/cpu/packing.h"
#include "shard/device/host/host_memory.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

struct CpuMatrix {
  kernels::cpu::PackedMatrix packed;
  // Float32 [outputs]; empty without bias.
  absl::Span<const float> bias;
};

struct CpuLayer {
  absl::Span<const float> attention_norm;
  absl::Span<const float> mlp_norm;
  CpuMatrix query, key, value, output;
  CpuMatrix gate, up, down;
};

class CpuWeights : public WeightSink {
 public:
  // `narrow_to_bf16` rounds F32 and F16 matrices to bfloat16 (--dtype bfloat16). `spec` outlives
  // the weights.
  CpuWeights(const DecoderSpec& spec, const SlicePlan& slice, bool narrow_to_bf16);

  absl::Status AddMatrix(ParamKey key, const MatrixSource& source) override;
  absl::Status AddVector(ParamKey key, absl::Span<const float> values) override;
  // INTERNAL naming the first parameter that never came.
  absl::Status Finish();

  const CpuLayer& layer(uint32_t layer) const { return layers_[layer]; }
  const CpuMatrix& embedding() const { return embedding_; }
  const CpuMatrix& head() const { return spec_.tied_head ? embedding_ : head_; }
  absl::Span<const float> final_norm() const { return final_norm_; }

  // Bytes of packed matrices and vectors.
  uint64_t bytes() const;

 private:
  struct Arena {
    HostMemory memory;
    MemoryParts parts;
  };
  struct MatrixTarget {
    CpuMatrix* matrix;
    int64_t outputs;
    int64_t inputs;
  };
  struct VectorTarget {
    absl::Span<const float>* vector;
    int64_t size;
  };

  // This rank's width of the parts of a layer, elements.
  struct Widths {
    int64_t query;
    int64_t kv;
    int64_t mlp;
  };
  Widths SliceWidths() const;

  absl::StatusOr<MatrixTarget> FindMatrix(ParamKey key);
  absl::StatusOr<VectorTarget> FindVector(ParamKey key);
  // 64-byte aligned memory that lives as long as this.
  absl::StatusOr<uint8_t*> Allocate(size_t bytes);

  const DecoderSpec& spec_;
  const SlicePlan slice_;
  const bool narrow_to_bf16_;

  std::vector<CpuLayer> layers_;
  CpuMatrix embedding_;
  CpuMatrix head_;
  absl::Span<const float> final_norm_;

  // Guards what follows. Not absl's: ThreadSanitizer cannot see inside a packaged library.
  mutable std::mutex mutex_;
  std::vector<Arena> arenas_;
  uint64_t bytes_ = 0;
};

}  // namespace weft::shard
