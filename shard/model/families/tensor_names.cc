#include "shard/model/families/tensor_names.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "shard/model/decoder_params.h"

namespace weft::shard {
namespace {

// Which of a fused tensor's parts a parameter is, from 0: query, gate or key up; key, up or value
// up; value.
uint32_t PartOf(ParamKind kind) {
  switch (kind) {
    case ParamKind::kKey:
    case ParamKind::kKeyBias:
    case ParamKind::kUp:
    case ParamKind::kUpBias:
    case ParamKind::kExpertUp:
    case ParamKind::kExpertUpBias:
    case ParamKind::kValueUp:
      return 1;
    case ParamKind::kValue:
    case ParamKind::kValueBias:
      return 2;
    default:
      return 0;
  }
}

// The parameter whose row in a family's table stands for all parts of a fused tensor.
ParamKind FirstPartOf(ParamKind kind) {
  switch (kind) {
    case ParamKind::kKey:
    case ParamKind::kValue:
      return ParamKind::kQuery;
    case ParamKind::kKeyBias:
    case ParamKind::kValueBias:
      return ParamKind::kQueryBias;
    case ParamKind::kUp:
      return ParamKind::kGate;
    case ParamKind::kUpBias:
      return ParamKind::kGateBias;
    case ParamKind::kExpertUp:
      return ParamKind::kExpertGate;
    case ParamKind::kExpertUpBias:
      return ParamKind::kExpertGateBias;
    case ParamKind::kValueUp:
      return ParamKind::kKeyUp;
    default:
      return kind;
  }
}

const TensorName& FindName(absl::Span<const TensorName> names, ParamKey key) {
  const ParamKind first = FirstPartOf(key.kind);
  const auto* const name = absl::c_find_if(names, [&key, first](const TensorName& row) {
    return row.kind == key.kind || (row.kind == first && row.fusion != Fusion::kNone);
  });
  WEFT_CHECK_MSG(name != names.end(), ParamName(key));
  return *name;
}

bool IsRotated(ParamKind kind) {
  return kind == ParamKind::kQuery || kind == ParamKind::kKey || kind == ParamKind::kQueryBias ||
         kind == ParamKind::kKeyBias || kind == ParamKind::kLatent;
}

// Rows of the whole tensor go into shape[0].
FileLayout LayoutOf(const DecoderSpec& spec, const DecoderParam& param, Fusion fusion) {
  const uint64_t dim = spec.head_dim;
  const uint64_t group = spec.heads / spec.kv_heads;
  const LatentSpec& latent = spec.latent;
  const uint32_t part = PartOf(param.key.kind);
  FileLayout layout;
  layout.shape = param.shape;
  switch (fusion) {
    case Fusion::kNone:
      break;
    case Fusion::kQueryKeyValue:
      layout.shape[0] = (spec.heads + 2 * uint64_t{spec.kv_heads}) * dim;
      if (part > 0) layout.first_row = (spec.heads + (part - 1) * uint64_t{spec.kv_heads}) * dim;
      break;
    case Fusion::kByKvHead:
      layout.shape[0] = (spec.heads + 2 * uint64_t{spec.kv_heads}) * dim;
      layout.run_rows = part == 0 ? group * dim : dim;
      layout.run_stride = (group + 2) * dim;
      if (part > 0) layout.first_row = (group + part - 1) * dim;
      break;
    case Fusion::kGateUp:
      layout.shape[0] = 2 * param.shape[0];
      layout.first_row = part * param.shape[0];
      break;
    case Fusion::kGateUpByTurns:
      layout.shape[0] = 2 * param.shape[0];
      layout.first_row = part;
      layout.run_rows = 1;
      layout.run_stride = 2;
      break;
    case Fusion::kKeyUpValueUp:
      layout.shape = {spec.heads * (uint64_t{latent.plain_dim} + latent.value_dim), latent.rank};
      layout.run_stride = latent.plain_dim + latent.value_dim;
      layout.transposed = part == 0;
      if (part == 0) {
        layout.block_rows = latent.rank;
      } else {
        layout.run_rows = latent.value_dim;
        layout.first_row = latent.plain_dim;
      }
      break;
  }
  return layout;
}

}  // namespace

std::vector<TensorName> Joined(absl::Span<const TensorName> own,
                               absl::Span<const TensorName> shared) {
  std::vector<TensorName> names(own.begin(), own.end());
  names.insert(names.end(), shared.begin(), shared.end());
  return names;
}

std::vector<ParamTensor> NameTensors(const DecoderSpec& spec, absl::Span<const TensorName> names,
                                     RowOrder query_key_order) {
  std::vector<ParamTensor> out;
  for (DecoderParam& param : DecoderParams(spec)) {
    const TensorName& name = FindName(names, param.key);
    ParamTensor tensor;
    if (name.fusion != Fusion::kNone || name.transposed) {
      tensor.file = LayoutOf(spec, param, name.fusion);
      if (name.transposed && param.shape.size() == 2) {
        tensor.file.transposed = true;
        std::swap(tensor.file.shape[0], tensor.file.shape[1]);
      }
    }
    if (IsRotated(param.key.kind)) tensor.row_order = query_key_order;
    if (IsOfExpert(param.key.kind) && !absl::StrContains(name.name, '#')) {
      tensor.file.stack_size = spec.experts.count;
      tensor.file.stack_index = param.key.expert;
    }
    const auto full = [&param](const char* pattern) {
      return absl::StrReplaceAll(
          pattern, {{"*", absl::StrCat(param.key.layer)}, {"#", absl::StrCat(param.key.expert)}});
    };
    tensor.name = full(name.name);
    if (name.scales != nullptr) tensor.scales_name = full(name.scales);
    static_cast<DecoderParam&>(tensor) = std::move(param);
    out.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace weft::shard
