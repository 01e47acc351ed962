// Every tiny model, on 1, 2 and 4 ranks, through every way that a sequence can take: prints a table
// and fails where greedy tokens in float32 are not those that transformers gave.
//
//   weft_model_matrix [--device cpu|cuda] [--worlds 1,2,4] [--models NAME,...]
//
//   alone      one prompt after the other
//   batched    all prompts in the same steps, each new one beside those that decode
//   chunked    prompts in pieces of 17 tokens
//   prefix     behind the blocks of another sequence that has the same beginning
//   preempted  dropped after ten tokens, and computed again with what it had
//   recovered  the same in a new epoch, after all ranks have forgotten everything
//
// "-": the model's heads, or blocks of its formats, do not divide among so many ranks.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "shard/kv/memory_plan.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

constexpr size_t kChunkTokens = 150;
constexpr size_t kSmallChunkTokens = 17;
constexpr size_t kTokensBeforeLoss = 10;

using Ids = std::vector<TokenId>;

struct Case {
  Ids prompt;
  Ids expected;
};

struct Options {
  bool cuda = false;
  std::vector<uint32_t> worlds = {1, 2, 4};
  std::vector<std::string> models = test::GoldenModels();
};

Ids ReadIds(const boost::json::value& list) {
  Ids ids;
  for (const boost::json::value& id : list.as_array()) ids.push_back(id.to_number<TokenId>());
  return ids;
}

std::vector<Case> ReadCases(const std::string& name) {
  std::vector<Case> cases;
  const boost::json::value golden = test::ReadGolden(name + "/golden.json");
  for (const boost::json::value& one : golden.at("cases").as_array()) {
    cases.push_back({ReadIds(one.at("prompt_ids")), ReadIds(one.at("greedy_ids"))});
  }
  return cases;
}

// Steps of one group.
class Walk {
 public:
  explicit Walk(RankGroup& group) : group_(group), maker_(group.Maker()) {}

  StepMaker& maker() { return maker_; }

  // `ids` in chunks; with `sample` the token behind them.
  TokenId Prompt(Slot slot, const Ids& ids, size_t chunk_tokens, bool sample = true) {
    for (size_t begin = 0; begin < ids.size(); begin += chunk_tokens) {
      const size_t end = std::min(ids.size(), begin + chunk_tokens);
      const Ids chunk(ids.begin() + static_cast<ptrdiff_t>(begin),
                      ids.begin() + static_cast<ptrdiff_t>(end));
      maker_.Chunk(slot, chunk, sample && end == ids.size());
      const StepResult result = group_.Run(maker_.Take());
      if (!result.ids.empty()) last_ = result.ids.at(0);
    }
    return last_;
  }

  // Until `ids` are `count`, the last of which the slot has sampled.
  void Decode(Slot slot, size_t count, Ids* ids) {
    while (ids->size() < count) {
      maker_.Decode(slot);
      ids->push_back(group_.Run(maker_.Take()).ids.at(0));
    }
  }

  void Drop(Slot slot) {
    maker_.Drop(slot);
    (void)group_.Run(maker_.Take());
  }

 private:
  RankGroup& group_;
  StepMaker maker_;
  TokenId last_ = 0;
};

Ids Alone(RankGroup& group, const Case& one, size_t chunk_tokens) {
  Walk walk(group);
  walk.maker().Start(0, SamplingParams{});
  Ids ids = {walk.Prompt(0, one.prompt, chunk_tokens)};
  walk.Decode(0, one.expected.size(), &ids);
  walk.Drop(0);
  return ids;
}

Ids BehindPrefix(RankGroup& group, const Case& one, uint32_t block_tokens) {
  Walk walk(group);
  const size_t shared = (one.prompt.size() - 1) / block_tokens * block_tokens;
  const auto middle = one.prompt.begin() + static_cast<ptrdiff_t>(shared);
  walk.maker().Start(1, SamplingParams{});
  if (shared > 0) {
    walk.maker().Start(0, SamplingParams{});
    (void)walk.Prompt(0, {one.prompt.begin(), middle}, kChunkTokens, /*sample=*/false);
    walk.maker().SharePrefix(1, 0, static_cast<uint32_t>(shared));
  }
  Ids ids = {walk.Prompt(1, {middle, one.prompt.end()}, kChunkTokens)};
  walk.Decode(1, one.expected.size(), &ids);
  walk.Drop(1);
  if (shared > 0) walk.Drop(0);
  return ids;
}

Ids Again(RankGroup& group, const Case& one, bool new_epoch) {
  Ids ids;
  {
    Walk walk(group);
    walk.maker().Start(0, SamplingParams{});
    ids.push_back(walk.Prompt(0, one.prompt, kChunkTokens));
    walk.Decode(0, kTokensBeforeLoss, &ids);
    if (!new_epoch) walk.Drop(0);
  }
  if (new_epoch) group.NewEpoch("");
  Walk walk(group);
  walk.maker().Start(0, SamplingParams{});
  Ids so_far = one.prompt;
  so_far.insert(so_far.end(), ids.begin(), ids.end());
  ids.push_back(walk.Prompt(0, so_far, kChunkTokens));
  walk.Decode(0, one.expected.size(), &ids);
  walk.Drop(0);
  return ids;
}

bool Batched(RankGroup& group, const std::vector<Case>& cases) {
  StepMaker maker = group.Maker();
  std::vector<Ids> got(cases.size());
  std::vector<size_t> fed(cases.size());
  // A sequence enters with every step, until all have their tokens.
  for (size_t begun = 1;; begun = std::min(begun + 1, cases.size())) {
    // Sequences that decode come first in a step.
    for (size_t i = 0; i < begun; ++i) {
      const bool done = got[i].size() == cases[i].expected.size();
      if (!done && fed[i] == cases[i].prompt.size()) maker.Decode(static_cast<Slot>(i));
    }
    size_t room = kChunkTokens;
    for (size_t i = 0; i < begun; ++i) {
      const Slot slot = static_cast<Slot>(i);
      const Ids& prompt = cases[i].prompt;
      if (fed[i] == prompt.size()) continue;
      if (fed[i] == 0) maker.Start(slot, SamplingParams{});
      const size_t count = std::min(room, prompt.size() - fed[i]);
      if (count == 0) continue;
      const auto first = prompt.begin() + static_cast<ptrdiff_t>(fed[i]);
      fed[i] += count;
      room -= count;
      maker.Chunk(slot, {first, first + static_cast<ptrdiff_t>(count)}, fed[i] == prompt.size());
    }
    const StepBatch step = maker.Take();
    if (step.sequences.empty()) break;
    const StepResult result = group.Run(step);
    for (size_t row = 0; row < result.ids.size(); ++row) {
      got[result.slots.at(row)].push_back(result.ids[row]);
    }
  }
  bool equal = true;
  for (size_t i = 0; i < cases.size(); ++i) equal = equal && got[i] == cases[i].expected;
  return equal;
}

// One line; the number of ways that failed.
int PrintRow(const std::string& name, uint32_t world, const Options& options) {
  const std::vector<Case> cases = ReadCases(name);
  GroupOptions group_options;
  group_options.model = test::GoldenModelPath(name);
  group_options.world = world;
  group_options.cuda = options.cuda;
  const uint32_t block_tokens = options.cuda ? kKvBlockTokensCuda : kKvBlockTokensCpu;
  std::printf("%-28s %5u", name.c_str(), world);
  if (world > test::GoldenRanksMax(name)) {
    std::printf("  -\n");
    return 0;
  }
  RankGroup group(group_options);
  int failed = 0;
  const auto print = [&failed](bool equal) {
    std::printf("  %-9s", equal ? "ok" : "FAILED");
    failed += equal ? 0 : 1;
  };
  const auto each = [&cases](const std::function<Ids(const Case&)>& run) {
    return std::all_of(cases.begin(), cases.end(),
                       [&run](const Case& one) { return run(one) == one.expected; });
  };
  print(each([&](const Case& one) { return Alone(group, one, kChunkTokens); }));
  print(Batched(group, cases));
  print(each([&](const Case& one) { return Alone(group, one, kSmallChunkTokens); }));
  print(each([&](const Case& one) { return BehindPrefix(group, one, block_tokens); }));
  print(each([&](const Case& one) { return Again(group, one, /*new_epoch=*/false); }));
  print(each([&](const Case& one) { return Again(group, one, /*new_epoch=*/true); }));
  std::printf("\n");
  std::fflush(stdout);
  return failed;
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string value = argv[i + 1];
    if (std::strcmp(argv[i], "--device") == 0 && (value == "cpu" || value == "cuda")) {
      options->cuda = value == "cuda";
    } else if (std::strcmp(argv[i], "--models") == 0) {
      options->models = absl::StrSplit(value, ',');
    } else if (std::strcmp(argv[i], "--worlds") == 0) {
      options->worlds.clear();
      for (const absl::string_view word : absl::StrSplit(value, ',')) {
        uint32_t world = 0;
        if (!absl::SimpleAtoi(word, &world) || world == 0) return false;
        options->worlds.push_back(world);
      }
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace
}  // namespace weft::shard

int main(int argc, char** argv) {
  weft::shard::Options options;
  if (!weft::shard::Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: weft_model_matrix [--device cpu|cuda] [--worlds 1,2,4] [--models NAME,...]"
                 "\n");
    return 2;
  }
  std::printf("%-28s %5s  %-9s  %-9s  %-9s  %-9s  %-9s  %-9s\n", "model", "ranks", "alone",
              "batched", "chunked", "prefix", "preempted", "recovered");
  int failed = 0;
  for (const std::string& name : options.models) {
    for (const uint32_t world : options.worlds) {
      failed += weft::shard::PrintRow(name, world, options);
    }
  }
  std::printf("%s\n", failed == 0 ? "all ok" : absl::StrCat(failed, " failed").c_str());
  return failed == 0 ? 0 : 1;
}
