#include "shard/device/cpu/served.h"

#include <vector>

#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cpu/planner.h"

namespace weft::shard {
namespace {

constexpr uint32_t kPlain = SetOf(Way::kPlain);
constexpr uint32_t kStores = SetOf(Epilogue::kStore);
constexpr uint32_t kActivations = SetOf(NumberType::kFloat32, NumberType::kBfloat16);
constexpr uint32_t kKv = SetOf(NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16);

// An operation on rows.
constexpr ServedOp OfRows(OpKind kind) {
  return {kind, kPlain, kStores, kActivations, kKv, kAllTensorTypes};
}

// Every format is multiplied as it is: those that kernels do not take beside bfloat16 rows
// (kernels/cpu/packed_format.h) get float32 ones.
constexpr ServedOp kOps[] = {
    OfRows(OpKind::kEmbed),
    OfRows(OpKind::kAddPositions),
    OfRows(OpKind::kNormResidual),
    OfRows(OpKind::kNormPartial),
    OfRows(OpKind::kNorm),
    OfRows(OpKind::kRound),
    {OpKind::kLinear, kPlain, SetOf(Epilogue::kStore, Epilogue::kAddToOut, Epilogue::kActivate),
     kActivations, kKv, kAllTensorTypes},
    OfRows(OpKind::kAddBias),
    OfRows(OpKind::kClip),
    OfRows(OpKind::kNormHeads),
    OfRows(OpKind::kNormLatent),
    OfRows(OpKind::kHeadLinear),
    OfRows(OpKind::kRotateAppend),
    OfRows(OpKind::kKeepSampled),
    OfRows(OpKind::kAttend),
    OfRows(OpKind::kActivate),
    OfRows(OpKind::kRoute),
    {OpKind::kExpertLinear, kPlain, SetOf(Epilogue::kStore, Epilogue::kActivate), kActivations, kKv,
     kAllTensorTypes},
    OfRows(OpKind::kScaleShared),
    OfRows(OpKind::kCombine),
    OfRows(OpKind::kSumRanks),
    OfRows(OpKind::kAddResidual),
    OfRows(OpKind::kCapLogits),
    OfRows(OpKind::kGatherLogits),
};

}  // namespace

const ServedOps& CpuServedOps() {
  static constexpr ServedOps kServed = {"CPU shards", "--device cuda", kOps,
                                        /*experts_of_one_type=*/true};
  return kServed;
}

absl::Status CheckCpuServes(const ModelFiles& files, uint32_t world, const MemoryFlags& flags,
                            absl::Span<const PlanRule* const> rules) {
  std::vector<MatrixFormat> held = files.Matrices();
  for (MatrixFormat& matrix : held) matrix.type = CpuMatrixType(matrix.type, flags.dtype);
  return CheckServed(CpuServedOps(), MakeCpuPlan(files.spec(), world, rules), files.spec(),
                     ResolveCpuTypes(flags.dtype, flags.kv_dtype, files.main_type()), held);
}

}  // namespace weft::shard
