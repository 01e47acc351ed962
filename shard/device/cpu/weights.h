// The weights of one rank as the CPU kernels read them. A WeightSink during the load: loader
// threads hand in slices and pack them here, each its own matrix, in parallel; Finish checks that
// nothing is missing. Read-only afterwards, shared by all compute threads. Memory is that of the
// packed matrices, in large pages; the embedding doubles as the head when they are tied.

#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory_parts.h"
#include "kernels/cpu/packing.h"
#include "shard/device/host/host_memory.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/param_table.h"
#include "shard/weights/slice_plan.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

struct CpuMatrix {
  kernels::cpu::PackedMatrix packed;
  // Float32 [outputs]; empty without bias.
  absl::Span<const float> bias;
};

struct CpuNorm {
  // Float32 [hidden].
  absl::Span<const float> weight;
  // The same; empty without bias.
  absl::Span<const float> bias;
};

struct CpuExpert {
  CpuMatrix gate, up, down;
};

// What the spec has no parameters for is empty.
struct CpuLayer {
  // Of latent attention, beside `query` and `output`; the last two by query head of this rank.
  CpuMatrix query_down, latent;
  absl::Span<const float> query_latent_norm;
  absl::Span<const float> latent_norm;
  std::vector<CpuMatrix> key_up, value_up;
  CpuNorm attention_norm;
  CpuNorm post_attention_norm;
  // Of both halves where the spec has one norm.
  CpuNorm mlp_norm;
  CpuNorm post_mlp_norm;
  // Float32 [head_dim].
  absl::Span<const float> query_norm, key_norm;
  CpuMatrix query, key, value, output;
  // By query head of this rank; empty without sinks.
  absl::Span<const float> sinks;
  // Of a plain MLP, or of the one beside experts.
  CpuMatrix gate, up, down;
  CpuMatrix router;
  // Float32 [experts].
  absl::Span<const float> choice_bias;
  std::vector<CpuExpert> experts;
  // [1, hidden]
  CpuMatrix shared_scale;
};

class CpuWeights : public WeightSink {
 public:
  // `dtype` as asked for: CpuMatrixType says what becomes of a matrix. `spec` outlives the weights.
  CpuWeights(const DecoderSpec& spec, const SlicePlan& slice, NumberType dtype);

  absl::Status AddMatrix(ParamKey key, const MatrixSource& source) override;
  absl::Status AddVector(ParamKey key, absl::Span<const float> values) override;
  // INTERNAL naming the first parameter that never came.
  absl::Status Finish();

  const CpuLayer& layer(uint32_t layer) const { return layers_[layer]; }
  const CpuMatrix& embedding() const { return embedding_; }
  const CpuMatrix& positions() const { return positions_; }
  // The embedding's numbers when they are tied.
  const CpuMatrix& head() const { return head_; }
  // Empty unless the embedding has another width than the layers.
  const CpuMatrix& project_in() const { return project_in_; }
  const CpuMatrix& project_out() const { return project_out_; }
  const CpuNorm& embedding_norm() const { return embedding_norm_; }
  const CpuNorm& final_norm() const { return final_norm_; }

  // Bytes of packed matrices and vectors.
  uint64_t bytes() const;

 private:
  struct Arena {
    HostMemory memory;
    MemoryParts parts;
  };
  // Of a parameter that the spec has: how it is cut, and whether it came.
  struct Expected {
    DecoderParam param;
    bool received = false;
  };

  // Where a parameter goes; null when it is no matrix, no matrix for each head, or no vector.
  CpuMatrix* MatrixOf(ParamKey key);
  std::vector<CpuMatrix>* HeadMatricesOf(ParamKey key);
  absl::Span<const float>* VectorOf(ParamKey key);
  // Notes that a parameter came, [outputs, inputs] large. INTERNAL when the spec has none such or
  // its slice has another size.
  absl::Status Receive(ParamKey key, int64_t outputs, int64_t inputs);
  absl::Status Pack(const MatrixSource& source, CpuMatrix* matrix);
  // 64-byte aligned memory that lives as long as this.
  absl::StatusOr<uint8_t*> Allocate(size_t bytes);

  const DecoderSpec& spec_;
  const SlicePlan slice_;
  const NumberType dtype_;

  std::vector<CpuLayer> layers_;
  CpuMatrix embedding_;
  CpuMatrix positions_;
  CpuMatrix head_;
  CpuMatrix project_in_;
  CpuMatrix project_out_;
  CpuNorm embedding_norm_;
  CpuNorm final_norm_;

  // Guards what follows. Not absl's: ThreadSanitizer cannot see inside a packaged library.
  mutable std::mutex mutex_;
  // By ParamNumber.
  absl::flat_hash_map<uint32_t, Expected> expected_;
  std::vector<Arena> arenas_;
  uint64_t bytes_ = 0;
};

}  // namespace weft::shard
