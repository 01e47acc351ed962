#include "shard/weights/loader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/fnv.h"
#include "common/status.h"
#include "shard/model/families/registry.h"
#include "shard/model/hf_config.h"
#include "shard/weights/load_pool.h"
#include "shard/weights/model_tensors.h"
#include "shard/weights/mxfp4_rows.h"
#include "shard/weights/tensor_reader.h"
#include "shard/weights/tensor_source.h"

namespace weft::shard {
namespace {

// Pages are mapped this many bytes at a time: the unit after which a cancelled load stops on a slow
// disk.
constexpr size_t kPopulateBytes = 8u << 20;

// A refusal looks no further for shard counts that work.
constexpr uint32_t kCountsTriedMax = 16;

// One call of Load: what its threads share.
class LoadRun {
 public:
  LoadRun(const DecoderSpec& spec, const SlicePlan& plan, std::vector<const BoundParam*> params,
          WeightSink& sink, LoadProgress& progress, const std::atomic<bool>& cancel)
      : spec_(spec),
        plan_(plan),
        params_(std::move(params)),
        sink_(sink),
        progress_(progress),
        cancel_(cancel) {}

  absl::Status Run(int threads) {
    return ForEachParam(params_.size(), threads, cancel_, [this, threads](size_t index) {
      // What the next round takes is read from disk while this one is packed.
      const size_t ahead = index + static_cast<size_t>(threads);
      if (ahead < params_.size()) WillNeed(*params_[ahead]);
      return LoadOne(*params_[index]);
    });
  }

 private:
  // Of the bound tensor, or of its scales.
  TensorReader Reader(const BoundParam& bound, const TensorView& tensor) const {
    return TensorReader(bound.param, spec_, tensor, SliceOf(bound.param, spec_, plan_));
  }

  void WillNeed(const BoundParam& bound) const {
    bound.tensor.file->WillNeed(Reader(bound, bound.tensor).span());
    if (!bound.scales_apart()) return;
    bound.scales.file->WillNeed(Reader(bound, bound.scales).span());
  }

  absl::Status Populate(const MappedFile& file, absl::Span<const uint8_t> span) const {
    for (size_t begin = 0; begin < span.size(); begin += kPopulateBytes) {
      if (cancel_.load(std::memory_order_relaxed)) {
        return absl::CancelledError("loading was cancelled");
      }
      WEFT_RETURN_IF_ERROR(
          file.Populate(span.subspan(begin, std::min(kPopulateBytes, span.size() - begin))));
    }
    return absl::OkStatus();
  }

  // The blocks of a matrix whose scales lie apart.
  absl::StatusOr<Mxfp4Rows> Join(const BoundParam& bound, const TensorReader& codes) const {
    const TensorReader exponents = Reader(bound, bound.scales);
    WEFT_RETURN_IF_ERROR(Populate(*bound.scales.file, exponents.span()));
    Mxfp4Rows rows(codes, exponents, SliceOf(bound.param, spec_, plan_));
    bound.scales.file->Drop(exponents.span());
    return rows;
  }

  absl::Status LoadOne(const BoundParam& bound) {
    const TensorView& tensor = bound.tensor;
    const TensorSlice slice = SliceOf(bound.param, spec_, plan_);
    const TensorReader reader = Reader(bound, tensor);
    const absl::Span<const uint8_t> span = reader.span();
    WEFT_RETURN_IF_ERROR(Populate(*tensor.file, span));
    absl::Status status;
    const auto add = [&](absl::FunctionRef<const uint8_t*(int64_t)> row) {
      return sink_.AddMatrix(bound.param.key, {tensor.type, static_cast<int64_t>(slice.rows()),
                                               static_cast<int64_t>(slice.columns()), row});
    };
    if (bound.param.shape.size() == 1) {
      status = sink_.AddVector(bound.param.key, reader.Values());
    } else if (bound.param.file.transposed) {
      const TransposedRows rows(reader);
      status = add([&rows](int64_t i) { return rows.Row(i); });
    } else if (bound.scales_apart()) {
      WEFT_ASSIGN_OR_RETURN(const Mxfp4Rows rows, Join(bound, reader));
      status = add([&rows](int64_t i) { return rows.Row(i); });
    } else {
      status = add([&reader](int64_t i) { return reader.Row(i); });
    }
    tensor.file->Drop(span);
    WEFT_RETURN_IF_ERROR(
        Annotate(status, absl::StrCat(tensor.file->path(), ": tensor ", tensor.name)));
    progress_.bytes_done.fetch_add(slice.rows() * reader.row_bytes(), std::memory_order_relaxed);
    progress_.tensors_done.fetch_add(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  const DecoderSpec& spec_;
  const SlicePlan& plan_;
  // In the order of their bytes, so that a disk is read forward.
  const std::vector<const BoundParam*> params_;
  WeightSink& sink_;
  LoadProgress& progress_;
  const std::atomic<bool>& cancel_;
};

class BoundModelFiles : public ModelFiles {
 public:
  BoundModelFiles(DecoderSpec spec, std::unique_ptr<TensorSource> source,
                  std::vector<BoundParam> params)
      : spec_(std::move(spec)), source_(std::move(source)), params_(std::move(params)) {}

  const DecoderSpec& spec() const override { return spec_; }
  uint64_t Hash() const override;
  uint32_t mlp_multiple() const override;
  TensorType main_type() const override;

  uint64_t total_bytes() const override {
    uint64_t bytes = 0;
    for (const TensorView& tensor : source_->tensors()) bytes += tensor.data.size();
    return bytes;
  }

  uint64_t SliceBytes(const SlicePlan& plan) const override {
    uint64_t bytes = 0;
    for (const BoundParam& bound : params_) {
      const TensorSlice slice = SliceOf(bound.param, spec_, plan);
      bytes += slice.rows() * BytesOf(bound.tensor.type, slice.columns());
    }
    return bytes;
  }

  ParamSize SliceSize(ParamKey key, const SlicePlan& plan) const override {
    for (const BoundParam& bound : params_) {
      if (ParamNumber(bound.param.key) != ParamNumber(key)) continue;
      const TensorSlice slice = SliceOf(bound.param, spec_, plan);
      return {slice.rows() * slice.columns(),
              slice.rows() * BytesOf(bound.tensor.type, slice.columns())};
    }
    return {};
  }

  std::vector<MatrixFormat> Matrices() const override {
    std::vector<MatrixFormat> matrices;
    for (const BoundParam& bound : params_) {
      if (bound.param.shape.size() == 2) matrices.push_back({bound.param.key, bound.tensor.type});
    }
    return matrices;
  }

  absl::Status CheckCuts(const SlicePlan& plan) const override;
  absl::Status Load(const SlicePlan& plan, int threads, WeightSink& sink, LoadProgress& progress,
                    const std::atomic<bool>& cancel) override;

 private:
  // Whether no slice of the plan cuts a block of a quantised tensor.
  absl::Status CutsWholeBlocks(const SlicePlan& plan) const;
  // Shard counts at which every rank's slices are whole blocks, for messages.
  std::string CountsThatWork() const;

  const DecoderSpec spec_;
  const std::unique_ptr<TensorSource> source_;
  const std::vector<BoundParam> params_;
};

absl::Status BoundModelFiles::CutsWholeBlocks(const SlicePlan& plan) const {
  for (const BoundParam& bound : params_) {
    WEFT_RETURN_IF_ERROR(SliceAligned(bound.tensor, SliceOf(bound.param, spec_, plan)));
  }
  return absl::OkStatus();
}

absl::Status BoundModelFiles::CheckCuts(const SlicePlan& plan) const {
  const absl::Status whole = CutsWholeBlocks(plan);
  if (whole.ok()) return whole;
  return absl::InvalidArgumentError(
      absl::StrCat(whole.message(), "; shard counts that would work: ", CountsThatWork(),
                   "; with the model as F32, F16 or BF16 others too"));
}

std::string BoundModelFiles::CountsThatWork() const {
  const auto works = [this](uint32_t world) {
    for (Rank rank = 0; rank < world; ++rank) {
      const auto plan = MakeSlicePlan(spec_, rank, world, mlp_multiple());
      if (!plan.ok() || !CutsWholeBlocks(*plan).ok()) return false;
    }
    return true;
  };
  std::vector<uint32_t> counts;
  for (uint32_t world = 1; world <= std::min(spec_.heads, kCountsTriedMax); ++world) {
    if (works(world)) counts.push_back(world);
  }
  return absl::StrJoin(counts, ", ");
}

uint64_t BoundModelFiles::Hash() const {
  std::vector<const TensorView*> tensors;
  for (const TensorView& tensor : source_->tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  Fnv1a<uint64_t> hash(spec_.Hash());
  for (const TensorView* tensor : tensors) {
    const std::string type =
        tensor->unknown_type.empty() ? FormatOf(tensor->type).name : tensor->unknown_type;
    hash.AddBytes(absl::StrCat(tensor->name, ":", type));
    for (const uint64_t dim : tensor->shape) hash.AddBytes(absl::StrCat(":", dim));
    hash.AddBytes(";");
  }
  return hash.value();
}

uint32_t BoundModelFiles::mlp_multiple() const {
  uint64_t multiple = 1;
  for (const BoundParam& bound : params_) {
    if (!IsDown(bound.param.key.kind)) continue;
    multiple = std::max(multiple, FormatOf(bound.tensor.type).elements);
  }
  return static_cast<uint32_t>(multiple);
}

TensorType BoundModelFiles::main_type() const {
  std::array<uint64_t, kTensorTypes> bytes{};
  for (const BoundParam& bound : params_) {
    if (bound.tensor.shape.size() != 2) continue;
    bytes[static_cast<size_t>(bound.tensor.type)] += bound.tensor.data.size();
  }
  return static_cast<TensorType>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

absl::Status BoundModelFiles::Load(const SlicePlan& plan, int threads, WeightSink& sink,
                                   LoadProgress& progress, const std::atomic<bool>& cancel) {
  WEFT_RETURN_IF_ERROR(CheckCuts(plan));
  std::vector<const BoundParam*> params;
  for (const BoundParam& bound : params_) params.push_back(&bound);
  std::sort(params.begin(), params.end(), [](const BoundParam* a, const BoundParam* b) {
    return std::make_pair(a->tensor.file->path(), a->tensor.data.data()) <
           std::make_pair(b->tensor.file->path(), b->tensor.data.data());
  });
  progress.bytes_done = 0;
  progress.tensors_done = 0;
  progress.bytes_total = SliceBytes(plan);
  progress.tensors_total = static_cast<uint32_t>(params.size());
  LoadRun run(spec_, plan, std::move(params), sink, progress, cancel);
  const absl::Status status = run.Run(threads);
  // Pages at the borders between tensors are still mapped.
  const MappedFile* dropped = nullptr;
  for (const TensorView& tensor : source_->tensors()) {
    if (tensor.file != dropped) tensor.file->Drop(tensor.file->bytes());
    dropped = tensor.file;
  }
  return status;
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

absl::StatusOr<std::unique_ptr<ModelFiles>> Bind(const ModelDescription& model,
                                                 std::unique_ptr<TensorSource> source) {
  WEFT_ASSIGN_OR_RETURN(std::vector<BoundParam> params, BindTensors(model, *source));
  return std::make_unique<BoundModelFiles>(model.spec, std::move(source), std::move(params));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(const std::string& path) {
  if (IsDirectory(path)) {
    WEFT_ASSIGN_OR_RETURN(const HfConfig config, HfConfig::Load(path));
    WEFT_ASSIGN_OR_RETURN(const ModelDescription model, DescribeHfModel(config));
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, TensorSource::OpenDirectory(path));
    return Bind(model, std::move(source));
  }
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  if (!file.ok()) {
    if (absl::EndsWith(path, ".safetensors")) {
      return Annotate(file.status(),
                      "--model wants the directory that holds config.json, or a "
                      ".gguf file");
    }
    return file.status();
  }
  WEFT_ASSIGN_OR_RETURN(const ModelDescription model, DescribeGgufModel(**file));
  return Bind(model, TensorSource::FromGguf(*std::move(file)));
}

}  // namespace weft::shard
