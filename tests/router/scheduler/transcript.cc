#include "tests/router/scheduler/transcript.h"

#include <deque>
#include <map>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "router/scheduler/scheduler.h"

namespace weft::router {
namespace {

// One command: its name, plain words, and name=value words.
struct Command {
  std::string name;
  std::vector<std::string> words;
  std::map<std::string, std::string> values;

  explicit Command(const std::string& line) {
    const std::vector<std::string> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
    name = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::vector<std::string> pair = absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
      if (pair.size() == 2) {
        values[pair[0]] = pair[1];
      } else {
        words.push_back(parts[i]);
      }
    }
  }

  int64_t Number(const std::string& key, int64_t fallback) const {
    const auto it = values.find(key);
    return it == values.end() ? fallback : std::stoll(it->second);
  }
  bool Has(const std::string& word) const {
    for (const std::string& w : words) {
      if (w == word) return true;
    }
    return false;
  }
};

std::vector<TokenId> ParseTokens(const std::string& text) {
  std::vector<TokenId> ids;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, "..");
    const TokenId first = std::stoul(ends[0]);
    const TokenId last = ends.size() == 2 ? std::stoul(ends[1]) : first;
    for (TokenId id = first; id <= last; ++id) ids.push_back(id);
  }
  return ids;
}

std::string Slots(const std::vector<Slot>& slots) {
  return absl::StrCat("[", absl::StrJoin(slots, " "), "]");
}

const char* Name(EndReason reason) {
  switch (reason) {
    case EndReason::kLength:
      return "length";
    case EndReason::kEosToken:
      return "eos";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kGroupLosses:
      return "group losses";
    case EndReason::kPoolShrank:
      return "pool shrank";
  }
  return "?";
}

std::string Describe(const StepPlan& plan) {
  static constexpr const char* kKinds[] = {"prefill", "decode", "filter"};
  std::string out = absl::StrCat("step ", plan.step, " ", kKinds[static_cast<int>(plan.kind)]);
  if (!plan.drops.empty()) absl::StrAppend(&out, " drop ", Slots(plan.drops));
  if (plan.with_decode) absl::StrAppend(&out, " decode ", Slots(plan.decode_slots));
  if (!plan.skip_slots.empty()) absl::StrAppend(&out, " skip ", Slots(plan.skip_slots));
  if (plan.predicted_us > 0) absl::StrAppend(&out, " predicted ", plan.predicted_us, " us");
  absl::StrAppend(&out, "\n");
  for (const PlannedBlocks& delta : plan.blocks) {
    absl::StrAppend(&out, "  slot ", delta.slot);
    // Group 0 goes without saying.
    if (delta.group > 0) absl::StrAppend(&out, " group ", delta.group);
    if (delta.leave_front > 0) absl::StrAppend(&out, " leave ", delta.leave_front);
    if (delta.count > 0) absl::StrAppend(&out, " blocks");
    for (uint32_t i = 0; i < delta.count; ++i) {
      absl::StrAppend(&out, " ", plan.block_ids[delta.begin + i]);
    }
    absl::StrAppend(&out, "\n");
  }
  for (const PlannedChunk& chunk : plan.chunks) {
    absl::StrAppend(&out, "  chunk of ", chunk.id, " in slot ", chunk.slot, ": ", chunk.start, "..",
                    chunk.start + chunk.count - 1, chunk.first ? " first" : "",
                    chunk.last ? " last" : "", "\n");
  }
  return out;
}

class Runner {
 public:
  // Runs one command and returns its output.
  std::string Run(const std::string& line) {
    const Command command(line);
    if (command.name == "config") {
      Configure(command);
      return "";
    }
    if (scheduler_ == nullptr) Configure(Command("config"));
    const std::string out = Dispatch(command);
    scheduler_->CheckInvariantsForTest();
    return out;
  }

 private:
  void Configure(const Command& command) {
    SchedulerConfig config;
    config.running_max = command.Number("running_max", 4);
    config.step_tokens_max = command.Number("step_tokens_max", 32);
    config.block_tokens = command.Number("block_tokens", 4);
    config.context_tokens_max = command.Number("context_tokens_max", 1024);
    config.inter_token_target_us = command.Number("inter_token_target_us", 1000000);
    config.watermark_permille = command.Number("watermark_permille", 0);
    config.ageing_us = command.Number("ageing_us", kAgeingUsDefault);
    config.prefix_cache = command.Number("prefix_cache", 1) != 0;
    if (command.values.count("windows") != 0) {
      config.kv_windows = ParseTokens(command.values.at("windows"));
    }
    config.hash_key[0] = 1;
    config.hash_key[1] = 2;
    config.eos_ids = {static_cast<TokenId>(command.Number("eos", 0))};
    scheduler_ = std::make_unique<Scheduler>(config);
  }

  std::string Dispatch(const Command& command) {
    if (command.name == "at") {
      now_us_ = std::stoll(command.words.at(0));
      return "";
    }
    if (command.name == "cut") {
      return absl::StrCat(
          scheduler_
              ->CutLimit(std::stoull(command.words.at(0)), command.Number("tokens", 1), now_us_)
              .ToString(),
          "\n");
    }
    if (command.name == "flush") {
      scheduler_->OnFlush(now_us_);
      return "";
    }
    if (command.name == "group") return Group(command);
    if (command.name == "arrive") return Arrive(command);
    if (command.name == "plan") return Plan();
    if (command.name == "done") return Done(command);
    if (command.name == "run") return RunSteps(command);
    if (command.name == "lost") {
      std::vector<Ended> ended;
      scheduler_->OnGroupLost(now_us_, &ended);
      in_flight_.clear();
      return Ends(ended);
    }
    if (command.name == "cancel") {
      std::vector<Ended> ended;
      scheduler_->OnCancel(std::stoull(command.words.at(0)), now_us_, &ended);
      return Ends(ended);
    }
    if (command.name == "log") {
      const SequenceId id = std::stoull(command.words.at(0));
      return absl::StrCat(absl::StrJoin(scheduler_->Log(id), " "), "\n");
    }
    if (command.name == "cached") {
      return absl::StrCat(scheduler_->CachedTokens(std::stoull(command.words.at(0))), "\n");
    }
    if (command.name == "stats") return Stats();
    if (command.name == "groups") return Groups();
    throw std::invalid_argument(absl::StrCat("unknown command ", command.name));
  }

  std::string Group(const Command& command) {
    GroupInfo group;
    group.epoch = ++epoch_;
    group.kv_blocks = command.Number("blocks", 16);
    std::vector<GroupInfo::Cost> costs;
    if (command.values.count("cost") != 0) {
      for (absl::string_view point : absl::StrSplit(command.values.at("cost"), ',')) {
        const std::vector<std::string> n = absl::StrSplit(point, '/');
        costs.push_back({static_cast<uint32_t>(std::stoul(n.at(0))),
                         static_cast<uint32_t>(std::stoul(n.at(1))), std::stoull(n.at(2)),
                         static_cast<uint32_t>(std::stoul(n.at(3)))});
      }
    }
    group.costs = costs;
    std::vector<Ended> ended;
    scheduler_->OnGroupFormed(group, now_us_, &ended);
    return Ends(ended);
  }

  std::string Arrive(const Command& command) {
    Arrival arrival;
    arrival.id = std::stoull(command.words.at(0));
    arrival.prompt = Prompt(ParseTokens(command.values.at("prompt")), command.Number("salt", 0));
    arrival.max_new_tokens = command.Number("max_new", 1);
    arrival.priority = command.Number("priority", 0);
    arrival.tenant = command.Number("tenant", 0);
    arrival.tenant_weight = command.Number("weight", 1);
    arrival.ignore_eos = command.Has("ignore_eos");
    if (command.values.contains("stop_ids")) {
      arrival.stop_ids = ParseTokens(command.values.at("stop_ids"));
    }
    arrival.bypass_prefix_cache = command.Has("bypass");
    const absl::Status status = scheduler_->OnArrival(std::move(arrival), now_us_);
    return status.ok() ? "" : absl::StrCat(status.ToString(), "\n");
  }

  std::string Plan() {
    const StepPlan* const plan = scheduler_->Plan(now_us_);
    if (plan == nullptr) return "nothing to do\n";
    in_flight_.push_back(*plan);
    return Describe(*plan);
  }

  std::string Done(const Command& command) {
    if (in_flight_.empty()) throw std::invalid_argument("done without a step in flight");
    const StepPlan plan = in_flight_.front();
    in_flight_.pop_front();
    std::vector<SampledRow> rows;
    const auto add = [&](Slot slot) {
      const size_t i = rows.size();
      const TokenId token = i < command.words.size() ? std::stoul(command.words[i]) : next_token_++;
      rows.push_back({slot, token});
    };
    for (const Slot slot : plan.decode_slots) add(slot);
    for (const PlannedChunk& chunk : plan.chunks) {
      if (chunk.last) add(chunk.slot);
    }
    std::vector<Emitted> emitted;
    std::vector<Ended> ended;
    const StepTime time = {static_cast<uint32_t>(command.Number("us", 0))};
    scheduler_->OnStepDone(plan.step, rows, time, now_us_, &emitted, &ended);
    std::string out;
    for (const Emitted& e : emitted) {
      absl::StrAppend(&out, "token ", e.token, " of ", e.id, " (row ", e.row, ")\n");
    }
    return out + Ends(ended);
  }

  std::string RunSteps(const Command& command) {
    const int steps = command.words.empty() ? 1000 : std::stoi(command.words[0]);
    std::string out;
    for (int i = 0; i < steps; ++i) {
      while (in_flight_.size() < kStepsInFlightMax) {
        const StepPlan* const plan = scheduler_->Plan(now_us_);
        if (plan == nullptr) break;
        in_flight_.push_back(*plan);
      }
      if (in_flight_.empty()) break;
      for (absl::string_view line : absl::StrSplit(Done(Command("done")), '\n')) {
        if (absl::StartsWith(line, "end ")) absl::StrAppend(&out, line, "\n");
      }
      scheduler_->CheckInvariantsForTest();
    }
    // What was planned ahead is answered too.
    while (!in_flight_.empty()) out += Done(Command("done"));
    return out;
  }

  std::string Stats() const {
    const SchedulerStats s = scheduler_->Stats();
    return absl::StrCat("running ", s.running, " waiting ", s.waiting, " blocks ", s.blocks_total,
                        " used ", s.blocks_used, " cached ", s.blocks_cached, " preemptions ",
                        s.preemptions, " queried ", s.prefix_queried_tokens, " hit ",
                        s.prefix_hit_tokens, " evicted ", s.evicted_blocks, "\n");
  }

  std::string Groups() const {
    const SchedulerStats s = scheduler_->Stats();
    std::string out;
    for (uint32_t group = 0; group < s.kv_groups; ++group) {
      absl::StrAppend(&out, "group ", group, " used ", s.group_blocks_used[group], " cached ",
                      s.group_blocks_cached[group], "\n");
    }
    return out;
  }

  static std::string Ends(const std::vector<Ended>& ended) {
    std::string out;
    for (const Ended& e : ended) absl::StrAppend(&out, "end ", e.id, " ", Name(e.reason), "\n");
    return out;
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::deque<StepPlan> in_flight_;
  Epoch epoch_ = 0;
  int64_t now_us_ = 0;
  TokenId next_token_ = 900;
};

}  // namespace

TranscriptResult RunTranscript(const std::string& text) {
  TranscriptResult result;
  Runner runner;
  std::string output;
  bool in_output = false;
  int line_number = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'))) {
    ++line_number;
    if (in_output) {
      // The old output; an empty line ends it.
      if (!line.empty()) continue;
      in_output = false;
    }
    absl::StrAppend(&result.actual, line, "\n");
    if (line == "----") {
      result.actual += output;
      output.clear();
      in_output = true;
    } else if (!line.empty() && line[0] != '#') {
      try {
        output += runner.Run(line);
      } catch (const std::exception& e) {
        result.error = absl::StrCat("line ", line_number, ": \"", line, "\": ", e.what());
        return result;
      }
    }
  }
  if (!output.empty()) result.error = "the last commands lack a line ---- and their output";
  return result;
}

}  // namespace weft::router
