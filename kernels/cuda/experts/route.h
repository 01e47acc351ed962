// Which experts the rows of a step take (shard/model/experts_spec.h), chosen from the router's
// numbers and sorted by expert, so that the rows of one expert lie behind each other:
//
//   weight[e] = scale * score[e] / sum
//
// of the `per_token` largest of a row, of equal ones those of lower numbers. Scores are exp(x - max
// x) with `sum` over all experts or over those chosen, or sigmoids with 1 or the sum over those
// chosen; sigmoids are chosen by what a bias adds to them. Experts in groups that are not among a
// row's best are not chosen. A place is the number of a choice when all are ordered by expert and,
// of one expert, by row. Everything is exact but for the rounding of weights, and depends on
// nothing else: no atomics decide an order. A row with NaN or infinity takes experts 0, 1, ... with
// weights that are NaN.
//
// Up to 64 rows are one launch of one block; more are three launches. Moves a few KB a row.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kRouteExpertsMax = 1024;
inline constexpr uint32_t kRouteChoicesMax = 32;
inline constexpr uint32_t kRouteGroupsMax = 32;
// The fewest rows of a full tile (RouteParams::tile_rows).
inline constexpr uint32_t kExpertTileRowsMin = 8;

// Places [begin, begin + rows) of one expert, at most `tile_rows` of them.
struct ExpertTile {
  uint32_t expert;
  uint32_t begin;
  uint32_t rows;
};

// What a step's rows take, in device memory.
struct ExpertRoutes {
  // [rows, per_token], in the order of the experts' numbers: weight and place of each choice.
  float* weights = nullptr;
  uint32_t* places = nullptr;
  // [rows * per_token]: of each place.
  uint32_t* row_of_place = nullptr;
  uint32_t* expert_of_place = nullptr;
  // All places in pieces of up to tile_rows, and how many pieces there are.
  ExpertTile* tiles = nullptr;
  uint32_t* tile_count = nullptr;
};

struct RouteParams {
  // [rows, stride]; `experts` of a row count.
  const float* numbers = nullptr;
  uint32_t stride = 0;
  uint32_t rows = 0;
  // Up to kRouteExpertsMax, kRouteChoicesMax and `experts`.
  uint32_t experts = 0;
  uint32_t per_token = 0;
  bool renormalised = false;
  // Of ExpertsSpec: score, choice_bias (float32 [experts], with sigmoids only, or null), groups up
  // to kRouteGroupsMax that divide the experts, and weight_scale.
  bool sigmoid = false;
  const float* choice_bias = nullptr;
  uint32_t groups = 1;
  uint32_t groups_taken = 1;
  uint32_t group_best = 1;
  float scale = 1.0f;
  uint32_t tile_rows = 8;
  ExpertRoutes out;
  // RouteWorkspaceBytes.
  void* workspace = nullptr;
  bool dependent = false;
};

// Whether experts, choices and groups are within their limits.
bool IsValidChoice(const RouteParams& params);
size_t RouteWorkspaceBytes(uint32_t rows_max, uint32_t experts, uint32_t per_token);
// The most tiles that `rows` rows may make.
uint32_t ExpertTilesMax(uint32_t rows, uint32_t experts, uint32_t per_token, uint32_t tile_rows);

cudaError_t RouteRows(const RouteParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
