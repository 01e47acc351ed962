#include "shard/model/decoder.h"

namespace weft::shard {
namespace {

class Recorder {
 public:
  Recorder(const DecoderSpec& spec, uint32_t world) : spec_(spec), world_(world) {}

  LayerPlan Record() {
    Embed();
    for (layer_ = 0; layer_ < spec_.layers; ++layer_) {
      Attend();
      // With a parallel residual the MLP reads what attention has read.
      if (spec_.parallel_residual) NormalizeForMlp();
      MultiplyIntoResidual(Matrix::kOutput,
                           spec_.latent.rank > 0 ? Buffer::kHeadValue : Buffer::kAttention,
                           spec_.output_bias, Norm::kPostAttention);
      if (spec_.residual_norms) NormalizeResidual(Norm::kAttention);
      if (!spec_.parallel_residual) NormalizeForMlp();
      if (spec_.HasExperts(layer_)) {
        Experts();
      } else {
        Mlp();
      }
      if (spec_.residual_norms) NormalizeResidual(Norm::kMlp);
    }
    Head();
    return std::move(plan_);
  }

 private:
  // An embedding of the layers' width goes to the residual with its positions; another one through
  // a matrix first, whole on every rank.
  void Embed() {
    const bool projects = spec_.embedding_dim > 0;
    const Buffer out = projects ? Buffer::kEmbedded : Buffer::kResidual;
    Add({.kind = OpKind::kEmbed, .out = out});
    if (world_ > 1) Sum(out);
    if (projects) {
      Round(Buffer::kEmbedded, Matrix::kProjectIn);
      Multiply(Matrix::kProjectIn, Buffer::kNormed, Buffer::kResidual, /*bias=*/false);
      if (spec_.position == PositionKind::kLearned) {
        Add({.kind = OpKind::kAddPositions, .out = Buffer::kResidual});
      }
    }
    if (spec_.embedding_norm) NormalizeResidual(Norm::kEmbedding);
  }

  // logits = head(norm(residual)).
  void Head() {
    const bool projects = spec_.embedding_dim > 0;
    const Matrix reader = projects ? Matrix::kProjectOut : Matrix::kHead;
    if (spec_.final_norm) {
      Normalize(Norm::kFinal, reader);
    } else {
      Round(Buffer::kResidual, reader);
    }
    if (projects) {
      Multiply(Matrix::kProjectOut, Buffer::kNormed, Buffer::kEmbedded, /*bias=*/false);
      Round(Buffer::kEmbedded, Matrix::kHead);
    }
    Multiply(Matrix::kHead, Buffer::kNormed, Buffer::kLogits, spec_.head_bias);
    if (spec_.logit_soft_cap > 0) {
      Add({.kind = OpKind::kCapLogits, .in = Buffer::kLogits, .out = Buffer::kLogits});
    }
    if (world_ > 1) {
      Add({.kind = OpKind::kGatherLogits, .in = Buffer::kLogits, .out = Buffer::kLogits});
    }
  }

  // attention(norm(residual)).
  void Attend() {
    if (spec_.latent.rank > 0) {
      AttendLatents();
    } else {
      AttendHeads();
    }
  }

  void AttendHeads() {
    ReadResidual(Norm::kAttention, Matrix::kQkv);
    Multiply(Matrix::kQkv, Buffer::kNormed, Buffer::kQkv, spec_.qkv_bias);
    if (spec_.qkv_clip > 0) {
      Add({.kind = OpKind::kClip, .in = Buffer::kQkv, .out = Buffer::kQkv});
    }
    if (spec_.head_norms) {
      Add({.kind = OpKind::kNormHeads, .in = Buffer::kQkv, .out = Buffer::kQkv});
    }
    RotateAppendAttend(Buffer::kQkv, Matrix::kOutput);
  }

  // Both products of the normed rows before anything that is made of theirs.
  void AttendLatents() {
    ReadResidual(Norm::kAttention, Matrix::kLatents);
    const bool down = spec_.latent.query_rank > 0;
    if (down) Multiply(Matrix::kQueryDown, Buffer::kNormed, Buffer::kQueryLatent, /*bias=*/false);
    Multiply(Matrix::kLatent, Buffer::kNormed, Buffer::kLatent, /*bias=*/false);
    if (down) NormalizeLatent(Norm::kQueryLatent, Buffer::kQueryLatent, Matrix::kQuery);
    Multiply(Matrix::kQuery, down ? Buffer::kQueryLatent : Buffer::kNormed, Buffer::kHeadQuery,
             /*bias=*/false);
    NormalizeLatent(Norm::kLatent, Buffer::kLatent, Matrix::kNone);
    MultiplyByHead(Matrix::kKeyUp, Buffer::kHeadQuery, Buffer::kQkv, Matrix::kNone);
    RotateAppendAttend(Buffer::kHeadQuery, Matrix::kValueUp);
    MultiplyByHead(Matrix::kValueUp, Buffer::kAttention, Buffer::kHeadValue, Matrix::kOutput);
  }

  void NormalizeLatent(Norm norm, Buffer latent, Matrix feeds) {
    Add({.kind = OpKind::kNormLatent, .in = latent, .out = latent, .norm = norm, .feeds = feeds});
  }

  void MultiplyByHead(Matrix matrix, Buffer in, Buffer out, Matrix feeds) {
    Add({.kind = OpKind::kHeadLinear, .in = in, .out = out, .matrix = matrix, .feeds = feeds});
  }

  void RotateAppendAttend(Buffer query, Matrix feeds) {
    const AttentionKind& kind = spec_.attention(layer_);
    Add({.kind = OpKind::kRotateAppend,
         .in = query,
         .out = Buffer::kQkv,
         .rotates = kind.rope.dims > 0});
    if (layer_ + 1 == spec_.layers) {
      // Keys and values of all rows are in the cache; nothing reads more of the other rows.
      part_ = &plan_.tail;
      Add({.kind = OpKind::kKeepSampled});
    }
    Add({.kind = OpKind::kAttend,
         .in = Buffer::kQkv,
         .out = Buffer::kAttention,
         .feeds = feeds,
         .window_tokens = kind.window_tokens});
  }

  void NormalizeForMlp() {
    ReadResidual(spec_.shared_norm ? Norm::kAttention : Norm::kMlp,
                 spec_.HasExperts(layer_) ? Matrix::kExperts : Matrix::kGateUp);
  }

  void GateUp(bool bias) {
    Multiply(Matrix::kGateUp, Buffer::kNormed, Buffer::kGateUp, bias);
    Add({.kind = OpKind::kActivate,
         .in = Buffer::kGateUp,
         .out = Buffer::kMlp,
         .feeds = Matrix::kDown});
  }

  // residual += the weighted sum of what the experts of each row make, and what the MLP beside
  // them makes.
  void Experts() {
    const ExpertsSpec& experts = spec_.experts;
    if (experts.shared_hidden > 0) {
      GateUp(/*bias=*/false);
      Multiply(Matrix::kDown, Buffer::kMlp, Buffer::kPartial, /*bias=*/false);
      if (experts.shared_scale) {
        Add({.kind = OpKind::kScaleShared, .in = Buffer::kNormed, .out = Buffer::kPartial});
      }
    }
    Multiply(Matrix::kRouter, Buffer::kNormed, Buffer::kRoutes, experts.router_bias);
    Add({.kind = OpKind::kRoute, .in = Buffer::kRoutes, .out = Buffer::kRoutes});
    MultiplyByExperts(Matrix::kExpertGateUp, Buffer::kNormed, Buffer::kExpertGateUp);
    Add({.kind = OpKind::kActivate,
         .in = Buffer::kExpertGateUp,
         .out = Buffer::kExpertMlp,
         .feeds = Matrix::kExpertDown});
    MultiplyByExperts(Matrix::kExpertDown, Buffer::kExpertMlp, Buffer::kExpertOut);
    Add({.kind = OpKind::kCombine, .in = Buffer::kExpertOut, .out = Buffer::kPartial});
    AddPartial(Norm::kPostMlp);
  }

  void MultiplyByExperts(Matrix matrix, Buffer in, Buffer out) {
    Add({.kind = OpKind::kExpertLinear,
         .in = in,
         .out = out,
         .matrix = matrix,
         .adds_bias = spec_.experts.bias});
  }

  // residual += down(activation(gate) * up).
  void Mlp() {
    GateUp(spec_.mlp_bias);
    MultiplyIntoResidual(Matrix::kDown, Buffer::kMlp, spec_.mlp_bias, Norm::kPostMlp);
  }

  // What attention and the MLP read of the residual: its norm, unless that stands behind them.
  void ReadResidual(Norm norm, Matrix feeds) {
    if (spec_.residual_norms) {
      Round(Buffer::kResidual, feeds);
    } else {
      Normalize(norm, feeds);
    }
  }

  void Round(Buffer in, Matrix feeds) {
    Add({.kind = OpKind::kRound, .in = in, .out = Buffer::kNormed, .feeds = feeds});
  }

  void NormalizeResidual(Norm norm) {
    Add({.kind = OpKind::kNormResidual,
         .in = Buffer::kResidual,
         .out = Buffer::kResidual,
         .norm = norm});
  }

  void Normalize(Norm norm, Matrix feeds) {
    Add({.kind = OpKind::kNorm,
         .in = Buffer::kResidual,
         .out = Buffer::kNormed,
         .norm = norm,
         .feeds = feeds});
  }

  void Multiply(Matrix matrix, Buffer in, Buffer out, bool bias) {
    Add({.kind = OpKind::kLinear, .in = in, .out = out, .matrix = matrix});
    if (bias) Add({.kind = OpKind::kAddBias, .out = out, .matrix = matrix});
  }

  // Row-parallel matrices give each rank a part of every sum.
  void MultiplyIntoResidual(Matrix matrix, Buffer in, bool bias, Norm post_norm) {
    Multiply(matrix, in, Buffer::kPartial, bias);
    AddPartial(post_norm);
  }

  void AddPartial(Norm post_norm) {
    if (world_ > 1) Sum(Buffer::kPartial);
    if (spec_.post_norms) {
      Add({.kind = OpKind::kNormPartial,
           .in = Buffer::kPartial,
           .out = Buffer::kPartial,
           .norm = post_norm});
    }
    Add({.kind = OpKind::kAddResidual, .in = Buffer::kPartial, .out = Buffer::kResidual});
  }

  void Sum(Buffer buffer) { Add({.kind = OpKind::kSumRanks, .in = buffer, .out = buffer}); }

  void Add(PlanOp op) {
    op.layer = layer_;
    part_->push_back(op);
  }

  const DecoderSpec& spec_;
  const uint32_t world_;
  uint32_t layer_ = 0;
  LayerPlan plan_;
  std::vector<PlanOp>* part_ = &plan_.body;
};

}  // namespace

LayerPlan RecordForward(const DecoderSpec& spec, uint32_t world) {
  return Recorder(spec, world).Record();
}

}  // namespace weft::shard
