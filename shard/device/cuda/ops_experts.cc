// The part of CudaOps that runs experts: rows are sorted by expert on the device, spread to their
// places, multiplied there and combined. Launches depend on the number of rows alone, so that they
// can be captured; what the router chose stays on the device.

#include "common/limits.h"
#include "common/status.h"
#include "kernels/cuda/experts/count_rows.h"
#include "kernels/cuda/experts/few_rows.h"
#include "kernels/cuda/experts/product.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/experts/rows.h"
#include "shard/device/cuda/ops.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::ExpertEpilogue;

// Whatever a model may have, the routing kernel takes.
static_assert(kExpertsMax <= kernels::cuda::kRouteExpertsMax &&
              kExpertsPerTokenMax <= kernels::cuda::kRouteChoicesMax &&
              kExpertGroupsMax <= kernels::cuda::kRouteGroupsMax);

// The routing makes the tiles that the products of the same rows go through.
uint32_t TileRows(const CudaShape& shape, uint32_t rows) {
  return kernels::cuda::ExpertTileRows(rows, shape.experts, shape.experts_per_token);
}

}  // namespace

kernels::cuda::RouteParams CudaOps::ChoiceOf(uint32_t layer) const {
  kernels::cuda::RouteParams choice;
  choice.experts = shape_.experts;
  choice.per_token = shape_.experts_per_token;
  choice.renormalised = spec_.experts.renormalised;
  choice.sigmoid = spec_.experts.score == ExpertScore::kSigmoid;
  choice.choice_bias = weights_.layer(layer).choice_bias;
  choice.groups = spec_.experts.groups;
  choice.groups_taken = spec_.experts.groups_taken;
  choice.group_best = spec_.experts.group_best;
  choice.scale = spec_.experts.weight_scale;
  return choice;
}

absl::Status CudaOps::Route(const PlanOp& op, const Rows& rows) {
  kernels::cuda::RouteParams route = ChoiceOf(op.layer);
  route.numbers = ws_.routes;
  route.stride = shape_.router_rows;
  route.rows = rows.count;
  route.tile_rows = TileRows(shape_, rows.count);
  route.out = ws_.expert_routes;
  route.workspace = ws_.route_workspace;
  route.dependent = !op.after_collective;
  WEFT_RETURN_IF_ERROR(CudaStatus(kernels::cuda::RouteRows(route, stream_), "routing"));
  if (limits_.expert_load) WEFT_RETURN_IF_ERROR(CountRows(op, rows));
  if (op.way == Way::kFewRows || ReadsRowsInPlace(rows.count)) return absl::OkStatus();
  kernels::cuda::SpreadRowsParams spread;
  spread.in = ws_.normed;
  spread.out = ws_.expert_in;
  spread.row_of_place = ws_.expert_routes.row_of_place;
  spread.places = rows.count * shape_.experts_per_token;
  spread.hidden = shape_.hidden;
  spread.type = shape_.type;
  spread.dependent = true;
  return CudaStatus(kernels::cuda::SpreadRows(spread, stream_), "rows of experts");
}

absl::Status CudaOps::CountRows(const PlanOp& op, const Rows& rows) {
  kernels::cuda::CountExpertRowsParams count;
  count.row_of_place = ws_.expert_routes.row_of_place;
  count.expert_of_place = ws_.expert_routes.expert_of_place;
  count.places = rows.count * shape_.experts_per_token;
  // Only decode rows are ever padded, and all of them stay to the end of the plan.
  if (step_.decode_only()) count.row_sequences = inputs_.row_sequences;
  count.counting = ws_.counting_experts;
  count.counts = ws_.expert_counts + size_t{op.layer} * shape_.experts;
  count.dependent = true;
  return CudaStatus(kernels::cuda::CountExpertRows(count, stream_), "rows of experts");
}

absl::Status CudaOps::CountExperts(bool counts) {
  if (!limits_.expert_load) return absl::OkStatus();
  return CudaStatus(
      cudaMemsetAsync(ws_.counting_experts, counts ? 1 : 0, sizeof(uint32_t), stream_),
      "counting rows of experts");
}

bool CudaOps::ReadsRowsInPlace(uint32_t rows) const {
  return rows <= kernels::cuda::kExpertTileRowsMin &&
         kernels::cuda::ServesExpertGemm(shape_.expert_mlp, shape_.hidden, shape_.type) &&
         !spec_.experts.bias;
}

absl::StatusOr<const CUtensorMap*> CudaOps::ExpertMapOf(const void* weight, uint32_t n,
                                                        uint32_t k) {
  if (const auto it = expert_maps_.find(weight); it != expert_maps_.end()) return &it->second;
  CUtensorMap map;
  WEFT_RETURN_IF_ERROR(CudaStatus(kernels::cuda::MakeExpertMap(weight, shape_.experts, n, k, &map),
                                  "map of experts' weights"));
  return &expert_maps_.emplace(weight, map).first->second;
}

absl::Status CudaOps::MultiplyFewRowsByExperts(const PlanOp& op, const Rows& rows) {
  const CudaLayer& layer = weights_.layer(op.layer);
  kernels::cuda::FewRowsExpertsParams params;
  params.gate_up = layer.expert_gate_up;
  params.down = layer.expert_down;
  if (op.adds_bias) {
    params.gate_up_bias = layer.expert_gate_up_bias;
    if (AddsBias(Matrix::kExpertDown, slice_.rank)) params.down_bias = layer.expert_down_bias;
  }
  params.in = ws_.normed;
  if (op.routes) params.router = RouterOf(op, rows);
  params.made = ws_.expert_mlp;
  params.out = At(op.out, rows, Matrix::kNone);
  params.accumulates = op.epilogue == Epilogue::kAddToOut;
  if (shape_.shared_mlp > 0) params.beside = ws_.partial;
  params.routes = ws_.expert_routes;
  params.rows = rows.count;
  params.experts = shape_.experts;
  params.per_token = shape_.experts_per_token;
  params.hidden = shape_.hidden;
  params.mlp = shape_.expert_mlp;
  params.activation = ActivationOfMlps();
  params.limit = spec_.activation_limit;
  params.workspace = ws_.gemv;
  params.next = NextOf(op);
  params.dependent = !op.after_collective;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(kernels::cuda::FewRowsExperts(params, stream_), "experts of few rows"));
  return op.routes && limits_.expert_load ? CountRows(op, rows) : absl::OkStatus();
}

kernels::cuda::FewRowsRouter CudaOps::RouterOf(const PlanOp& op, const Rows& rows) const {
  const CudaLayer& layer = weights_.layer(op.layer);
  kernels::cuda::FewRowsRouter router;
  router.weight = layer.router;
  router.bias = layer.router_bias;
  router.residual = rows.residual;
  router.norm_weight = WeightsOf(op.norm, op.layer).weight;
  router.epsilon = spec_.norm_epsilon;
  router.numbers = ws_.routes;
  router.choice = ChoiceOf(op.layer);
  return router;
}

absl::Status CudaOps::MultiplyByExperts(const PlanOp& op, const Rows& rows) {
  if (op.way == Way::kFewRows) return MultiplyFewRowsByExperts(op, rows);
  const MatrixOnDevice matrix = MatrixOf(op.matrix, op.layer);
  const bool down = op.matrix == Matrix::kExpertDown;
  const bool activates = op.epilogue == Epilogue::kActivate;
  kernels::cuda::ExpertProductParams params;
  params.in = down ? ws_.expert_mlp : ws_.expert_in;
  if (!down && ReadsRowsInPlace(rows.count)) {
    params.in = ws_.normed;
    params.in_rows = rows.count;
    params.row_of_place = ws_.expert_routes.row_of_place;
  }
  params.out = At(op.out, rows, Matrix::kNone);
  params.places = rows.count * shape_.experts_per_token;
  params.n = matrix.outputs;
  params.k = matrix.inputs;
  params.per_token = shape_.experts_per_token;
  params.tile_rows = TileRows(shape_, rows.count);
  params.tiles_max = kernels::cuda::ExpertTilesMax(rows.count, shape_.experts,
                                                   shape_.experts_per_token, params.tile_rows);
  params.tiles = ws_.expert_routes.tiles;
  params.tile_count = ws_.expert_routes.tile_count;
  params.expert_of_place = ws_.expert_routes.expert_of_place;
  params.epilogue = activates ? ExpertEpilogue::kGatedSilu : ExpertEpilogue::kStore;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  const bool adds_bias = op.adds_bias && AddsBias(op.matrix, slice_.rank);
  if (!adds_bias &&
      kernels::cuda::ServesExpertGemm(activates ? params.n / 2 : params.n, params.k, params.type)) {
    WEFT_ASSIGN_OR_RETURN(const CUtensorMap* const map,
                          ExpertMapOf(matrix.weight, params.n, params.k));
    params.map = *map;
    return CudaStatus(kernels::cuda::ExpertGemm(params, stream_), "product of experts");
  }
  params.weight = matrix.weight;
  if (adds_bias) params.bias = matrix.bias;
  return CudaStatus(kernels::cuda::ExpertProduct(params, stream_), "product of experts");
}

absl::Status CudaOps::ScaleShared(const PlanOp& op, const Rows& rows) {
  kernels::cuda::ScaleRowsParams params;
  params.in = ws_.normed;
  params.rows = At(op.out, rows, Matrix::kNone);
  params.weight = weights_.layer(op.layer).shared_scale;
  params.row_count = rows.count;
  params.hidden = shape_.hidden;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::ScaleRows(params, stream_), "scale of the shared MLP");
}

absl::Status CudaOps::Combine(const PlanOp& op, const Rows& rows) {
  kernels::cuda::CombineRowsParams params;
  params.made = ws_.expert_out;
  if (shape_.shared_mlp > 0) params.beside = ws_.partial;
  params.weights = ws_.expert_routes.weights;
  params.places = ws_.expert_routes.places;
  params.out = At(op.out, rows, Matrix::kNone);
  params.accumulates = op.epilogue == Epilogue::kAddToOut;
  params.rows = rows.count;
  params.per_token = shape_.experts_per_token;
  params.hidden = shape_.hidden;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::CombineRows(params, stream_), "combination of experts");
}

}  // namespace weft::shard
