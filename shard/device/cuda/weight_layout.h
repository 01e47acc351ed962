// Where each parameter of a rank lies in the one allocation of CudaWeights: offsets, and how rows
// and columns spread over padded memory. Pure arithmetic, made once before the load and read-only
// afterwards; touches no memory. The one file that knows which parameters share a matrix.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/elementwise/random_fill.h"
#include "shard/device/cuda/shape.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

struct WeightLocation {
  // Of memory row 0, bytes from the start of the allocation.
  uint64_t offset = 0;
  // A vector is one row.
  kernels::cuda::PaddedGrid grid;
  // That of the activations, or float32.
  kernels::cuda::DType type = kernels::cuda::DType::kBfloat16;

  // Rows in memory, those between and behind the groups included.
  uint64_t memory_rows() const {
    return uint64_t{(grid.rows + grid.row_group - 1) / grid.row_group} * grid.row_group_stride;
  }
};

class WeightLayout {
 public:
  WeightLayout(const DecoderSpec& spec, const CudaShape& shape);

  // Of everything; each matrix begins at a multiple of 256.
  uint64_t bytes() const { return bytes_; }
  // Bytes of the longest row in memory.
  uint64_t row_bytes_max() const { return row_bytes_max_; }
  // Every parameter of the rank, in the order of their memory.
  const std::vector<ParamKey>& params() const { return params_; }
  // INTERNAL for a parameter that the model does not have.
  absl::StatusOr<WeightLocation> Find(ParamKey key) const;
  // REQUIRES: the model has it.
  const WeightLocation& At(ParamKey key) const { return locations_.at(ParamNumber(key)); }

 private:
  void AddLayer(uint32_t layer, const DecoderSpec& spec);
  void AddQueryKeyValue(uint32_t layer, bool bias);
  void AddLatent(uint32_t layer);
  // Where the matrices of a MLP go, and how wide it is in memory and in the model.
  struct Mlp {
    ParamKind gate = ParamKind::kGate;
    ParamKind up = ParamKind::kUp;
    ParamKind down = ParamKind::kDown;
    ParamKind gate_bias = ParamKind::kGateBias;
    ParamKind up_bias = ParamKind::kUpBias;
    ParamKind down_bias = ParamKind::kDownBias;
    uint32_t columns = 0;
    uint32_t used = 0;
    bool gated = true;
    bool bias = false;
    // Offsets of the matrices and, with biases, of those.
    uint64_t gate_up = 0;
    uint64_t down_at = 0;
    uint64_t gate_up_bias = 0;
    uint64_t down_bias_at = 0;
  };
  void AddMlp(uint32_t layer, const DecoderSpec& spec);
  void AddExperts(uint32_t layer, const DecoderSpec& spec);
  void AddMlpMatrices(uint32_t layer, uint32_t expert, const Mlp& mlp);
  // A norm's weights, and what it adds behind them where it does.
  void AddNorm(ParamKind weight, ParamKind bias, uint32_t layer, const DecoderSpec& spec);
  void Add(ParamKey key, uint64_t offset, const kernels::cuda::PaddedGrid& grid);
  // A matrix without padding, or a vector: one row.
  void AddPlain(ParamKey key, uint32_t rows, uint32_t columns);
  // Reserves memory for `elements`; gives its offset in bytes.
  uint64_t Take(uint64_t elements);

  const CudaShape shape_;
  const uint64_t element_bytes_;
  uint64_t bytes_ = 0;
  uint64_t row_bytes_max_ = 0;
  std::vector<ParamKey> params_;
  absl::flat_hash_map<uint32_t, WeightLocation> locations_;
};

}  // namespace weft::shard
