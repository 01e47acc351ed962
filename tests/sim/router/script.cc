// Scripts from seeds: every seed has a mood (calm, floods, faults, small pools), so that no fault
// hides all others.

#include "tests/sim/router/script.h"

#include <algorithm>

#include "router/shards/call.h"
#include "tests/sim/router/virtual_time.h"

namespace weft::router::sim {
namespace {

// Shards need a moment to load; requests before that are refused.
constexpr int64_t kBeginUs = 200'000;
// Owner of the draws of who goes on with an answer from elsewhere, by request.
constexpr uint64_t kResumeDraws = uint64_t{1} << 40;
// Of constraints; of faults that masks brought with them; of flushes of the prefix cache.
constexpr uint64_t kConstraintDraws = uint64_t{1} << 41;
constexpr uint64_t kMaskFaultDraws = uint64_t{1} << 42;
constexpr uint64_t kFlushDraws = uint64_t{1} << 43;
constexpr uint64_t kScoreDraws = uint64_t{1} << 44;
constexpr int64_t kWithMaskRows = static_cast<int64_t>(ShardCall::kMaskRows) + 1;

class Maker {
 public:
  Maker(uint64_t seed, int64_t groups) : draws_(seed, 0) {
    script_.settings.seed = static_cast<int64_t>(Mix(seed) >> 16);
    script_.settings.groups = groups;
  }

  Script Make() {
    ChooseModel();
    ChooseLimits();
    end_us_ = draws_.Between(2'000'000, 12'000'000);
    ChooseRequests();
    if (draws_.Chance(80)) ChooseFaults();
    if (draws_.Chance(15)) {
      Action drain;
      drain.kind = Kind::kDrain;
      drain.at_us = draws_.Between(end_us_ / 2, end_us_);
      drain.us = draws_.Between(1'000, 3'000'000);
      script_.actions.push_back(drain);
    }
    ChooseFlushes();
    std::stable_sort(script_.actions.begin(), script_.actions.end(),
                     [](const Action& a, const Action& b) { return a.at_us < b.at_us; });
    return script_;
  }

 private:
  bool Chance(int64_t percent) { return draws_.Chance(percent); }

  void ChooseModel() {
    Settings& s = script_.settings;
    s.world = Chance(40) ? 1 : draws_.Between(2, 4);
    s.running_max = draws_.Between(1, Chance(70) ? 12 : 32);
    s.step_tokens_max = s.running_max + draws_.Between(1, Chance(50) ? 16 : 96);
    s.block_tokens = int64_t{1} << draws_.Below(5);
    s.context_tokens = draws_.Between(24, Chance(80) ? 160 : 400);
    s.window = Chance(25) ? draws_.Between(1, s.context_tokens) : 0;
    s.prefix_cache = Chance(85);
    s.eos_permille = Chance(70) ? draws_.Below(30) : 0;
    s.step_us = draws_.Between(100, 2'000);
    s.inter_token_target_us = Chance(50) ? 0 : draws_.Between(500, 5'000);
    // From a pool that holds less than one context to one that holds all.
    const int64_t sequence = (s.context_tokens + s.block_tokens - 1) / s.block_tokens;
    const int64_t groups = s.window > 0 ? 2 : 1;
    if (Chance(25)) s.more_blocks = draws_.Between(1, sequence);
    const int64_t roomy = draws_.Below(sequence * (Chance(50) ? 2 : s.running_max));
    s.kv_blocks = groups * (sequence + roomy);
    if (Chance(15)) s.kv_blocks = groups * std::max<int64_t>(sequence / 2, 2);
  }

  void ChooseLimits() {
    Settings& s = script_.settings;
    s.queue_requests_max = draws_.Between(1, Chance(60) ? 64 : 8);
    s.queue_tokens_max = Chance(60) ? 1 << 20 : draws_.Between(16, 600);
    s.text_bytes_max = Chance(60) ? 1 << 20 : draws_.Between(64, 8'000);
    s.text_threads = draws_.Between(1, 3);
    if (Chance(40)) s.stream_batches_max = draws_.Between(1, 4);
    s.queue_timeout_s = Chance(25) ? draws_.Between(1, 4) : 0;
    s.recovery_timeout_s = Chance(25) ? draws_.Between(1, 3) : 20;
    s.hang_timeout_ms = draws_.Between(200, 1'500);
    s.wire_us_max = draws_.Between(1, Chance(80) ? 100 : 2'000);
    s.wake_us_max = draws_.Between(0, Chance(80) ? 40 : 1'000);
    s.tenants = Chance(40) ? 1 : draws_.Between(2, 4);
    if (s.tenants > 1 && Chance(50)) s.tenant_requests_max = draws_.Between(1, 6);
    if (s.tenants > 1 && Chance(30)) s.tenant_tokens_per_minute = draws_.Between(300, 20'000);
    s.supervisor = Chance(75);
    s.restart_us = draws_.Between(10'000, Chance(80) ? 500'000 : 6'000'000);
    s.load_us = draws_.Between(1'000, 400'000);
  }

  void ChooseRequests() {
    const int64_t count = draws_.Between(20, Chance(70) ? 150 : 400);
    int64_t at_us = kBeginUs;
    int64_t flood = 0;
    for (int64_t id = 1; id <= count; ++id) {
      if (flood == 0 && Chance(4)) flood = draws_.Between(4, 60);
      if (flood > 0) {
        --flood;
      } else {
        at_us += draws_.Below(2 * (end_us_ - kBeginUs) / count);
      }
      AddRequest(id, at_us);
    }
  }

  void AddRequest(int64_t id, int64_t at_us) {
    const Settings& s = script_.settings;
    Action a;
    a.id = id;
    a.at_us = at_us;
    a.tenant = draws_.Below(s.tenants);
    const int64_t room = s.context_tokens - 1;
    a.prompt = draws_.Between(1, Chance(60) ? std::min<int64_t>(room, 24) : room);
    if (Chance(50)) a.prefix = draws_.Between(1, a.prompt);
    a.prefix_of = draws_.Between(1, 3);
    // A limit beyond the pool or the context is refused, which is a case too.
    if (Chance(90)) a.max_tokens = draws_.Between(1, std::max<int64_t>(room - a.prompt, 1));
    if (Chance(3)) a.max_tokens = s.context_tokens;
    if (Chance(80)) a.seed = draws_.Between(1, 1'000'000);
    a.text = Chance(40);
    a.echo = Chance(8);
    if (Chance(25)) a.stop = draws_.Between(1, 1'000'000);
    a.keep_stop = Chance(30);
    a.ignore_eos = Chance(15);
    if (Chance(25)) a.min_p = draws_.Between(1, 999);
    if (Chance(20)) a.penalty = draws_.Between(1, 100);
    if (Chance(15)) a.logprobs = draws_.Between(1, 4);
    if (Chance(25)) a.priority = draws_.Between(-5, 5);
    if (Chance(8)) a.deadline_us = draws_.Between(1, 3'000'000);
    if (Chance(5)) a.bad = draws_.Between(kTooLong, kBadPriority);
    if (Chance(20)) a.pause_us = draws_.Between(1, Chance(70) ? 20'000 : 500'000);
    if (Chance(8)) a.leave_tokens = draws_.Between(1, 20);
    if (Chance(8)) a.leave_us = draws_.Between(0, Chance(50) ? 500 : 300'000);
    Draws resume(static_cast<uint64_t>(s.seed), kResumeDraws + static_cast<uint64_t>(id));
    if (a.seed != 0 && resume.Below(100) < 15) a.resume = resume.Between(1, 24);
    Draws scores(static_cast<uint64_t>(s.seed), kScoreDraws + static_cast<uint64_t>(id));
    if (a.resume == 0 && scores.Chance(15)) a.scores = scores.Between(1, 4);
    Draws constraint(static_cast<uint64_t>(s.seed), kConstraintDraws + static_cast<uint64_t>(id));
    if (constraint.Chance(25)) {
      (constraint.Chance(50) ? a.allow : a.ban) = constraint.Between(1, 1'000'000);
    }
    script_.actions.push_back(a);
    if (Chance(6)) {
      Action cancel;
      cancel.kind = Kind::kCancel;
      cancel.id = id;
      cancel.tenant = Chance(80) ? a.tenant : draws_.Below(s.tenants);
      cancel.at_us = at_us + draws_.Below(Chance(50) ? 200 : 400'000);
      script_.actions.push_back(cancel);
    }
    if (Chance(3)) {
      Action tokenize;
      tokenize.kind = Kind::kTokenize;
      tokenize.id = id;
      tokenize.tenant = a.tenant;
      tokenize.at_us = at_us + draws_.Below(1'000);
      tokenize.prompt = draws_.Between(0, 40'000);
      script_.actions.push_back(tokenize);
    }
  }

  void ChooseFaults() {
    const int64_t world = script_.settings.world * script_.settings.groups;
    for (int64_t left = draws_.Between(1, 12); left > 0; --left) {
      Action fault;
      fault.at_us = draws_.Between(0, end_us_);
      fault.rank = draws_.Below(world);
      ChooseFault(&fault);
      TouchMasks(left, &fault);
      script_.actions.push_back(fault);
      // Two at once, of whatever ranks.
      if (Chance(25)) {
        fault.at_us += draws_.Below(Chance(50) ? 2 : 100'000);
        fault.rank = draws_.Below(world);
        if (Chance(50)) ChooseFault(&fault);
        script_.actions.push_back(fault);
      }
    }
  }

  void ChooseFlushes() {
    Draws draws(static_cast<uint64_t>(script_.settings.seed), kFlushDraws);
    if (!draws.Chance(30)) return;
    for (int64_t left = draws.Between(1, 6); left > 0; --left) {
      Action flush;
      flush.kind = Kind::kFlush;
      flush.at_us = draws.Between(kBeginUs, end_us_);
      script_.actions.push_back(flush);
    }
  }

  // Some faults meet the masks: a death with MaskRows, workers that are held up.
  void TouchMasks(int64_t number, Action* fault) const {
    Draws draws(static_cast<uint64_t>(script_.settings.seed),
                kMaskFaultDraws + static_cast<uint64_t>(number));
    if (!draws.Chance(25)) return;
    if (fault->kind == Kind::kKill && fault->call > 0) fault->call = kWithMaskRows;
    if (fault->kind == Kind::kStall) fault->call = 5;
  }

  void ChooseFault(Action* fault) {
    constexpr Kind kKinds[] = {Kind::kKill,    Kind::kKill, Kind::kKill,  Kind::kHang,
                               Kind::kStick,   Kind::kLie,  Kind::kBreak, Kind::kSlow,
                               Kind::kReorder, Kind::kLie,  Kind::kLie,   Kind::kStall,
                               Kind::kRepeat,  Kind::kLose, Kind::kError, Kind::kStall};
    fault->kind = kKinds[draws_.Below(std::size(kKinds))];
    fault->call = fault->lie = fault->us = fault->count = fault->skip = 0;
    fault->blocks = fault->other_model = fault->untold = 0;
    switch (fault->kind) {
      case Kind::kKill:
        // With a call of an epoch that is being formed, or with a step.
        if (Chance(50)) fault->call = draws_.Between(1, 9);
        // TouchMasks makes it one with masks.
        if (fault->call >= kWithMaskRows) ++fault->call;
        fault->us = Chance(70) ? 0 : draws_.Between(0, 8'000'000);
        if (Chance(15))
          fault->blocks = draws_.Between(4, std::max<int64_t>(script_.settings.kv_blocks, 4));
        fault->other_model = Chance(8);
        fault->untold = Chance(30);
        break;
      case Kind::kHang:
      case Kind::kStick:
        fault->us = draws_.Between(1'000, Chance(60) ? 400'000 : 5'000'000);
        break;
      case Kind::kSlow:
        fault->us = draws_.Between(100, 30'000);
        fault->count = draws_.Between(1, 300);
        break;
      case Kind::kLie:
        fault->lie = draws_.Between(kLieHash, kLieInvalidRow);
        fault->skip = draws_.Below(10);
        break;
      case Kind::kError:
      case Kind::kRepeat:
      case Kind::kReorder:
        fault->skip = draws_.Below(10);
        fault->count = Chance(60) ? 1 : draws_.Between(1, 20);
        break;
      case Kind::kStall:
        fault->call = draws_.Between(1, script_.settings.groups > 1 ? 4 : 3);
        fault->us = draws_.Between(100, Chance(70) ? 50'000 : 3'000'000);
        break;
      default:
        break;
    }
  }

  Draws draws_;
  Script script_;
  int64_t end_us_ = 0;
};

}  // namespace

Script MakeScript(uint64_t seed) { return Maker(seed, 1).Make(); }
Script MakeGroupsScript(uint64_t seed) {
  return Maker(seed, 2 + static_cast<int64_t>(seed % 2)).Make();
}

}  // namespace weft::router::sim
