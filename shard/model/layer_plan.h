// The forward of a model as data: the operations that one class of steps runs, in order, on named
// buffers (invariant plan.seen). Recorded for a model and a group of ranks (decoder.h), rewritten
// by rules that a device allows (plan_rules.h), then walked by its ops in every step and printed by
// `weft inspect --plan`. Made at load and read-only afterwards: any thread. Knows neither pointers
// nor kernels; what depends on a step (rows, lengths) is not in it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"

namespace weft::shard {

enum class OpKind : uint8_t {
  kEmbed,         // out = embedding rows of the step's ids; of other ranks' vocabulary, zeros. To
                  // the residual rank 0 adds the rows of the position table, where there is one
  kAddPositions,  // out += the rows of the position table: every rank, where kEmbed has another out
  kNormResidual,  // residual = norm(residual)
  kNormPartial,   // partial = norm(partial)
  kNorm,          // out = norm(in), rounded to the activation type
  kRound,         // out = in, rounded to the activation type
  kLinear,        // out = in times a matrix
  kAddBias,       // out += the bias of a matrix
  kClip,          // cuts query, key and value to the spec's range
  kNormHeads,     // each query and key head = norm(head)
  kNormLatent,    // a latent = norm(latent); what stands behind it in a row stays
  kHeadLinear,    // out = each head's part of `in` times a matrix of its own
  kRotateAppend,  // rotates query and key by their positions; key and value go to the KV cache. Of
                  // latent attention the rotated part of `in` goes to `out` beside the rest of the
                  // query, and what goes to the cache is the latent
  kKeepSampled,   // from here on there are only the rows that sample
  kAttend,        // out = causal attention over the KV cache, this step's rows included
  kActivate,      // out = activation(gate) * up, or without a gate activation(up)
  kRoute,         // out = the experts of each row and their weights, from the router's numbers
  kExpertLinear,  // out = each row's `in` times the matrix of each of its experts
  kScaleShared,   // partial *= sigmoid(normed times the row of weights of the shared MLP)
  kCombine,       // partial = the weighted sum of what a row's experts made, in the order of their
                  // numbers; where there is a shared MLP, behind what it made
  kSumRanks,      // out = the sum of all ranks' `in`
  kAddResidual,   // out += in
  kCapLogits,     // logits = cap * tanh(logits / cap)
  kGatherLogits,  // out = the logits of all ranks, joined to rows of the whole vocabulary
};

// Activations of a step, [rows, ...]. "Of this rank" where a matrix is cut into ranks' slices.
enum class Buffer : uint8_t {
  kNone,
  kResidual,   // float32 [hidden]
  kEmbedded,   // float32 [embedding columns]: what stands between embedding or head and the layers
  kNormed,     // activation type [hidden], or [embedding columns] where it is made of kEmbedded
  kQkv,        // query, key and value heads of this rank, side by side
  kAttention,  // query heads of this rank
  // Of latent attention; kQkv has query heads alone.
  kQueryLatent,   // what queries are made of
  kHeadQuery,     // query heads of this rank as they are made
  kLatent,        // the latent and the key behind it
  kHeadValue,     // what goes on from attention, heads of this rank
  kGateUp,        // gates where there are any, then ups: MLP columns of this rank
  kMlp,           // activation type, MLP columns of this rank
  kRoutes,        // the router's numbers, float32 [experts]; then what kRoute made of them
  kExpertGateUp,  // as kGateUp and kMlp, once for each expert of a row
  kExpertMlp,
  kExpertOut,    // [hidden], once for each expert of a row, this rank's share
  kPartial,      // [hidden]: what a product adds to the residual, this rank's share
  kPeerPartial,  // the same, in memory that the other ranks read
  kLogits,       // float32, vocabulary of this rank, of rows that sample
};

enum class Matrix : uint8_t {
  kNone,
  kQkv,
  kOutput,
  // Of latent attention. kLatents as a reader of a norm: kLatent, and kQueryDown or kQuery.
  kQueryDown,
  kQuery,
  kLatent,
  kLatents,
  kKeyUp,
  kValueUp,
  // Of a plain MLP, or of the one beside experts.
  kGateUp,
  kDown,
  kHead,
  // Between an embedding of another width and the layers, and between these and its head.
  kProjectIn,
  kProjectOut,
  kRouter,
  kExpertGateUp,
  kExpertDown,
  // As a reader of a norm: the router, the experts and the MLP beside them. As the matrix of an
  // operation: gates, ups and downs of the experts.
  kExperts,
};

enum class Norm : uint8_t {
  kNone,
  kEmbedding,
  kAttention,
  kQueryLatent,
  kLatent,
  kPostAttention,
  kMlp,
  kPostMlp,
  kFinal
};

// What a product does with its sums, besides storing them.
enum class Epilogue : uint8_t { kStore, kAddToOut, kActivate, kRotateAppend };

// Which of a device's ways an operation takes.
enum class Way : uint8_t {
  kPlain,
  kFewRows,  // kLinear, kExpertLinear: the product for a few rows that is bound by reading the
             // matrix; kRoute: in front of such ones, which read rows where they are
  kPeers,    // kSumRanks: through memory that all ranks map, in one kernel
};

struct PlanOp {
  OpKind kind = OpKind::kEmbed;
  // Of the layers' operations; those after the last layer have the number of layers.
  uint32_t layer = 0;
  Buffer in = Buffer::kNone;
  Buffer out = Buffer::kNone;
  // kLinear, kAddBias: whose.
  Matrix matrix = Matrix::kNone;
  // The norm that this operation computes. kLinear and a kExpertLinear that routes: of its
  // input first; kSumRanks: of the residual that it has added to, into `out`.
  Norm norm = Norm::kNone;
  // kNorm, kRound, kAttend, kActivate and a product that activates: the product that reads `out`.
  Matrix feeds = Matrix::kNone;
  Epilogue epilogue = Epilogue::kStore;
  Way way = Way::kPlain;
  // kExpertLinear of kExperts: what a row's experts make is summed as kCombine does it.
  bool combines = false;
  // kLinear, kRotateAppend (and a kLinear that rotates): the product's bias is added here.
  bool adds_bias = false;
  // kNorm, kSumRanks: `in` is added to the residual on the way.
  bool adds_to_residual = false;
  // kAttend: positions that a row sees, its own included; 0 = all up to it.
  uint32_t window_tokens = 0;
  // kRotateAppend: query and key heads are normalised first, as kNormHeads does it.
  bool norms_heads = false;
  // kExpertLinear of kExperts: each row's experts are chosen here, from `in` by the router, as
  // kRoute does it.
  bool routes = false;
  // kRotateAppend (and a kLinear that rotates): false where positions do not turn heads.
  bool rotates = true;
  // kAttend: the rows that sample are picked from what it made, so that the next operation and all
  // after it see them alone.
  bool keeps_sampled = false;
  // The operation in front of it is a library's collective: this one waits until it has ended,
  // where others may begin before.
  bool after_collective = false;
  // A product on the few-rows way: the next kLinear on it, whose weights are worth fetching early;
  // kNone when there is none.
  Matrix next_matrix = Matrix::kNone;
  uint32_t next_layer = 0;
  Epilogue next_epilogue = Epilogue::kStore;
};

// The operations of a step in two parts. The second begins with the one that leaves the rows alone
// that sample; a step that samples nothing ends before it. Parts of different classes go together:
// a long prompt that samples one row takes the tail of one row.
struct LayerPlan {
  std::vector<PlanOp> body;
  std::vector<PlanOp> tail;
};

// Whether this rank adds the bias of a matrix: where it goes to partial sums, the first one does it
// alone.
inline constexpr bool AddsBias(Matrix matrix, Rank rank) {
  return rank == 0 ||
         (matrix != Matrix::kOutput && matrix != Matrix::kDown && matrix != Matrix::kExpertDown);
}

// Matrices outside the layers: their parameters have layer 0.
inline constexpr bool IsOfLayer(Matrix matrix) {
  return matrix != Matrix::kHead && matrix != Matrix::kProjectIn && matrix != Matrix::kProjectOut;
}

// "layer 3 linear gate_up: normed -> mlp, activates", one line without its end.
std::string PlanOpText(const PlanOp& op);

const char* OpName(OpKind kind);
const char* BufferName(Buffer buffer);
const char* MatrixName(Matrix matrix);

}  // namespace weft::shard
