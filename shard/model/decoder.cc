#include "shard/model/decoder.h"

#include "common/check.h"
#include "common/status.h"

namespace weft::shard {

absl::Status Decoder::Run(const StepBatch& batch, StepResult* result) {
  WEFT_RETURN_IF_ERROR(ops_.BeginStep(batch));
  uint32_t rows_kept = 0;
  WEFT_RETURN_IF_ERROR(Forward(result, &rows_kept));
  // A step of prompt chunks in the middle of their prompts samples nothing.
  return rows_kept > 0 ? ops_.Sample(result) : absl::OkStatus();
}

absl::Status Decoder::Forward(StepResult* result, uint32_t* rows_kept) {
  // One kind of each so far; a family with another one adds its branch here.
  WEFT_CHECK(spec_.norm == NormKind::kRmsNorm);
  WEFT_CHECK(spec_.position == PositionKind::kRotary);
  WEFT_CHECK(spec_.mlp == MlpKind::kGatedSilu);

  WEFT_RETURN_IF_ERROR(ops_.Embed());
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
    WEFT_RETURN_IF_ERROR(Attention(layer, rows_kept));
    if (layer + 1 == spec_.layers && *rows_kept == 0) break;
    WEFT_RETURN_IF_ERROR(Mlp(layer));
  }
  result->weight_passes = ops_.WeightPasses();
  if (*rows_kept == 0) return absl::OkStatus();
  ops_.Normalize(Norm::kFinal, 0);
  return ops_.LinearHead();
}

absl::Status Decoder::Attention(uint32_t layer, uint32_t* rows_kept) {
  ops_.Normalize(Norm::kAttention, layer);
  ops_.LinearQkv(layer);
  ops_.RotateAndAppend(layer);
  if (layer + 1 == spec_.layers) {
    // Nothing reads the last layer's output of the other rows.
    *rows_kept = ops_.KeepSampledRows();
    if (*rows_kept == 0) return absl::OkStatus();
  }
  ops_.Attend(layer);
  return ops_.LinearOutput(layer);
}

absl::Status Decoder::Mlp(uint32_t layer) {
  ops_.Normalize(Norm::kMlp, layer);
  ops_.LinearGatedSilu(layer);
  return ops_.LinearDown(layer);
}

}  // namespace weft::shard
