#include "router/shards/agreement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "router/scheduler/kv_groups.h"

namespace weft::router {
namespace {

using weft::shard::v1::InfoResponse;

template <typename T>
absl::Status Expect(uint32_t rank, absl::string_view what, const T& expected, const T& found) {
  if (expected == found) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", rank, ": ", what, ": expected ", expected, ", found ", found));
}

// What answers at place `place` of --shard belongs there.
absl::Status CheckPlace(uint32_t place, uint32_t world, const InfoResponse& info) {
  const auto refuse = [&](const auto&... what) {
    return absl::FailedPreconditionError(absl::StrCat("shard ", place, ": ", what...));
  };
  if (info.protocol_version() != kShardProtocolVersion) {
    return refuse("protocol version: expected ", kShardProtocolVersion, ", found ",
                  info.protocol_version(), "; run router and shards of one build");
  }
  if (info.rank() != place) {
    return refuse("rank: expected ", place, ", found ", info.rank(),
                  "; each shard needs a --rank of its own, and the router's --shard names them in "
                  "this order");
  }
  if (info.world() != world) {
    return refuse("number of shards: expected ", world, ", found ", info.world(),
                  "; --world of every shard is how many --shard the router has");
  }
  return absl::OkStatus();
}

// "float32" for DATA_TYPE_FLOAT32.
std::string TypeName(weft::v1::DataType type) {
  constexpr absl::string_view kPrefix = "DATA_TYPE_";
  const std::string& name = weft::v1::DataType_Name(type);
  return absl::AsciiStrToLower(absl::StripPrefix(name, kPrefix));
}

uint32_t Layers(const InfoResponse& info) {
  uint32_t layers = 0;
  for (const auto& group : info.kv_groups()) layers += group.layers();
  return layers;
}

std::string EndIds(const InfoResponse& info) {
  return info.eos_ids().empty() ? "none" : absl::StrJoin(info.eos_ids(), " ");
}

// One hash as people compare it.
std::string Hex(uint64_t hash) { return absl::StrCat(absl::Hex(hash, absl::kZeroPad16)); }

// Both describe the same model in the same numbers.
absl::Status SameFacts(absl::string_view a_name, const InfoResponse& a, absl::string_view b_name,
                       const InfoResponse& b) {
  std::vector<std::string> differences;
  const auto expect = [&](absl::string_view what, const auto& expected, const auto& found) {
    if (expected == found) return;
    differences.push_back(absl::StrCat(what, " ", found, " instead of ", expected));
  };
  expect("version", a.build().version(), b.build().version());
  expect("revision", a.build().revision(), b.build().revision());
  expect("family", a.family(), b.family());
  expect("parameters", a.parameters(), b.parameters());
  expect("layers", Layers(a), Layers(b));
  expect("vocabulary", a.vocab_size(), b.vocab_size());
  expect("end ids", EndIds(a), EndIds(b));
  expect("context tokens", a.context_tokens(), b.context_tokens());
  expect("dtype", TypeName(a.dtype()), TypeName(b.dtype()));
  expect("KV dtype", TypeName(a.kv_dtype()), TypeName(b.kv_dtype()));
  expect("tokenizer hash", Hex(a.tokenizer_fingerprint()), Hex(b.tokenizer_fingerprint()));
  expect("KV groups", a.kv_groups_size(), b.kv_groups_size());
  for (int i = 0; i < std::min(a.kv_groups_size(), b.kv_groups_size()); ++i) {
    expect("KV block tokens", a.kv_groups(i).block_tokens(), b.kv_groups(i).block_tokens());
    expect(absl::StrCat("window of KV group ", i), a.kv_groups(i).window_tokens(),
           b.kv_groups(i).window_tokens());
  }
  if (differences.empty() && a.spec_hash() != b.spec_hash()) {
    differences.push_back(absl::StrCat(
        "the model's settings, or the names, types or shapes of its tensors (spec hash ",
        Hex(b.spec_hash()), " instead of ", Hex(a.spec_hash()), ")"));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(b_name, " differs from ", a_name, ": ", absl::StrJoin(differences, ", "),
                   "; start all shards with the same build, --model, --dtype and --kv-dtype"));
}

absl::Status SameFacts(const InfoResponse& a, const InfoResponse& b) {
  return SameFacts("rank 0", a, absl::StrCat("rank ", b.rank()), b);
}

// One pool serves all KV groups, so their blocks have one size.
absl::Status CheckKvGroups(uint32_t rank, const InfoResponse& info) {
  const auto refuse = [&](const auto&... what) {
    return absl::FailedPreconditionError(absl::StrCat("shard ", rank, ": ", what...));
  };
  if (info.kv_groups_size() < 1 || info.kv_groups_size() > static_cast<int>(kKvGroupsMax)) {
    return refuse("expected 1 to ", kKvGroupsMax, " KV groups, found ", info.kv_groups_size());
  }
  const auto& first = info.kv_groups(0);
  if (first.block_tokens() == 0) return refuse("expected KV blocks of at least one token");
  for (int i = 1; i < info.kv_groups_size(); ++i) {
    const auto& group = info.kv_groups(i);
    if (group.block_tokens() != first.block_tokens()) {
      return refuse("expected the ", first.block_tokens(), " tokens of group 0 in a KV block of ",
                    "group ", i, ", found ", group.block_tokens());
    }
    if (group.block_bytes() != first.block_bytes()) {
      return refuse("expected the ", first.block_bytes(), " bytes of group 0 in a KV block of ",
                    "group ", i, ", found ", group.block_bytes());
    }
  }
  return absl::OkStatus();
}

// A model may have rows for more ids than its tokenizer has, to round its matrices up: the
// published ones have up to 2 % more.
constexpr uint32_t kSpareIdsShare = 16;

bool SameSource(const RouterModel& model, const InfoResponse& info) {
  return model.tokenizer.source != TokenizerSource::kNone &&
         static_cast<int>(model.tokenizer.source) == static_cast<int>(info.tokenizer_source());
}

const char* SourceName(int source) {
  switch (source) {
    case weft::shard::v1::TOKENIZER_SOURCE_TOKENIZER_JSON:
      return "a tokenizer.json";
    case weft::shard::v1::TOKENIZER_SOURCE_GGUF:
      return "a GGUF file";
    default:
      return "no tokenizer";
  }
}

}  // namespace

absl::StatusOr<GroupAgreement> Agree(absl::Span<const InfoResponse> infos) {
  GroupAgreement agreement;
  const InfoResponse& first = infos.front();
  for (uint32_t rank = 0; rank < infos.size(); ++rank) {
    const InfoResponse& info = infos[rank];
    absl::Status status = CheckPlace(rank, static_cast<uint32_t>(infos.size()), info);
    if (status.ok()) status = SameFacts(first, info);
    if (status.ok()) status = CheckKvGroups(rank, info);
    if (!status.ok()) return status;
    if (info.running_max() == 0 || info.step_tokens_max() == 0 || info.context_tokens() == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "shard ", rank, ": expected sizes above zero, found running_max ", info.running_max(),
          ", step_tokens_max ", info.step_tokens_max(), ", context ", info.context_tokens()));
    }
    // What the ranks exchange in a step has room for so many tokens.
    if (info.step_tokens_max() != first.step_tokens_max()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " differs from rank 0: step tokens ", info.step_tokens_max(),
                       " instead of ", first.step_tokens_max(),
                       "; start all shards with the same --step-tokens-max"));
    }
    agreement.running_max =
        rank == 0 ? info.running_max() : std::min(agreement.running_max, info.running_max());
  }
  agreement.step_tokens_max = first.step_tokens_max();
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

absl::Status SameModelInGroups(absl::string_view first_name, const InfoResponse& first,
                               absl::string_view name, const InfoResponse& info) {
  return SameFacts(first_name, first, name, info);
}

std::string UnequalNumbers(const InfoResponse& first, const InfoResponse& info) {
  std::vector<std::string> differences;
  const auto expect = [&](absl::string_view what, const auto& expected, const auto& found) {
    if (expected != found) {
      differences.push_back(absl::StrCat(what, " ", found, " instead of ", expected));
    }
  };
  const auto best_isa = [](const InfoResponse& of) {
    return of.isa_supported().empty() ? std::string("none") : of.isa_supported(0);
  };
  expect("shards", first.world(), info.world());
  expect("device", first.device(), info.device());
  expect("instruction set", best_isa(first), best_isa(info));
  return absl::StrJoin(differences, ", ");
}

absl::Status FitsRouter(const RouterModel& model, const InfoResponse& info) {
  if (model.vocab_size == 0) return absl::OkStatus();
  std::vector<std::string> differences;
  const bool comparable = SameSource(model, info);
  const bool same_tokenizer = comparable && model.tokenizer.hash == info.tokenizer_fingerprint();
  const uint32_t ids_max = model.vocab_size + model.vocab_size / kSpareIdsShare;
  if (!same_tokenizer && (info.vocab_size() < model.vocab_size || info.vocab_size() > ids_max)) {
    differences.push_back(absl::StrCat("the router's tokenizer has ", model.vocab_size,
                                       " ids, rank 0's model ", info.vocab_size()));
  } else if (comparable && !same_tokenizer) {
    differences.push_back(absl::StrCat(
        "the router's tokenizer is not the one of rank 0's model (hash ", Hex(model.tokenizer.hash),
        ", rank 0 has ", Hex(info.tokenizer_fingerprint()), ")"));
  }
  for (const TokenId id : info.eos_ids()) {
    if (std::find(model.eos_ids.begin(), model.eos_ids.end(), id) != model.eos_ids.end()) continue;
    differences.push_back(absl::StrCat(
        "rank 0's model ends with token ", id, ", the router's with ",
        model.eos_ids.empty() ? std::string("none") : absl::StrJoin(model.eos_ids, " ")));
    break;
  }
  if (model.context_tokens > 0 && info.context_tokens() != model.context_tokens) {
    differences.push_back(absl::StrCat("the router's model has a context of ", model.context_tokens,
                                       " tokens, rank 0's ", info.context_tokens()));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the router and the shards have different models: ", absl::StrJoin(differences, "; "),
      ": start them with the same --model"));
}

std::string TokenizersNotCompared(const RouterModel& model, const InfoResponse& info) {
  if (model.vocab_size == 0 || SameSource(model, info)) return "";
  return absl::StrCat(
      "the tokenizers are not compared, only the vocabularies, end ids and contexts: the "
      "router has ",
      SourceName(static_cast<int>(model.tokenizer.source)), ", rank 0 ",
      SourceName(static_cast<int>(info.tokenizer_source())));
}

}  // namespace weft::router
