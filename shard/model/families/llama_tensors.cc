#include "shard/model/families/llama_tensors.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::shard {

std::vector<ParamTensor> LlamaTensors(const DecoderSpec& spec, const LlamaTensorNames& names,
                                      RowOrder query_key_order) {
  const uint64_t hidden = spec.hidden;
  const uint64_t q = uint64_t{spec.heads} * spec.head_dim;
  const uint64_t kv = uint64_t{spec.kv_heads} * spec.head_dim;
  const uint64_t mlp = spec.mlp_hidden;
  std::vector<ParamTensor> out;
  out.push_back(
      {{ParamKind::kTokenEmbedding}, names.embedding, {spec.vocab, hidden}, Split::kVocabRows});
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    const auto add = [&](ParamKind kind, const char* name, const char* suffix,
                         std::vector<uint64_t> shape, Split split,
                         RowOrder order = RowOrder::kPlain) {
      out.push_back({{kind, layer},
                     absl::StrCat(names.layer_prefix, layer, ".", name, suffix),
                     std::move(shape),
                     split,
                     order});
    };
    const RowOrder rotary = query_key_order;
    add(ParamKind::kAttentionNorm, names.attention_norm, ".weight", {hidden}, Split::kWhole);
    add(ParamKind::kQuery, names.query, ".weight", {q, hidden}, Split::kHeadRows, rotary);
    add(ParamKind::kKey, names.key, ".weight", {kv, hidden}, Split::kKvHeadRows, rotary);
    add(ParamKind::kValue, names.value, ".weight", {kv, hidden}, Split::kKvHeadRows);
    add(ParamKind::kOutput, names.output, ".weight", {hidden, q}, Split::kHeadColumns);
    add(ParamKind::kMlpNorm, names.mlp_norm, ".weight", {hidden}, Split::kWhole);
    add(ParamKind::kGate, names.gate, ".weight", {mlp, hidden}, Split::kMlpRows);
    add(ParamKind::kUp, names.up, ".weight", {mlp, hidden}, Split::kMlpRows);
    add(ParamKind::kDown, names.down, ".weight", {hidden, mlp}, Split::kMlpColumns);
    if (spec.qkv_bias) {
      add(ParamKind::kQueryBias, names.query, ".bias", {q}, Split::kHeadRows, rotary);
      add(ParamKind::kKeyBias, names.key, ".bias", {kv}, Split::kKvHeadRows, rotary);
      add(ParamKind::kValueBias, names.value, ".bias", {kv}, Split::kKvHeadRows);
    }
    // What row-parallel matrices add is whole on every rank; the device adds it once.
    if (spec.output_bias) {
      add(ParamKind::kOutputBias, names.output, ".bias", {hidden}, Split::kWhole);
    }
    if (spec.mlp_bias) {
      add(ParamKind::kGateBias, names.gate, ".bias", {mlp}, Split::kMlpRows);
      add(ParamKind::kUpBias, names.up, ".bias", {mlp}, Split::kMlpRows);
      add(ParamKind::kDownBias, names.down, ".bias", {hidden}, Split::kWhole);
    }
  }
  out.push_back({{ParamKind::kFinalNorm}, names.final_norm, {hidden}, Split::kWhole});
  if (!spec.tied_head) {
    out.push_back({{ParamKind::kHead}, names.head, {spec.vocab, hidden}, Split::kVocabRows});
  }
  return out;
}

}  // namespace weft::shard
