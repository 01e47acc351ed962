// What must be true of a simulated router: after every event, after every thousandth, at each end
// of a request, and when all is over.

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/errors.h"
#include "tests/sim/router/world.h"

namespace weft::router::sim {
namespace {

constexpr uint64_t kFullEvery = 1000;
// Whoever left is forgotten within so long, once no loop is held up.
constexpr int64_t kForgetUs = 100'000;
// A step whose answer was lost is given up within so long, and its group back.
constexpr int64_t kLostStepUs = 630'000'000;

}  // namespace

void World::Violated(absl::string_view invariant, const std::string& what) {
  std::fprintf(stderr, "broken invariant %s: %s (%lld us, event %llu, after \"%s\")\n",
               std::string(invariant).c_str(), what.c_str(), static_cast<long long>(NowUs()),
               static_cast<unsigned long long>(counts_->events), now_.c_str());
  std::fflush(stderr);
  _exit(kViolatedExit);
}

void World::OnEvent() {
  ++counts_->events;
  CheckCheap();
  if (counts_->events % kFullEvery == 0) full_due_ = true;
}

void World::CheckCheap() {
  if (serving_ == nullptr) return;
  const Admission& admission = serving_->AdmissionForTest();
  const uint32_t places = Places();
  if (admission.waiting() + admission.written() + admission.running() > places) {
    Violated("bound.all",
             absl::StrCat(admission.waiting(), " requests wait, ", admission.running(), " run, ",
                          admission.written(), " are unread; there are ", places, " places"));
  }
}

uint32_t World::Places() const {
  return static_cast<uint32_t>(settings_.queue_requests_max +
                               settings_.running_max * settings_.groups);
}

const Scheduler* World::SchedulerOf(uint32_t group) const {
  return serving_->GroupsForTest().LoopForTest(group).SchedulerForTest();
}

bool World::AllServe() const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (!serving_->GroupsForTest().LoopForTest(group).serving()) return false;
  }
  return true;
}

const Scheduler* World::AnyScheduler() const {
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (const Scheduler* const scheduler = SchedulerOf(group)) return scheduler;
  }
  return nullptr;
}

void World::CheckPlaces() {
  const Groups& all = serving_->GroupsForTest();
  const Dispatcher* const dispatcher = all.DispatcherForTest();
  if (dispatcher == nullptr) return;
  dispatcher->QueueForTest().CheckInvariantsForTest();
  for (const Client* client : here_) {
    int places = dispatcher->HasForTest(client->sequence()) ? 1 : 0;
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      const Scheduler* const scheduler = SchedulerOf(group);
      places += scheduler != nullptr && scheduler->IsLive(client->sequence()) ? 1 : 0;
    }
    if (places <= 1) continue;
    Violated("group.one",
             absl::StrCat("request ", client->action().id, " is in ", places, " places"));
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const EngineLoop& loop = all.LoopForTest(group);
    if (loop.serving() || loop.UnplannedForTest() == 0 || shutting_down_) continue;
    Violated("group.one", absl::StrCat("group ", group, " does not serve and keeps ",
                                       loop.UnplannedForTest(), " tokens that no step has held"));
  }
}

uint32_t World::Here() const {
  return tokenizing_ + static_cast<uint32_t>(std::count_if(
                           here_.begin(), here_.end(), [](const Client* c) { return !c->gone(); }));
}

void World::CheckAll() {
  ++counts_->full_checks;
  here_.erase(std::remove_if(here_.begin(), here_.end(), [](const Client* c) { return c->gone(); }),
              here_.end());
  const Admission& admission = serving_->AdmissionForTest();
  const uint32_t permits = admission.waiting() + admission.running() + admission.written();
  if (permits != Here()) {
    Violated("end.once", absl::StrCat(permits, " permits are out, ", Here(), " requests are here"));
  }
  std::vector<uint32_t> of_tenant;
  for (const SimTenant& tenant : tenants_) of_tenant.push_back(tenant.here);
  const int64_t patient_since_us = std::max(stalled_until_us_, int64_t{0}) + kForgetUs;
  for (const Client* client : here_) {
    ++of_tenant[static_cast<size_t>(client->action().tenant)];
    const int64_t unwanted_us = client->unwanted_us();
    const bool reads = client->action().pause_us > 0;
    if (unwanted_us > 0 && !reads &&
        time_.NowUs() > std::max(unwanted_us + kForgetUs, patient_since_us)) {
      Violated("end.once", absl::StrCat("request ", client->action().id,
                                        " is still here long after nobody wanted it any more"));
    }
  }
  for (size_t i = 0; i < tenants_.size(); ++i) {
    const Tenant& tenant = *tenants_[i].tenant;
    if (tenant.meter->requests() != of_tenant[i]) {
      Violated("who.pays", absl::StrCat("tenant ", i, " is charged for ", tenant.meter->requests(),
                                        " requests and has ", of_tenant[i]));
    }
    if (of_tenant[i] > tenant.limits.requests_max.value_or(UINT32_MAX)) {
      Violated("who.pays", absl::StrCat("tenant ", i, " has ", of_tenant[i], " requests"));
    }
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const Scheduler* const scheduler = SchedulerOf(group);
    if (scheduler != nullptr) scheduler->CheckInvariantsForTest();
  }
  CheckPlaces();
}

void World::CheckAtEnd() {
  // What has ended is dropped from the shards by a step of its own.
  const int64_t begin_us = time_.NowUs();
  // The last request has run in one group: another may still wait for the answer of a lost step.
  const int64_t limit_us = begin_us + (groups_.size() > 1 ? kLostStepUs : 5'000'000);
  const auto idle = [&] {
    if (AnyScheduler() == nullptr || !Serving_() || !AllServe() || !AllWell()) {
      return time_.NowUs() > begin_us + 4'000'000 && (!Serving_() || GroupsIdle());
    }
    return GroupsIdle();
  };
  RunUntil(idle, limit_us, "slots and blocks come back");
  CheckAll();
  const Admission& admission = serving_->AdmissionForTest();
  if (admission.waiting() + admission.running() + admission.written() + admission.bytes() > 0) {
    Violated("end.once", absl::StrCat("nobody is here, and ", admission.waiting(), " wait, ",
                                      admission.running(), " run, ", admission.written(),
                                      " are unread with ", admission.bytes(), " bytes"));
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const Scheduler* const scheduler = SchedulerOf(group);
    if (scheduler != nullptr) counts_->preemptions += scheduler->Stats().preemptions;
  }
  const Dispatcher* const dispatcher = serving_->GroupsForTest().DispatcherForTest();
  if (dispatcher == nullptr) return;
  counts_->handed_out += dispatcher->HandedOutForTest();
  counts_->given_back += dispatcher->GivenBackForTest();
  if (dispatcher->QueueForTest().TenantsForTest() > 0) {
    Violated("who.pays", "nobody is here, and a tenant is taken to have requests");
  }
}

// -- Ends ----------------------------------------------------------------------------------------

void World::OnRefused(int64_t request, const absl::Status& why) {
  ++counts_->refused;
  const Client& client = Get(request);
  const std::string reason = ErrorReason(why);
  const auto tenant = static_cast<size_t>(client.action().tenant);
  const TenantLimits& limits = tenants_[tenant].tenant->limits;
  bool good = false;
  if (reason == "QUEUE_FULL") {
    good = Here() >= Places();
  } else if (reason == "TEXT_BYTES_FULL") {
    good = Here() > 0;
  } else if (reason == "TENANT_REQUESTS") {
    uint32_t here = tenants_[tenant].here;
    for (const Client* other : here_) {
      here += !other->gone() && other->action().tenant == client.action().tenant ? 1 : 0;
    }
    good = limits.requests_max.has_value() && here >= *limits.requests_max;
  } else if (reason == "TENANT_TOKENS") {
    good = limits.tokens_per_minute.has_value();
  } else if (reason == "LOADING") {
    good = AnyScheduler() == nullptr;
  } else if (reason == "DRAINING") {
    good = draining_;
  } else if (reason == "GROUP_LOST") {
    good = fatal_ || NoneBackInTime();
  } else if (absl::IsInvalidArgument(why)) {
    good = client.action().bad == kBadPriority;
  }
  if (!good) {
    Violated("scope.one", absl::StrCat("request ", request,
                                       " is refused without cause: ", std::string(why.message())));
  }
}

void World::OnEnd(int64_t request) {
  const Client& client = Get(request);
  const absl::Status& status = client.status();
  if (!status.ok()) return CheckFailure(client, status);
  ++counts_->finished;
  counts_->stopped += client.action().stop > 0 ? 1 : 0;
  const int64_t limit_us = std::max(client.unwanted_us(), stalled_until_us_) + kForgetUs;
  if (client.unwanted_us() > 0 && client.action().pause_us == 0 && time_.NowUs() > limit_us) {
    Violated("ahead.count", absl::StrCat("request ", request, " ran on after it was called off"));
  }
}

void World::CheckInvalid(const Client& client, const absl::Status& status) {
  ++counts_->invalid;
  const Action& action = client.action();
  const uint64_t output = std::max<uint64_t>(action.max_tokens, client.resumed().size() + 1);
  const uint64_t tokens = client.prompt().size() + output;
  if (action.bad != kGood || tokens > RequestTokensMax(smallest_pool_)) return;
  Violated("input.first", absl::StrCat("request ", action.id,
                                       " is good and refused: ", std::string(status.message())));
}

void World::CheckFailure(const Client& client, const absl::Status& status) {
  const Action& action = client.action();
  const std::string reason = ErrorReason(status);
  const int64_t waited_us = time_.NowUs() - client.asked_us();
  bool good = false;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return CheckInvalid(client, status);
    case absl::StatusCode::kCancelled:
      ++counts_->cancelled;
      good = client.unwanted_us() > 0 || draining_ || shutting_down_;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      ++counts_->cancelled;
      good = action.deadline_us > 0 && waited_us >= action.deadline_us;
      break;
    case absl::StatusCode::kResourceExhausted:
      ++counts_->failed;
      // What was there of a resumed answer is text, too, which is known when it has been read.
      good = reason == "QUEUE_TOKENS_FULL" ? Here() > 1
             : reason == "TEXT_BYTES_FULL" ? action.resume > 0 && Here() > 1
                                           : reason == "TENANT_TOKENS" && action.tenant > 0 &&
                                                 settings_.tenant_tokens_per_minute > 0;
      break;
    case absl::StatusCode::kUnavailable:
      ++counts_->failed;
      good = reason == "QUEUE_TIMEOUT" ? settings_.queue_timeout_s > 0 &&
                                             waited_us >= settings_.queue_timeout_s * 1'000'000
             : reason == "DRAINING"      ? draining_
             : reason == "SHUTTING_DOWN" ? shutting_down_ || largest_pool_ == 0
             : reason == "POOL_SHRANK"   ? smallest_pool_ < largest_pool_
             : reason == "GROUP_LOST"    ? fatal_ || NotBackInTime()
                                         : false;
      break;
    case absl::StatusCode::kInternal:
      ++counts_->failed;
      good = absl::StrContains(status.message(), "not finite")
                 ? client.invalid_row()
                 : absl::StrContains(status.message(), "ended the shards' group each time") &&
                       // The shards have not heard of the last one.
                       counts_->groups_lost + 1 - client.groups_lost_before() >= kGroupLossesMax;
      break;
    default:
      break;
  }
  if (good) return;
  Violated("scope.one",
           absl::StrCat("request ", action.id, " failed without cause: ", status.ToString()));
}

// -- What the shards see -------------------------------------------------------------------------

uint64_t World::RequestTokensMax(uint32_t kv_blocks) const {
  const auto context = static_cast<uint64_t>(settings_.context_tokens);
  const Scheduler* const scheduler = AnyScheduler();
  if (scheduler == nullptr || kv_blocks == 0) return 0;
  if (settings_.window > 0) return std::min(context, scheduler->TokensIn(kv_blocks));
  return std::min(context, uint64_t{kv_blocks} * static_cast<uint64_t>(settings_.block_tokens));
}

// With its group: OnGroupPool, OnGroupChunk.
void World::OnPool(uint32_t) {}
SeenChunk World::OnChunk(const weft::shard::v1::Chunk&) { return {}; }

void World::OnGroupPool(uint32_t group, uint32_t kv_blocks) {
  pools_[group] = kv_blocks;
  smallest_pool_ = smallest_pool_ == 0 ? kv_blocks : std::min(smallest_pool_, kv_blocks);
  largest_pool_ = std::max(largest_pool_, kv_blocks);
}

void World::OnFalseToken(SequenceId sequence) {
  const auto found = by_sequence_.find(sequence);
  if (found != by_sequence_.end()) found->second->SetFalseToken();
}

void World::OnInvalidRow(SequenceId sequence) {
  const auto found = by_sequence_.find(sequence);
  if (found != by_sequence_.end()) found->second->SetInvalidRow();
}

SeenChunk World::OnGroupChunk(uint32_t group, const weft::shard::v1::Chunk& chunk) {
  const auto found = by_sequence_.find(chunk.sequence());
  if (found == by_sequence_.end()) {
    Violated("wire.ids",
             absl::StrCat("a chunk of sequence ", chunk.sequence(), ", which is nobody"));
  }
  Client& client = *found->second;
  const Action& action = client.action();
  const auto prompt = static_cast<uint32_t>(client.prompt().size());
  if (action.bad != kGood) {
    Violated("input.first", absl::StrCat("request ", action.id, " is not good and runs"));
  }
  const auto ran_in = group_of_.emplace(chunk.sequence(), group).first;
  if (ran_in->second != group) {
    Violated("group.one", absl::StrCat("request ", action.id, " runs in group ", group, " and in ",
                                       ran_in->second));
  }
  const auto longest = static_cast<uint32_t>(RequestTokensMax(pools_[group]));
  SeenChunk seen;
  seen.tenant = static_cast<uint32_t>(action.tenant);
  seen.length_max = action.max_tokens > 0 ? prompt + static_cast<uint32_t>(action.max_tokens)
                                          : static_cast<uint32_t>(settings_.context_tokens);
  // The last token of a sequence is never written: one that was taken under a larger pool may have
  // one more than a request that comes now.
  if (action.max_tokens > 0 && seen.length_max > longest + 1) {
    Violated("bound.all", absl::StrCat("request ", action.id, " of up to ", seen.length_max,
                                       " tokens runs where at most ", longest, " fit"));
  }
  if (!chunk.first()) return seen;
  if (chunk.prompt_len() != prompt) {
    Violated("state.log", absl::StrCat("request ", action.id, " is said to have a prompt of ",
                                       chunk.prompt_len(), " tokens, not ", prompt));
  }
  CheckSampling(client, chunk);
  if (action.scores > 0 && chunk.start() > 0) {
    Violated("state.log", absl::StrCat("request ", action.id, ", whose prompt is scored, begins ",
                                       "behind ", chunk.start(), " cached tokens"));
  }
  if (!client.SetStarted(chunk.start())) ++counts_->prefilled_again;
  return seen;
}

void World::CheckSampling(const Client& client, const weft::shard::v1::Chunk& chunk) {
  const SamplingParams asked = client.MakeInput().sampling;
  const weft::shard::v1::SamplingParams& sent = chunk.sampling();
  const Action& action = client.action();
  const bool same = sent.temperature() == asked.temperature && sent.top_k() == asked.top_k &&
                    sent.top_p() == asked.top_p && sent.min_p() == asked.min_p &&
                    sent.typical_p() == asked.typical_p &&
                    sent.repetition_penalty() == asked.repetition_penalty &&
                    sent.presence_penalty() == asked.presence_penalty &&
                    sent.frequency_penalty() == asked.frequency_penalty &&
                    sent.logprobs() == asked.logprobs &&
                    sent.top_logprobs() == asked.top_logprobs &&
                    sent.logit_bias_size() == static_cast<int>(asked.logit_bias.size()) &&
                    chunk.masked() == client.constrained() &&
                    (action.seed == 0 || sent.seed() == static_cast<uint64_t>(action.seed));
  if (same) return;
  Violated("state.log", absl::StrCat("request ", action.id, " runs with parameters that it did ",
                                     "not ask for: ", sent.ShortDebugString(),
                                     chunk.masked() ? ", masked" : ", not masked"));
}

}  // namespace weft::router::sim
