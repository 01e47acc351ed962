#include "router/shards/agreement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"

namespace weft::router {
namespace {

using weft::shard::v1::InfoResponse;

template <typename T>
absl::Status Expect(uint32_t rank, absl::string_view what, const T& expected, const T& found) {
  if (expected == found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", rank, ": ", what, ": expected ", expected, ", found ", found));
}

// Both describe the same model in the same numbers.
absl::Status SameFacts(const InfoResponse& a, const InfoResponse& b) {
  const uint32_t rank = b.rank();
  absl::Status status;
  const auto expect = [&](absl::string_view what, auto expected, auto found) {
    if (status.ok()) status = Expect(rank, what, expected, found);
  };
  expect("spec hash", a.spec_hash(), b.spec_hash());
  expect("version", a.build().version(), b.build().version());
  expect("revision", a.build().revision(), b.build().revision());
  expect("dtype", static_cast<int>(a.dtype()), static_cast<int>(b.dtype()));
  expect("KV dtype", static_cast<int>(a.kv_dtype()), static_cast<int>(b.kv_dtype()));
  expect("vocabulary", a.vocab_size(), b.vocab_size());
  expect("context tokens", a.context_tokens(), b.context_tokens());
  expect("KV groups", a.kv_groups_size(), b.kv_groups_size());
  for (int i = 0; status.ok() && i < a.kv_groups_size(); ++i) {
    expect("KV block tokens", a.kv_groups(i).block_tokens(), b.kv_groups(i).block_tokens());
  }
  return status;
}

}  // namespace

absl::StatusOr<GroupAgreement> Agree(absl::Span<const InfoResponse> infos) {
  GroupAgreement agreement;
  const InfoResponse& first = infos.front();
  for (uint32_t rank = 0; rank < infos.size(); ++rank) {
    const InfoResponse& info = infos[rank];
    absl::Status status =
        Expect(rank, "protocol version", kShardProtocolVersion, info.protocol_version());
    if (status.ok()) status = Expect(rank, "rank", rank, info.rank());
    if (status.ok()) {
      status = Expect(rank, "number of shards", static_cast<uint32_t>(infos.size()), info.world());
    }
    if (status.ok()) status = SameFacts(first, info);
    if (!status.ok()) return status;
    if (info.kv_groups_size() != 1 || info.kv_groups(0).block_tokens() == 0 ||
        info.running_max() == 0 || info.step_tokens_max() == 0 || info.context_tokens() == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "shard ", rank, ": expected one KV group and sizes above zero, found ",
          info.kv_groups_size(), " KV groups, running_max ", info.running_max(),
          ", step_tokens_max ", info.step_tokens_max(), ", context ", info.context_tokens()));
    }
    agreement.running_max =
        rank == 0 ? info.running_max() : std::min(agreement.running_max, info.running_max());
    agreement.step_tokens_max = rank == 0
                                    ? info.step_tokens_max()
                                    : std::min(agreement.step_tokens_max, info.step_tokens_max());
  }
  for (const std::string& isa : first.isa_supported()) {
    const bool everywhere = std::all_of(infos.begin(), infos.end(), [&](const InfoResponse& info) {
      return std::find(info.isa_supported().begin(), info.isa_supported().end(), isa) !=
             info.isa_supported().end();
    });
    if (everywhere) {
      agreement.isa = isa;
      return agreement;
    }
  }
  if (first.isa_supported_size() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shards have no instruction set in common; rank 0's best is ",
                     first.isa_supported(0), "; start all with the same --cpu-isa"));
  }
  return agreement;
}

absl::Status SameModel(const InfoResponse& first, const InfoResponse& info) {
  absl::Status status = SameFacts(first, info);
  if (status.ok() && info.running_max() < first.running_max()) {
    status = Expect(info.rank(), "running_max", first.running_max(), info.running_max());
  }
  if (status.ok() && info.step_tokens_max() < first.step_tokens_max()) {
    status =
        Expect(info.rank(), "step_tokens_max", first.step_tokens_max(), info.step_tokens_max());
  }
  return status;
}

}  // namespace weft::router
