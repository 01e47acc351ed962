// The weights of one rank in device memory, one allocation, as the products of the forward read
// them: row-major [outputs, inputs] in the activation type, query, key and value in one matrix,
// gate and up in one. A WeightSink during the load: loader threads convert rows into pinned buffers
// of their own and copy them up without waiting for each other; Finish waits for the copies and
// checks that nothing is missing. Read-only afterwards.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/device/cuda/shape.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

// Both [hidden]; null = there is none.
struct CudaNorm {
  const void* weight = nullptr;
  const void* bias = nullptr;
};

// Device pointers of one layer; null = the model has none.
struct CudaLayer {
  CudaNorm attention_norm;
  const void* qkv = nullptr;          // [qkv_columns, hidden]
  const void* qkv_bias = nullptr;     // [qkv_columns]
  const void* output = nullptr;       // [hidden, output_columns]
  const void* output_bias = nullptr;  // [hidden]
  const void* query_norm = nullptr;   // [head_stride], zeros behind head_dim
  const void* key_norm = nullptr;     // the same
  CudaNorm post_attention_norm;
  CudaNorm mlp_norm;                   // attention's where the spec has one norm for both
  const void* gate_up = nullptr;       // [gate_up_columns, hidden]: gate if there is one, then up
  const void* gate_up_bias = nullptr;  // [gate_up_columns]
  const void* down = nullptr;          // [hidden, mlp]
  const void* down_bias = nullptr;     // [hidden]
  CudaNorm post_mlp_norm;
  const void* sinks = nullptr;  // [query_heads]
  // Of latent attention (shard/model/param_key.h), in place of qkv.
  const void* query = nullptr;
  const void* query_down = nullptr;
  const void* query_latent_norm = nullptr;
  const void* latent = nullptr;
  const void* latent_norm = nullptr;
  const void* key_up = nullptr;
  const void* value_up = nullptr;
  // Gate, up and down are those of the MLP beside experts where a layer has these.
  const void* router = nullptr;               // [router_rows, hidden]
  const void* router_bias = nullptr;          // [experts]
  const float* choice_bias = nullptr;         // [experts]
  const void* expert_gate_up = nullptr;       // [experts, 2 * expert_mlp, hidden]
  const void* expert_gate_up_bias = nullptr;  // [experts, 2 * expert_mlp]
  const void* expert_down = nullptr;          // [experts, hidden, expert_mlp]
  const void* expert_down_bias = nullptr;     // [experts, hidden]
  const void* shared_scale = nullptr;         // [hidden]
};

class CudaWeights : public WeightSink {
 public:
  // Bytes that Create takes on the device.
  static uint64_t Bytes(const DecoderSpec& spec, const CudaShape& shape);

  // Takes the memory on the current device, zeroed. RESOURCE_EXHAUSTED when there is too little.
  static absl::StatusOr<std::unique_ptr<CudaWeights>> Create(const DecoderSpec& spec,
                                                             const CudaShape& shape);
  virtual ~CudaWeights() = default;

  // Instead of a load, for benchmarks: small random numbers in all matrices, ones in the norms,
  // zeros in biases. Padding stays zero.
  virtual absl::Status FillRandom(uint64_t seed) = 0;
  // INTERNAL naming the first parameter that never came. Returns when all copies are done.
  virtual absl::Status Finish() = 0;

  virtual const CudaLayer& layer(uint32_t layer) const = 0;
  // [vocab, embedding]; the same when they are tied.
  virtual const void* embedding() const = 0;
  virtual const void* head() const = 0;
  virtual const void* head_bias() const = 0;
  // [hidden, embedding] and [embedding, hidden]; null where these are the same.
  virtual const void* project_in() const = 0;
  virtual const void* project_out() const = 0;
  // [position_rows, hidden]
  virtual const void* positions() const = 0;
  virtual CudaNorm embedding_norm() const = 0;
  virtual CudaNorm final_norm() const = 0;
};

}  // namespace weft::shard
