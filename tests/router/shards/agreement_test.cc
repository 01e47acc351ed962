#include "router/shards/agreement.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/limits.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

std::vector<wire::InfoResponse> Infos(uint32_t world) {
  std::vector<wire::InfoResponse> infos(world);
  for (uint32_t rank = 0; rank < world; ++rank) {
    wire::InfoResponse& info = infos[rank];
    info.set_protocol_version(kShardProtocolVersion);
    info.set_rank(rank);
    info.set_world(world);
    info.set_spec_hash(9);
    info.add_kv_groups()->set_block_tokens(16);
    info.set_running_max(64 - rank);
    info.set_step_tokens_max(512);
    info.set_context_tokens(1000);
    info.add_isa_supported("avx512");
    info.add_isa_supported("avx2");
  }
  return infos;
}

TEST_CASE("Shards agree on the best instruction set all have and the smallest sizes",
          "[router][shards]") {
  std::vector<wire::InfoResponse> infos = Infos(3);
  infos[1].clear_isa_supported();
  infos[1].add_isa_supported("avx2");
  const absl::StatusOr<GroupAgreement> agreement = Agree(infos);
  REQUIRE(agreement.ok());
  CHECK(agreement->isa == "avx2");
  CHECK(agreement->running_max == 62);
  CHECK(agreement->step_tokens_max == 512);
}

TEST_CASE("Shards that do not fit are named with what was expected and found", "[router][shards]") {
  const auto error = [](const std::function<void(std::vector<wire::InfoResponse>&)>& change) {
    std::vector<wire::InfoResponse> infos = Infos(2);
    change(infos);
    return std::string(Agree(infos).status().message());
  };
  CHECK(absl::StrContains(error([](auto& i) { i[1].set_spec_hash(1); }),
                          "rank 1 differs from rank 0: the model's settings, or the names"));
  CHECK(absl::StartsWith(error([](auto& i) { i[1].set_rank(0); }),
                         "shard 1: rank: expected 1, found 0; each shard needs a --rank"));
  CHECK(absl::StartsWith(error([](auto& i) { i[0].set_world(1); }),
                         "shard 0: number of shards: expected 2, found 1"));
  CHECK(
      absl::StrContains(error([](auto& i) { i[1].set_protocol_version(99); }), "protocol version"));
  CHECK(absl::StrContains(error([](auto& i) { i[1].mutable_build()->set_revision("x"); }),
                          "revision"));
  CHECK(absl::StrContains(error([](auto& i) {
                            i[1].clear_isa_supported();
                            i[1].add_isa_supported("neon");
                          }),
                          "instruction set"));
  CHECK(error([](auto& i) { i[1].set_step_tokens_max(256); }) ==
        "rank 1 differs from rank 0: step tokens 256 instead of 512; start all shards with the "
        "same --step-tokens-max");
}

TEST_CASE("KV groups share one pool: as many tokens and bytes in each one's blocks",
          "[router][shards]") {
  const auto error = [](const std::function<void(wire::InfoResponse*)>& change) {
    std::vector<wire::InfoResponse> infos = Infos(2);
    for (wire::InfoResponse& info : infos) {
      info.mutable_kv_groups(0)->set_block_bytes(100);
      wire::KvGroup* const second = info.add_kv_groups();
      second->set_window_tokens(64);
      second->set_block_tokens(16);
      second->set_block_bytes(100);
    }
    change(&infos[1]);
    return std::string(Agree(infos).status().message());
  };
  CHECK(error([](auto*) {}).empty());
  CHECK(absl::StrContains(error([](auto* i) { i->mutable_kv_groups(1)->set_window_tokens(32); }),
                          "rank 1 differs from rank 0: window of KV group 1 32 instead of 64"));
  CHECK(error([](auto* i) { i->mutable_kv_groups(1)->set_block_bytes(101); }) ==
        "shard 1: expected the 100 bytes of group 0 in a KV block of group 1, found 101");
  const auto both = [](const std::function<void(wire::InfoResponse*)>& change) {
    std::vector<wire::InfoResponse> infos = Infos(1);
    change(&infos[0]);
    return std::string(Agree(infos).status().message());
  };
  CHECK(both([](auto* i) { i->add_kv_groups()->set_block_tokens(32); }) ==
        "shard 0: expected the 16 tokens of group 0 in a KV block of group 1, found 32");
  CHECK(both([](auto* i) { i->clear_kv_groups(); }) ==
        "shard 0: expected 1 to 16 KV groups, found 0");
  CHECK(both([](auto* i) {
          while (i->kv_groups_size() < 17) i->add_kv_groups()->set_block_tokens(16);
        }) == "shard 0: expected 1 to 16 KV groups, found 17");
  CHECK(both([](auto* i) { i->mutable_kv_groups(0)->set_block_tokens(0); }) ==
        "shard 0: expected KV blocks of at least one token");
  CHECK(absl::StrContains(both([](auto* i) { i->set_running_max(0); }), "running_max 0"));
}

TEST_CASE("Shards of two models say in words how they differ", "[router][shards]") {
  std::vector<wire::InfoResponse> infos = Infos(2);
  for (wire::InfoResponse& info : infos) {
    info.set_family("llama");
    info.mutable_kv_groups(0)->set_layers(30);
    info.set_dtype(weft::v1::DATA_TYPE_BFLOAT16);
  }
  REQUIRE(Agree(infos).ok());
  infos[1].set_family("mixtral");
  infos[1].mutable_kv_groups(0)->set_layers(32);
  infos[1].set_dtype(weft::v1::DATA_TYPE_FLOAT32);
  infos[1].set_spec_hash(1);
  const std::string error(Agree(infos).status().message());
  CHECK(
      error ==
      "rank 1 differs from rank 0: family mixtral instead of llama, layers 32 instead of 30, dtype "
      "float32 instead of bfloat16; start all shards with the same build, --model, --dtype and "
      "--kv-dtype");
}

RouterModel Router() { return {1000, {2, 7}, 0, {TokenizerSource::kTokenizerJson, 5}}; }

wire::InfoResponse Rank0() {
  wire::InfoResponse info;
  info.set_vocab_size(1000);
  info.add_eos_ids(7);
  info.set_context_tokens(4096);
  info.set_tokenizer_source(wire::TOKENIZER_SOURCE_TOKENIZER_JSON);
  info.set_tokenizer_fingerprint(5);
  return info;
}

TEST_CASE("Groups of two models say in words how they differ", "[router][shards]") {
  const wire::InfoResponse first = Infos(1)[0];
  wire::InfoResponse other = first;
  CHECK(SameModelInGroups("group 0", first, "group 1", other).ok());
  CHECK(UnequalNumbers(first, other).empty());
  other.set_context_tokens(2000);
  CHECK(absl::StartsWith(SameModelInGroups("group 0", first, "group 1", other).message(),
                         "group 1 differs from group 0: context tokens 2000 instead of 1000;"));
  // As many shards, device and instruction set may differ.
  other = Infos(2)[0];
  other.clear_isa_supported();
  other.add_isa_supported("avx2");
  CHECK(SameModelInGroups("group 0", first, "group 1", other).ok());
  CHECK(UnequalNumbers(first, other) ==
        "shards 2 instead of 1, instruction set avx2 instead of avx512");
}

TEST_CASE("A router with another model than its shards is told what differs", "[router][shards]") {
  const auto error = [](const std::function<void(RouterModel&, wire::InfoResponse&)>& change) {
    RouterModel model = Router();
    wire::InfoResponse info = Rank0();
    change(model, info);
    return std::string(FitsRouter(model, info).message());
  };
  CHECK(error([](auto&, auto&) {}).empty());
  CHECK(error([](auto&, auto& info) {
          info.set_vocab_size(320);
          info.set_tokenizer_fingerprint(6);
        }) ==
        "the router and the shards have different models: the router's tokenizer has 1000 ids, "
        "rank 0's model 320: start them with the same --model");
  // The same number of ids, but other ones.
  CHECK(absl::StrContains(error([](auto& model, auto&) { model.tokenizer.hash = 6; }),
                          "the router's tokenizer is not the one of rank 0's model"));
  CHECK(absl::StrContains(error([](auto& model, auto&) { model.eos_ids = {3}; }),
                          "rank 0's model ends with token 7, the router's with 3"));
  CHECK(absl::StrContains(error([](auto& model, auto&) { model.context_tokens = 2048; }),
                          "the router's model has a context of 2048 tokens, rank 0's 4096"));
  CHECK(absl::StrContains(error([](auto& model, auto&) { model.context_tokens = 8192; }),
                          "the router's model has a context of 8192 tokens, rank 0's 4096"));
  CHECK(error([](auto& model, auto&) { model.context_tokens = 4096; }).empty());
  // A tokenizer with ids that the model has no rows for, as some fine-tuned ones.
  CHECK(error([](auto&, auto& info) { info.set_vocab_size(999); }).empty());
}

TEST_CASE("Tokenizers of two kinds of file are not compared, and a line says so",
          "[router][shards]") {
  RouterModel model = Router();
  wire::InfoResponse info = Rank0();
  CHECK(TokenizersNotCompared(model, info).empty());
  info.set_tokenizer_source(wire::TOKENIZER_SOURCE_GGUF);
  info.set_tokenizer_fingerprint(99);
  CHECK(FitsRouter(model, info).ok());
  CHECK(absl::StrContains(TokenizersNotCompared(model, info),
                          "the router has a tokenizer.json, rank 0 a GGUF file"));
  // Rows beyond the tokenizer's ids are padding, up to a point.
  info.set_vocab_size(1060);
  CHECK(FitsRouter(model, info).ok());
  info.set_vocab_size(1100);
  CHECK_FALSE(FitsRouter(model, info).ok());
  info.set_vocab_size(999);
  CHECK_FALSE(FitsRouter(model, info).ok());
}

}  // namespace
}  // namespace weft::router
