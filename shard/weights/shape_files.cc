// ModelFiles of a shape alone: config.json says which parameters there are, and a hash gives their
// numbers.

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/half.h"
#include "kernels/random_weight.h"
#include "shard/model/families/registry.h"
#include "shard/model/hf_config.h"
#include "shard/weights/load_pool.h"
#include "shard/weights/loader.h"
#include "shard/weights/row_convert.h"
#include "shard/weights/tensor_view.h"

namespace weft::shard {
namespace {

constexpr TensorType kType = TensorType::kBf16;
// Tells the hash of such a model from that of one with files.
constexpr uint64_t kHashMark = 0x72616e646f6d2121;

// The slice of one matrix, made row by row when it is asked for. Rows stay where they are, as a
// MatrixSource's do; memory is touched by the first use of a row.
class RandomRows {
 public:
  RandomRows(ParamKey key, const TensorSlice& slice)
      : key_(kernels::RandomWeightKey(kRandomWeightsSeed, ParamNumber(key))),
        slice_(slice),
        numbers_(std::make_unique_for_overwrite<uint16_t[]>(slice.rows() * slice.columns())) {}

  const uint8_t* Row(int64_t row) {
    const uint64_t columns = slice_.columns();
    uint16_t* const out = numbers_.get() + static_cast<uint64_t>(row) * columns;
    // Rows and columns of the whole matrix, so that every slice holds the same model.
    const uint32_t bits = kernels::RandomWeightRow(
        key_, static_cast<uint32_t>(slice_.row_begin + static_cast<uint64_t>(row)));
    const auto first = static_cast<uint32_t>(slice_.column_begin);
    for (uint32_t i = 0; i < columns; ++i) {
      out[i] = kernels::RoundToBf16(kernels::RandomWeight(bits, first + i));
    }
    return reinterpret_cast<const uint8_t*>(out);
  }

 private:
  const uint64_t key_;
  const TensorSlice slice_;
  const std::unique_ptr<uint16_t[]> numbers_;
};

class ShapeFiles : public ModelFiles {
 public:
  ShapeFiles(std::string path, ModelDescription model)
      : path_(std::move(path)), model_(std::move(model)) {}

  const DecoderSpec& spec() const override { return model_.spec; }
  bool random() const override { return true; }
  uint64_t Hash() const override { return kernels::MixBits64(model_.spec.Hash() ^ kHashMark); }
  uint32_t mlp_multiple() const override { return 1; }
  TensorType main_type() const override { return kType; }
  absl::Status CheckCuts(const SlicePlan&) const override { return absl::OkStatus(); }
  uint64_t total_bytes() const override { return BytesOf(kType, model_.spec.parameters()); }

  uint64_t SliceBytes(const SlicePlan& plan) const override {
    uint64_t bytes = 0;
    for (const ParamTensor& param : model_.params) bytes += SliceBytes(param, plan);
    return bytes;
  }

  ParamSize SliceSize(ParamKey key, const SlicePlan& plan) const override {
    for (const ParamTensor& param : model_.params) {
      if (ParamNumber(param.key) != ParamNumber(key)) continue;
      const TensorSlice slice = SliceOf(param, model_.spec, plan);
      return {slice.rows() * slice.columns(), SliceBytes(param, plan)};
    }
    return {};
  }

  std::vector<MatrixFormat> Matrices() const override {
    std::vector<MatrixFormat> matrices;
    for (const ParamTensor& param : model_.params) {
      if (param.shape.size() == 2) matrices.push_back({param.key, kType});
    }
    return matrices;
  }

  absl::Status Load(const SlicePlan& plan, int threads, WeightSink& sink, LoadProgress& progress,
                    const std::atomic<bool>& cancel) override;

 private:
  uint64_t SliceBytes(const ParamTensor& param, const SlicePlan& plan) const {
    const TensorSlice slice = SliceOf(param, model_.spec, plan);
    return BytesOf(kType, slice.rows() * slice.columns());
  }
  absl::Status LoadOne(const ParamTensor& param, const SlicePlan& plan, WeightSink& sink) const;

  const std::string path_;
  const ModelDescription model_;
};

absl::Status ShapeFiles::LoadOne(const ParamTensor& param, const SlicePlan& plan,
                                 WeightSink& sink) const {
  const TensorSlice slice = SliceOf(param, model_.spec, plan);
  absl::Status status;
  if (param.shape.size() == 1) {
    const float value = IsNorm(param.key.kind) ? 1.0f : 0.0f;
    status = sink.AddVector(param.key, std::vector<float>(slice.rows(), value));
  } else {
    RandomRows rows(param.key, slice);
    const auto row = [&rows](int64_t i) { return rows.Row(i); };
    status = sink.AddMatrix(param.key, {kType, static_cast<int64_t>(slice.rows()),
                                        static_cast<int64_t>(slice.columns()), row});
  }
  return Annotate(status, absl::StrCat(path_, ": tensor ", param.name));
}

absl::Status ShapeFiles::Load(const SlicePlan& plan, int threads, WeightSink& sink,
                              LoadProgress& progress, const std::atomic<bool>& cancel) {
  progress.bytes_done = 0;
  progress.tensors_done = 0;
  progress.bytes_total = SliceBytes(plan);
  progress.tensors_total = static_cast<uint32_t>(model_.params.size());
  return ForEachParam(model_.params.size(), threads, cancel, [&](size_t index) {
    const ParamTensor& param = model_.params[index];
    WEFT_RETURN_IF_ERROR(LoadOne(param, plan, sink));
    progress.bytes_done.fetch_add(SliceBytes(param, plan), std::memory_order_relaxed);
    progress.tensors_done.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::OpenShape(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": --weights random wants a directory that holds config.json, not a .gguf file"));
  }
  WEFT_ASSIGN_OR_RETURN(const HfConfig config, HfConfig::Load(path));
  WEFT_ASSIGN_OR_RETURN(ModelDescription model, DescribeHfModel(config));
  return std::make_unique<ShapeFiles>(path, std::move(model));
}

}  // namespace weft::shard
