// Opens a model directory (Hugging Face layout) or a .gguf file and feeds this rank's slices of all
// parameters to a WeightSink. Opening reads and validates headers only; Load streams the bytes,
// with progress that any thread may read. Errors name file, tensor, expected and found.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

struct LoadProgress {
  std::atomic<uint64_t> bytes_total{0};
  std::atomic<uint64_t> bytes_done{0};
  std::atomic<uint32_t> tensors_total{0};
  std::atomic<uint32_t> tensors_done{0};
};

// Seed of the numbers that OpenShape's models are made of.
inline constexpr uint64_t kRandomWeightsSeed = 1;

// A matrix of a model, and the type of its numbers.
struct MatrixFormat {
  ParamKey key;
  TensorType type;
};

class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  // `path` is a directory or a .gguf file. Finds the family and builds the spec; checks that every
  // tensor the family needs exists with the right shape and a known type.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(const std::string& path);

  // The same of a directory that needs nothing but config.json: small random numbers in all
  // matrices (BF16, of kernels/random_weight.h), ones in norms, zeros in biases. For benchmarks.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> OpenShape(const std::string& path);

  virtual const DecoderSpec& spec() const = 0;
  // Made by OpenShape: a device may fill its memory itself instead of calling Load.
  virtual bool random() const { return false; }
  // Hash of the spec and of names, types and shapes of all tensors.
  virtual uint64_t Hash() const = 0;
  // Smallest unit in which MLP columns may be cut: the block of the down projection's format, 1
  // when it is not quantised.
  virtual uint32_t mlp_multiple() const = 0;
  // Type of the large matrices (the most common one), for `--dtype auto` and for people.
  virtual TensorType main_type() const = 0;
  // Bytes of all tensors in the files.
  virtual uint64_t total_bytes() const = 0;
  // Bytes of the tensors' slices that `plan` needs.
  virtual uint64_t SliceBytes(const SlicePlan& plan) const = 0;
  // The same of one parameter, as elements and as bytes; zeros where the model has none of it.
  struct ParamSize {
    uint64_t elements = 0;
    uint64_t bytes = 0;
  };
  virtual ParamSize SliceSize(ParamKey key, const SlicePlan& plan) const = 0;

  // Every matrix with its type in the files.
  virtual std::vector<MatrixFormat> Matrices() const = 0;

  // OK when no slice of the plan cuts a block of a quantised matrix; else INVALID_ARGUMENT, naming
  // file, tensor and shard counts that would work.
  virtual absl::Status CheckCuts(const SlicePlan& plan) const = 0;

  // Feeds every parameter of `plan` to `sink`, with up to `threads` threads. `progress` is updated
  // as it goes. INVALID_ARGUMENT, naming tensor and shard counts that would work, when a slice
  // would cut a block of a quantised matrix. *cancel set by another thread ends the load with
  // CANCELLED. Drops file pages behind itself, so that loaded weights are not in memory twice.
  virtual absl::Status Load(const SlicePlan& plan, int threads, WeightSink& sink,
                            LoadProgress& progress, const std::atomic<bool>& cancel) = 0;
};

}  // namespace weft::shard
