#include "shard/device/cuda/served.h"

#include <vector>

#include "common/status.h"
#include "shard/device/cuda/memory_plan.h"
#include "shard/device/cuda/planner.h"
#include "shard/device/cuda/planning.h"

namespace weft::shard {
namespace {

constexpr uint32_t kPlain = SetOf(Way::kPlain);
constexpr uint32_t kFewRows = SetOf(Way::kFewRows);
constexpr uint32_t kStores = SetOf(Epilogue::kStore);
constexpr uint32_t kBfloat16 = SetOf(NumberType::kBfloat16);
constexpr uint32_t kFloat32 = SetOf(NumberType::kFloat32);
constexpr uint32_t kBoth = kBfloat16 | kFloat32;
// Matrices become the type of activations at load.
constexpr uint32_t kMatrices = SetOf(TensorType::kBf16, TensorType::kF32);

// An operation on rows of either type.
constexpr ServedOp OfRows(OpKind kind) { return {kind, kPlain, kStores, kBoth, kBoth, kMatrices}; }

constexpr ServedOp kOps[] = {
    OfRows(OpKind::kEmbed),
    OfRows(OpKind::kAddPositions),
    OfRows(OpKind::kNormResidual),
    OfRows(OpKind::kNormPartial),
    OfRows(OpKind::kNorm),
    OfRows(OpKind::kRound),
    {OpKind::kLinear, kPlain, SetOf(Epilogue::kStore, Epilogue::kAddToOut), kBoth, kBoth,
     kMatrices},
    {OpKind::kLinear, kFewRows,
     SetOf(Epilogue::kStore, Epilogue::kAddToOut, Epilogue::kActivate, Epilogue::kRotateAppend),
     kBfloat16, kBfloat16, SetOf(TensorType::kBf16)},
    OfRows(OpKind::kAddBias),
    OfRows(OpKind::kClip),
    OfRows(OpKind::kNormHeads),
    OfRows(OpKind::kNormLatent),
    OfRows(OpKind::kHeadLinear),
    // The cache has the type of the rows that go into it and of the queries that meet it.
    {OpKind::kRotateAppend, kPlain, kStores, kBfloat16, kBfloat16, kMatrices},
    {OpKind::kRotateAppend, kPlain, kStores, kFloat32, kFloat32, kMatrices},
    {OpKind::kAttend, kPlain, kStores, kBfloat16, kBfloat16, kMatrices},
    {OpKind::kAttend, kPlain, kStores, kFloat32, kFloat32, kMatrices},
    OfRows(OpKind::kKeepSampled),
    OfRows(OpKind::kActivate),
    OfRows(OpKind::kRoute),
    {OpKind::kRoute, kFewRows, kStores, kBfloat16, kBfloat16, kMatrices},
    OfRows(OpKind::kExpertLinear),
    {OpKind::kExpertLinear, kPlain, SetOf(Epilogue::kActivate), kBfloat16, kBfloat16,
     SetOf(TensorType::kBf16)},
    {OpKind::kExpertLinear, kFewRows, SetOf(Epilogue::kStore, Epilogue::kAddToOut), kBfloat16,
     kBfloat16, SetOf(TensorType::kBf16)},
    OfRows(OpKind::kScaleShared),
    {OpKind::kCombine, kPlain, SetOf(Epilogue::kStore, Epilogue::kAddToOut), kBoth, kBoth,
     kMatrices},
    OfRows(OpKind::kSumRanks),
    {OpKind::kSumRanks, SetOf(Way::kPeers), kStores, kBfloat16, kBfloat16, kMatrices},
    OfRows(OpKind::kAddResidual),
    OfRows(OpKind::kCapLogits),
    OfRows(OpKind::kGatherLogits),
};

}  // namespace

const ServedOps& CudaServedOps() {
  static constexpr ServedOps kServed = {"CUDA shards", "--device cpu", kOps,
                                        /*experts_of_one_type=*/false};
  return kServed;
}

absl::Status CheckCudaServes(const ModelFiles& files, const SlicePlan& slice,
                             const MemoryFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const CudaShape shape, PlanCudaShape(files.spec(), slice, flags));
  const NumberTypes types = ResolveCudaTypes(flags.dtype, flags.kv_dtype);
  std::vector<MatrixFormat> held = files.Matrices();
  for (MatrixFormat& matrix : held) {
    matrix.type = types.activation == NumberType::kFloat32 ? TensorType::kF32 : TensorType::kBf16;
  }
  CudaPlanFacts facts = FactsOf(files.spec(), shape, slice, flags.deterministic);
  for (const bool peers : {false, true}) {
    facts.peers = peers && slice.world > 1 && facts.bfloat16;
    for (const LayerPlan& plan : MakeCudaPlans(files.spec(), facts)) {
      WEFT_RETURN_IF_ERROR(CheckServed(CudaServedOps(), plan, files.spec(), types, held));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
