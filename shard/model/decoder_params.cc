#include "shard/model/decoder_params.h"

#include <cstdint>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

// In the order of ParamKind.
constexpr const char* kNames[] = {"token embedding",
                                  "head",
                                  "final norm",
                                  "attention norm",
                                  "query",
                                  "key",
                                  "value",
                                  "output",
                                  "MLP norm",
                                  "gate",
                                  "up",
                                  "down",
                                  "query bias",
                                  "key bias",
                                  "value bias",
                                  "output bias",
                                  "gate bias",
                                  "up bias",
                                  "down bias",
                                  "position embedding",
                                  "embedding norm",
                                  "norm behind attention",
                                  "norm behind the MLP",
                                  "query norm",
                                  "key norm",
                                  "embedding norm bias",
                                  "attention norm bias",
                                  "MLP norm bias",
                                  "final norm bias",
                                  "head bias",
                                  "attention sinks",
                                  "router",
                                  "gate",
                                  "up",
                                  "down",
                                  "shared gate",
                                  "shared up",
                                  "shared down",
                                  "shared scale",
                                  "query down",
                                  "query latent norm",
                                  "latent",
                                  "latent norm",
                                  "key up",
                                  "value up",
                                  "projection of the embedding",
                                  "projection in front of the head",
                                  "router bias",
                                  "choice bias",
                                  "gate bias",
                                  "up bias",
                                  "down bias"};
static_assert(std::size(kNames) == kParamKinds);

bool IsOfLayer(ParamKind kind) {
  switch (kind) {
    case ParamKind::kTokenEmbedding:
    case ParamKind::kHead:
    case ParamKind::kFinalNorm:
    case ParamKind::kPositionEmbedding:
    case ParamKind::kEmbeddingNorm:
    case ParamKind::kEmbeddingNormBias:
    case ParamKind::kFinalNormBias:
    case ParamKind::kHeadBias:
    case ParamKind::kProjectIn:
    case ParamKind::kProjectOut:
      return false;
    default:
      return true;
  }
}

class ParamList {
 public:
  explicit ParamList(const DecoderSpec& spec) : spec_(spec) {}

  std::vector<DecoderParam> Make() {
    const uint64_t embedding = spec_.embedding_columns();
    Add(ParamKind::kTokenEmbedding, {spec_.vocab, embedding}, Split::kVocabRows);
    // Small: every rank has them whole.
    if (spec_.embedding_dim > 0) {
      Add(ParamKind::kProjectIn, {spec_.hidden, embedding}, Split::kWhole);
      Add(ParamKind::kProjectOut, {embedding, spec_.hidden}, Split::kWhole);
    }
    if (spec_.position == PositionKind::kLearned) {
      Add(ParamKind::kPositionEmbedding, {spec_.position_rows, spec_.hidden}, Split::kWhole);
    }
    if (spec_.embedding_norm) AddNorm(ParamKind::kEmbeddingNorm, ParamKind::kEmbeddingNormBias);
    for (layer_ = 0; layer_ < spec_.layers; ++layer_) {
      AddAttention();
      AddMlp();
    }
    layer_ = 0;
    if (spec_.final_norm) AddNorm(ParamKind::kFinalNorm, ParamKind::kFinalNormBias);
    if (!spec_.tied_head) Add(ParamKind::kHead, {spec_.vocab, embedding}, Split::kVocabRows);
    if (spec_.head_bias) Add(ParamKind::kHeadBias, {spec_.vocab}, Split::kVocabRows);
    return std::move(params_);
  }

 private:
  void AddAttention() {
    const uint64_t query = uint64_t{spec_.heads} * spec_.query_dim();
    const uint64_t kv = uint64_t{spec_.kv_heads} * spec_.head_dim;
    const uint64_t output = uint64_t{spec_.heads} * spec_.output_dim();
    AddNorm(ParamKind::kAttentionNorm, ParamKind::kAttentionNormBias);
    if (spec_.latent.rank > 0) {
      AddLatent(query);
    } else {
      Add(ParamKind::kQuery, {query, spec_.hidden}, Split::kHeadRows);
      Add(ParamKind::kKey, {kv, spec_.hidden}, Split::kKvHeadRows);
      Add(ParamKind::kValue, {kv, spec_.hidden}, Split::kKvHeadRows);
    }
    Add(ParamKind::kOutput, {spec_.hidden, output}, Split::kHeadColumns);
    if (spec_.qkv_bias) {
      Add(ParamKind::kQueryBias, {query}, Split::kHeadRows);
      Add(ParamKind::kKeyBias, {kv}, Split::kKvHeadRows);
      Add(ParamKind::kValueBias, {kv}, Split::kKvHeadRows);
    }
    if (spec_.attention_sinks) Add(ParamKind::kSinks, {spec_.heads}, Split::kHeads);
    if (spec_.head_norms) {
      Add(ParamKind::kQueryNorm, {spec_.head_dim}, Split::kWhole);
      Add(ParamKind::kKeyNorm, {spec_.head_dim}, Split::kWhole);
    }
    if (spec_.post_norms) Add(ParamKind::kPostAttentionNorm, {spec_.hidden}, Split::kWhole);
    // What row-parallel matrices add is whole on every rank; the device adds it once.
    if (spec_.output_bias) Add(ParamKind::kOutputBias, {spec_.hidden}, Split::kWhole);
  }

  // Latents are the same for all heads: every rank makes them.
  void AddLatent(uint64_t query) {
    const LatentSpec& latent = spec_.latent;
    uint64_t inputs = spec_.hidden;
    if (latent.query_rank > 0) {
      Add(ParamKind::kQueryDown, {latent.query_rank, inputs}, Split::kWhole);
      Add(ParamKind::kQueryLatentNorm, {latent.query_rank}, Split::kWhole);
      inputs = latent.query_rank;
    }
    Add(ParamKind::kQuery, {query, inputs}, Split::kHeadRows);
    Add(ParamKind::kLatent, {spec_.head_dim, spec_.hidden}, Split::kWhole);
    Add(ParamKind::kLatentNorm, {latent.rank}, Split::kWhole);
    const uint64_t heads = spec_.heads;
    Add(ParamKind::kKeyUp, {heads * latent.rank, latent.plain_dim}, Split::kHeadRows);
    Add(ParamKind::kValueUp, {heads * latent.value_dim, latent.rank}, Split::kHeadRows);
  }

  void AddMlp() {
    if (!spec_.shared_norm) AddNorm(ParamKind::kMlpNorm, ParamKind::kMlpNormBias);
    if (spec_.HasExperts(layer_)) {
      AddExperts();
    } else {
      AddPlainMlp();
    }
    if (spec_.post_norms) Add(ParamKind::kPostMlpNorm, {spec_.hidden}, Split::kWhole);
  }

  void AddPlainMlp() {
    const uint64_t mlp = spec_.mlp_hidden;
    if (spec_.gated_mlp) Add(ParamKind::kGate, {mlp, spec_.hidden}, Split::kMlpRows);
    Add(ParamKind::kUp, {mlp, spec_.hidden}, Split::kMlpRows);
    Add(ParamKind::kDown, {spec_.hidden, mlp}, Split::kMlpColumns);
    if (!spec_.mlp_bias) return;
    if (spec_.gated_mlp) Add(ParamKind::kGateBias, {mlp}, Split::kMlpRows);
    Add(ParamKind::kUpBias, {mlp}, Split::kMlpRows);
    Add(ParamKind::kDownBias, {spec_.hidden}, Split::kWhole);
  }

  void AddExperts() {
    const ExpertsSpec& experts = spec_.experts;
    const uint64_t hidden = spec_.hidden;
    // Every rank chooses for itself, and all choose the same.
    Add(ParamKind::kRouter, {experts.count, hidden}, Split::kWhole);
    if (experts.router_bias) Add(ParamKind::kRouterBias, {experts.count}, Split::kWhole);
    if (experts.choice_bias) Add(ParamKind::kChoiceBias, {experts.count}, Split::kWhole);
    for (expert_ = 0; expert_ < experts.count; ++expert_) {
      const uint64_t columns = experts.hidden;
      Add(ParamKind::kExpertGate, {columns, hidden}, Split::kExpertRows);
      Add(ParamKind::kExpertUp, {columns, hidden}, Split::kExpertRows);
      Add(ParamKind::kExpertDown, {hidden, columns}, Split::kExpertColumns);
      if (!experts.bias) continue;
      Add(ParamKind::kExpertGateBias, {columns}, Split::kExpertRows);
      Add(ParamKind::kExpertUpBias, {columns}, Split::kExpertRows);
      Add(ParamKind::kExpertDownBias, {hidden}, Split::kWhole);
    }
    expert_ = 0;
    const uint64_t shared = experts.shared_hidden;
    if (shared == 0) return;
    Add(ParamKind::kSharedGate, {shared, hidden}, Split::kSharedRows);
    Add(ParamKind::kSharedUp, {shared, hidden}, Split::kSharedRows);
    Add(ParamKind::kSharedDown, {hidden, shared}, Split::kSharedColumns);
    if (experts.shared_scale) Add(ParamKind::kSharedScale, {1, hidden}, Split::kWhole);
  }

  void AddNorm(ParamKind weight, ParamKind bias) {
    Add(weight, {spec_.hidden}, Split::kWhole);
    if (spec_.norm_bias) Add(bias, {spec_.hidden}, Split::kWhole);
  }

  void Add(ParamKind kind, std::vector<uint64_t> shape, Split split) {
    params_.push_back({{kind, layer_, expert_}, std::move(shape), split});
  }

  const DecoderSpec& spec_;
  uint32_t layer_ = 0;
  uint32_t expert_ = 0;
  std::vector<DecoderParam> params_;
};

}  // namespace

std::string ParamName(ParamKey key) {
  const std::string name = kNames[static_cast<size_t>(key.kind)];
  if (!IsOfLayer(key.kind)) return name;
  if (!IsOfExpert(key.kind)) return absl::StrCat(name, " of layer ", key.layer);
  return absl::StrCat(name, " of expert ", key.expert, " of layer ", key.layer);
}

std::vector<DecoderParam> DecoderParams(const DecoderSpec& spec) { return ParamList(spec).Make(); }

namespace {

uint64_t Elements(const DecoderParam& param) {
  return param.shape[0] * (param.shape.size() == 2 ? param.shape[1] : 1);
}

}  // namespace

uint64_t DecoderSpec::parameters() const {
  uint64_t count = 0;
  for (const DecoderParam& param : DecoderParams(*this)) count += Elements(param);
  return count;
}

uint64_t DecoderSpec::expert_parameters() const {
  uint64_t count = 0;
  for (const DecoderParam& param : DecoderParams(*this)) {
    if (IsOfExpert(param.key.kind)) count += Elements(param);
  }
  return count;
}

}  // namespace weft::shard
