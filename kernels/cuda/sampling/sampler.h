// Sampling, one token for each row of logits, in this order: logit bias, grammar mask, repetition /
// frequency / presence penalties, temperature, top-k, typical-p, top-p, min-p (each filter on the
// renormalised survivors of the one before, ties to the lowest id), then the draw
//
//   argmax over the survivors of logit / temperature + noise(seed, position, id)
//
// with the noise of kernels/philox.h to the bit (invariant rng.key); temperature 0 is the argmax.
// Log-probabilities are of the distribution as the model gave it. A row that holds NaN or +infinity
// behind bias, mask and penalties, or nothing but -infinity, gives id 0 and says so
// (kInvalidSampleBit). Rules and results are those of shard/sampling/sampler.h; exp
// is the CPU kernels' polynomial, masses are integers in units of 2^-40 of the best token, so that
// neither neighbours nor the order of atomic additions change a row's token.
//
// Kernels, each starting before the end of the one in front: (1) chunks of 4,096 logits: bias,
// mask, penalties, the chunk's best of greedy and temperature-only rows; (2) filtered rows, a
// cluster of 8 blocks a row: best score, histogram of the distances from it where one is needed,
// the likely tokens into a list; (3) a block a row: filters over the list, sorted when short and by
// radix selection otherwise, draw, log-probabilities, bookkeeping. A list that would not hold all
// survivors (8,192 tokens), and typical-p without top-k, makes (3) read the whole row several
// times: right for every input, but some 100 us. Reads the logits once from memory, in filtered
// rows once or twice more from L1 or L2; rows with bias, mask or penalties also write them.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kNoSamplingRow = 0xffffffffu;
inline constexpr uint32_t kNoSampledToken = 0xffffffffu;
// In out_ids, on top of id 0: the row is no distribution, and no token was drawn.
inline constexpr uint32_t kInvalidSampleBit = 0x80000000u;
inline constexpr uint32_t kSamplerTopLogprobsMax = 20;
// Masses of as many equal tokens still fit 64 bits.
inline constexpr uint32_t kSamplerVocabularyMax = 1u << 23;

// Token counts: how often an id was output, up to 32,767, and whether the prompt has it.
inline constexpr uint16_t kCountPromptBit = 0x8000;
inline constexpr uint16_t kCountOutputMask = 0x7fff;

// What the rows of a call may use; a superset is right and costs a launch or two.
enum SamplerFeature : uint32_t {
  kSamplerFilters = 1u << 0,
  // Bias, grammar mask or penalties.
  kSamplerAdjustments = 1u << 1,
  kSamplerLogprobs = 1u << 2,
};
inline constexpr uint32_t kSamplerAllFeatures =
    kSamplerFilters | kSamplerAdjustments | kSamplerLogprobs;

struct LogitBias {
  uint32_t id;
  float bias;
};

// Parameters of a row, in device memory. Defaults are off.
struct SamplingRow {
  uint64_t seed = 0;
  // Of the sampled token in its sequence.
  uint64_t position = 0;
  // 0 = greedy.
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Range in SamplerParams::biases. An id outside the vocabulary is ignored; one that comes twice
  // gets both.
  uint32_t bias_begin = 0;
  uint32_t bias_count = 0;
  // Row of `masks`, or kNoSamplingRow.
  uint32_t mask_row = kNoSamplingRow;
  // By so much the logits of ids outside of the mask are lower; 0: they are not sampled.
  float mask_penalty = 0;
  // Row of `counts` (read and updated with a penalty on) and of last_sampled. kNoSamplingRow: a
  // padding row, of which nothing is read or written.
  uint32_t slot = 0;
  // Not 0: log-probabilities are wanted, of the sampled token and the best top_logprobs (<= 20).
  uint32_t logprobs = 0;
  uint32_t top_logprobs = 0;
};

struct SamplerParams {
  // [rows, vocabulary], rows row_stride elements apart (a multiple of 4), 16-byte aligned;
  // overwritten in rows with bias, mask or penalties and without log-probabilities.
  float* logits = nullptr;
  uint64_t row_stride = 0;
  uint32_t rows = 0;
  uint32_t vocabulary = 0;
  // SamplerFeature bits.
  uint32_t features = kSamplerAllFeatures;
  // [rows].
  const SamplingRow* row_params = nullptr;
  const LogitBias* biases = nullptr;
  // [mask rows, mask_stride]: bit id % 32 of word id / 32 is set where the id is allowed.
  const uint32_t* masks = nullptr;
  uint32_t mask_stride = 0;
  // [slots, count_stride], count_stride a multiple of 4, 8-byte aligned.
  uint16_t* counts = nullptr;
  uint64_t count_stride = 0;
  // [slots]; may be null. Of an invalid row 0, without the bit.
  uint32_t* last_sampled = nullptr;
  // [rows]; with kInvalidSampleBit.
  uint32_t* out_ids = nullptr;
  // With kSamplerLogprobs, written in rows that ask: [rows] and twice
  // [rows, kSamplerTopLogprobsMax], best first; places without a token get kNoSampledToken and
  // -infinity.
  // With `targets` [rows], each below the vocabulary, log-probabilities are those of the targets
  // and not of the tokens that are drawn.
  const uint32_t* targets = nullptr;
  float* out_logprobs = nullptr;
  uint32_t* out_top_ids = nullptr;
  float* out_top_logprobs = nullptr;
  // SamplerWorkspaceBytes, 16-byte aligned; needs no initial values.
  void* workspace = nullptr;
  // May start before the kernel in front of it in the stream has ended.
  bool dependent = false;
};

uint64_t SamplerWorkspaceBytes(uint32_t rows, uint32_t vocabulary, uint32_t features);

cudaError_t Sample(const SamplerParams& params, cudaStream_t stream);

struct CountTokensParams {
  // The slot's row of SamplerParams::counts, 4-byte aligned.
  uint16_t* counts = nullptr;
  uint32_t vocabulary = 0;
  // [count], the first prompt_count of the prompt and the others output.
  const uint32_t* ids = nullptr;
  uint32_t count = 0;
  uint32_t prompt_count = 0;
};

// Begins a slot's counts from the tokens known so far.
cudaError_t CountTokens(const CountTokensParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
