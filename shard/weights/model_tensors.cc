#include "shard/weights/model_tensors.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/weights/mxfp4_rows.h"

namespace weft::shard {
namespace {

// Of the names of tensors of codes, in safetensors of gpt-oss.
constexpr const char* kMxfp4CodesSuffix = "_blocks";

constexpr const char* kOtherModel =
    "; configuration and weights are of different models: save or convert both together";

std::string Shown(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Of the whole tensor that the parameter is in.
std::vector<uint64_t> FileShape(const ParamTensor& param) {
  std::vector<uint64_t> shape = param.file.shape.empty() ? param.shape : param.file.shape;
  if (param.file.stack_size > 0) shape.insert(shape.begin(), param.file.stack_size);
  return shape;
}

absl::Status CheckTensor(const ParamTensor& param, const TensorView& tensor) {
  const std::string where = absl::StrCat(tensor.file->path(), ": tensor ", param.name);
  if (!tensor.unknown_type.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": dtype \"", tensor.unknown_type,
                     "\" is not supported; known are F32, F16, BF16: save the model as one of "
                     "them"));
  }
  const std::vector<uint64_t> shape = FileShape(param);
  if (tensor.shape != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected shape ", Shown(shape),
                     param.file.transposed ? " (inputs first)" : " (outputs first)", ", found ",
                     Shown(tensor.shape), kOtherModel));
  }
  if (param.file.transposed && FormatOf(tensor.type).elements != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": expected a matrix of F32, F16 or BF16, found ", FormatOf(tensor.type).name));
  }
  if (param.shape.size() == 1 && FormatOf(tensor.type).elements != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": expected a vector of F32, F16 or BF16, found ", FormatOf(tensor.type).name));
  }
  return absl::OkStatus();
}

bool MayBeUnused(const ModelDescription& model, const std::string& name) {
  return absl::c_any_of(model.unused, [&name](absl::string_view pattern) {
    if (absl::ConsumePrefix(&pattern, "*")) return absl::EndsWith(name, pattern);
    if (absl::ConsumeSuffix(&pattern, "*")) return absl::StartsWith(name, pattern);
    return name == pattern;
  });
}

// Null when there is none of that name, nor of that name without what may be left out.
const TensorView* FindTensor(const ModelDescription& model, const TensorSource& source,
                             absl::string_view name) {
  const TensorView* const tensor = source.Find(name);
  if (tensor != nullptr || model.optional_prefix.empty()) return tensor;
  return absl::ConsumePrefix(&name, model.optional_prefix) ? source.Find(name) : nullptr;
}

using UsedTensors = absl::flat_hash_set<const TensorView*>;

// What may have to be done where a parameter's tensor is not there.
const char* WayOutWithout(const TensorSource& source, const ParamTensor& param) {
  if (param.key.kind == ParamKind::kHead) {
    return "; a model whose head is its embedding says tie_word_embeddings in config.json";
  }
  if (source.Find(absl::StrCat(param.name, kMxfp4CodesSuffix)) != nullptr) {
    return " but blocks of MXFP4; they need quantization_config with quant_method \"mxfp4\" in "
           "config.json: copy it from where the model comes from";
  }
  return kOtherModel;
}

// The head of a model that takes its embedding for it may be in the files too. Where it is another
// one, the configuration or the files are wrong, and the answers would be.
absl::Status CheckTiedHead(const ModelDescription& model, const std::vector<BoundParam>& params,
                           const TensorView& head) {
  const auto embedding = absl::c_find_if(params, [](const BoundParam& bound) {
    return bound.param.key.kind == ParamKind::kTokenEmbedding;
  });
  WEFT_CHECK(embedding != params.end());
  const TensorView& tied = embedding->tensor;
  if (head.type == tied.type && head.unknown_type.empty() && head.shape == tied.shape &&
      absl::c_equal(head.data, tied.data)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      head.file->path(), ": tensor ", head.name, " is not ", embedding->param.name,
      ", but the head is the embedding as config.json has it (tie_word_embeddings is true, or left "
      "out by a ",
      model.spec.family, " model): set tie_word_embeddings to false to use the head of the file"));
}

absl::StatusOr<BoundParam> BindWhole(const ModelDescription& model, const TensorSource& source,
                                     const ParamTensor& param, UsedTensors* used) {
  const TensorView* const tensor = FindTensor(model, source, param.name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(source.path(), ": tensor ", param.name, ": expected ",
                                            Shown(FileShape(param)), ", found no such tensor",
                                            WayOutWithout(source, param)));
  }
  WEFT_RETURN_IF_ERROR(CheckTensor(param, *tensor));
  used->insert(tensor);
  const FileLayout& file = param.file;
  return BoundParam{param,
                    file.stack_size > 0 ? MemberOfStack(*tensor, file.stack_index) : *tensor};
}

// The tensor `name` of bytes in `shape`, as what they stand for: numbers of MXFP4 in the shape of
// the parameter's tensor, of which it holds a part of each block.
absl::StatusOr<TensorView> FindBytes(const TensorSource& source, const ParamTensor& param,
                                     const std::string& name, const std::vector<uint64_t>& shape,
                                     UsedTensors* used) {
  const TensorView* const tensor = source.Find(name);
  const absl::string_view plain = absl::StripSuffix(param.name, kMxfp4CodesSuffix);
  if (tensor == nullptr && source.Find(plain) != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(source.path(), ": tensor ", plain,
                     ": experts that are not in MXFP4 are not supported beside a "
                     "quantization_config of quant_method \"mxfp4\" in config.json"));
  }
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        source.path(), ": tensor ", name, ": expected ", Shown(shape),
        " of U8, found no such tensor; quantization_config in config.json says that the model has ",
        "blocks of MXFP4 in ", param.name, " and their scales in ", param.scales_name,
        ": copy or download all of its files"));
  }
  const std::string where = absl::StrCat(tensor->file->path(), ": tensor ", name);
  if (tensor->unknown_type != "U8") {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": expected U8, found ",
        tensor->unknown_type.empty() ? FormatOf(tensor->type).name : tensor->unknown_type));
  }
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected shape ", Shown(shape),
                                                   ", found ", Shown(tensor->shape), kOtherModel));
  }
  uint64_t bytes = 1;
  for (const uint64_t dim : shape) bytes *= dim;
  if (tensor->data.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected ", bytes, " bytes, found ",
                                                   tensor->data.size(),
                                                   "; the file is damaged: copy or download it "
                                                   "again"));
  }
  used->insert(tensor);
  TensorView numbers = *tensor;
  numbers.type = TensorType::kMxfp4;
  numbers.unknown_type.clear();
  numbers.shape = FileShape(param);
  const FileLayout& file = param.file;
  return file.stack_size > 0 ? MemberOfStack(numbers, file.stack_index) : numbers;
}

absl::StatusOr<BoundParam> BindApart(const TensorSource& source, const ParamTensor& param,
                                     UsedTensors* used) {
  std::vector<uint64_t> shape = FileShape(param);
  if (shape.back() % kMxfp4Numbers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(source.path(), ": tensor ", param.name, ": ",
                                                   shape.back(), " columns are no whole blocks of ",
                                                   kMxfp4Numbers));
  }
  shape.back() /= kMxfp4Numbers;
  BoundParam bound{param, {}};
  WEFT_ASSIGN_OR_RETURN(bound.scales, FindBytes(source, param, param.scales_name, shape, used));
  shape.push_back(kMxfp4CodeBytes);
  WEFT_ASSIGN_OR_RETURN(bound.tensor, FindBytes(source, param, param.name, shape, used));
  return bound;
}

}  // namespace

absl::StatusOr<std::vector<BoundParam>> BindTensors(const ModelDescription& model,
                                                    const TensorSource& source) {
  std::vector<BoundParam> out;
  UsedTensors used;
  for (const ParamTensor& param : model.params) {
    WEFT_ASSIGN_OR_RETURN(BoundParam bound, param.scales_name.empty()
                                                ? BindWhole(model, source, param, &used)
                                                : BindApart(source, param, &used));
    out.push_back(std::move(bound));
  }
  // A tensor that nothing reads (a bias, an adapter) would change the model's answers if it were
  // left out in silence.
  for (const TensorView& tensor : source.tensors()) {
    if (used.contains(&tensor) || MayBeUnused(model, tensor.name)) continue;
    if (!model.tied_head_name.empty() && tensor.name == model.tied_head_name) {
      WEFT_RETURN_IF_ERROR(CheckTiedHead(model, out, tensor));
      continue;
    }
    return absl::UnimplementedError(
        absl::StrCat(tensor.file->path(), ": tensor ", absl::CHexEscape(tensor.name), " ",
                     Shown(tensor.shape), " is not part of a ", model.spec.family, " model of ",
                     model.spec.layers, " layers as weft knows it"));
  }
  return out;
}

}  // namespace weft::shard
