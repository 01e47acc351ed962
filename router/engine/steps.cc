// The half of the engine loop that hears from the shard group: epochs that begin and end, answers
// of steps and what becomes of each sequence with them.

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/log.h"
#include "router/engine/fingerprint.h"
#include "router/engine/loop.h"
#include "router/engine/outcome.h"
#include "router/errors.h"
#include "router/observe/request_trace.h"

namespace weft::router {
namespace {

const char* TypeName(weft::v1::DataType type) {
  switch (type) {
    case weft::v1::DATA_TYPE_FLOAT32:
      return "float32";
    case weft::v1::DATA_TYPE_BFLOAT16:
      return "bfloat16";
    case weft::v1::DATA_TYPE_FLOAT16:
      return "float16";
    default:
      return "unknown";
  }
}

}  // namespace

// -- Epochs --------------------------------------------------------------------------------------

void EngineLoop::OnGroupFormed(const FormedGroup& group, int64_t now_us) {
  if (scheduler_ == nullptr) MakeScheduler(group);
  sent_.clear();
  masked_steps_.Reset(group.epoch);
  fingerprint_ = GroupFingerprint(options_.model_name, group);
  deterministic_ = group.info.deterministic();
  GroupInfo info;
  info.epoch = group.epoch;
  info.kv_blocks = group.kv_blocks;
  std::vector<GroupInfo::Cost> costs;
  for (const auto& cost : group.warmup.costs()) {
    costs.push_back({cost.rows(), cost.prompt_tokens(), cost.context_tokens(), cost.step_us()});
  }
  info.costs = costs;
  const uint64_t pool_tokens = scheduler_->TokensIn(group.kv_blocks);
  const uint32_t request_tokens_max =
      static_cast<uint32_t>(std::min<uint64_t>(Shape().context_tokens, pool_tokens));
  if (pool_tokens < Shape().context_tokens) {
    WEFT_LOG_WARN(
        "the KV pool holds {} tokens: a request may have so many, not the {} of the model's "
        "context; give the shards more with --kv-memory",
        pool_tokens, Shape().context_tokens);
  }
  // A smaller pool than before may not hold what was admitted under the larger one. Whose client
  // named no limit had all the room there was, and now has the room there is.
  for (const SequenceId id : LiveIds()) {
    const Live& live = live_.at(id);
    PreparedRequest& request = *live.request;
    if (request.max_tokens_named) continue;
    if (live.prompt_tokens + request.max_new_tokens <= request_tokens_max) continue;
    if (scheduler_->CutLimit(id, request_tokens_max, now_us).ok()) {
      request.max_new_tokens = request_tokens_max - live.prompt_tokens;
    }
  }
  scheduler_->OnGroupFormed(info, now_us, &ended_);
  for (const Ended& ended : ended_) {
    live_.at(ended.id).failure = UnavailableError(
        "POOL_SHRANK", "the restarted shards have too little KV memory", absl::Seconds(1));
  }
  EndLives();
  request_tokens_max_ = request_tokens_max;
  owner_->SetRequestTokensMax(options_.group, request_tokens_max);
  {
    absl::MutexLock lock(&mutex_);
    shape_.request_tokens_max = request_tokens_max;
  }
  probe_->CacheConfig(group.info.kv_groups(0).block_tokens(), group.kv_blocks,
                      options_.prefix_cache, options_.group);
  lost_us_ = 0;
  idle_since_us_.store(0, std::memory_order_release);
  if (!stopping_ && !draining_.load()) owner_->Open(options_.group);
}

void EngineLoop::MakeScheduler(const FormedGroup& group) {
  SchedulerConfig config;
  config.running_max = std::min(options_.running_max, group.agreement.running_max);
  config.step_tokens_max = std::max(
      std::min(options_.step_tokens_max, group.agreement.step_tokens_max), config.running_max);
  config.block_tokens = group.info.kv_groups(0).block_tokens();
  config.kv_windows.clear();
  for (const auto& kv : group.info.kv_groups()) config.kv_windows.push_back(kv.window_tokens());
  config.context_tokens_max = group.info.context_tokens();
  if (options_.context_tokens_max > 0) {
    config.context_tokens_max = std::min(config.context_tokens_max, options_.context_tokens_max);
  }
  config.waiting_max = options_.waiting_max;
  config.inter_token_target_us = options_.inter_token_target_us;
  config.prefix_cache = options_.prefix_cache;
  const std::array<uint64_t, 2> hash_key = owner_->HashKey();
  config.hash_key[0] = hash_key[0];
  config.hash_key[1] = hash_key[1];
  config.eos_ids = options_.eos_ids;
  scheduler_ = std::make_unique<Scheduler>(config);
  if (recorder_ != nullptr) recorder_->Begin(config, scheduler_.get());
  slot_sequence_.assign(config.running_max, 0);
  report_.running_max = config.running_max;
  report_.block_tokens = config.block_tokens;
  owner_->SetRunningMax(options_.group, config.running_max);
  vocab_size_.store(group.info.vocab_size(), std::memory_order_release);
  absl::MutexLock lock(&mutex_);
  prefix_hasher_ = scheduler_->prefix_hasher();
  shape_.family = group.info.family();
  shape_.parameters = group.info.parameters();
  shape_.vocab_size = group.info.vocab_size();
  shape_.context_tokens = config.context_tokens_max;
  shape_.dtype = TypeName(group.info.dtype());
  shape_.device = group.info.device();
}

void EngineLoop::OnGroupLost(const absl::Status& why, int64_t now_us) {
  CountLostSteps(now_us);
  masked_steps_.Reset(0);
  mask_jobs_.clear();
  // Whoever was prefilled in this epoch and does not run has been preempted.
  const auto prefilled = std::count_if(live_.begin(), live_.end(), [&](const auto& entry) {
    return entry.second.prefill_epoch == group_->epoch();
  });
  const SchedulerStats stats = scheduler_->Stats();
  WEFT_LOG_WARN("recovering live={} running={} waiting={} preempted={} reason=\"{}\"{}",
                live_.size(), stats.running, stats.waiting,
                std::max<int64_t>(prefilled - stats.running, 0), std::string(why.message()),
                shares_work() ? absl::StrCat(" group=", options_.group) : "");
  // Streams stay open and silent; new requests queue.
  scheduler_->OnGroupLost(now_us, &ended_);
  lost_us_ = now_us;
  for (const auto& [id, live] : live_) {
    if (RequestTrace* const trace = live.answer->trace().get()) trace->Lost(now_us);
  }
  for (const Ended& ended : ended_) {
    live_.at(ended.id).failure = absl::InternalError(
        absl::StrCat("this request's steps failed ", kGroupLossesMax,
                     " times and ended the shards' group each time, at last: ", why.message()));
    WEFT_LOG_ERROR("request given up id={} losses={} reason=\"{}\"",
                   live_.at(ended.id).answer->id(), kGroupLossesMax, std::string(why.message()));
  }
  EndLives();
  if (shares_work()) GiveBackUnplanned(now_us);
}

void EngineLoop::CountLostSteps(int64_t now_us) {
  for (const SentStep& sent : sent_) {
    probe_->StepLost(sent.sample.kind);
    WEFT_LOG_WARN(
        "step lost epoch={} step={} call={} rows={} tokens={} partial_chunks={} resumed_chunks={} "
        "age_us={}",
        group_->epoch(), sent.step, CallName(StepMessage::CallOf(sent.sample.kind)),
        sent.sample.rows, sent.sample.tokens, sent.partial_chunks, sent.resumed_chunks,
        now_us - sent.sent_us);
  }
  sent_.clear();
}

void EngineLoop::OnGroupFatal(const absl::Status& why) {
  FailAll(UnavailableError("GROUP_LOST", why.message(), absl::Seconds(1)), clock_->NowUs());
  owner_->Close(options_.group, UnavailableError("GROUP_LOST", why.message(), absl::Seconds(1)));
  if (options_.on_fatal) options_.on_fatal(why);
}

// -- Steps ---------------------------------------------------------------------------------------

void EngineLoop::OnStepAnswer(const StepAnswer& answer, int64_t now_us) {
  const weft::shard::v1::StepResponse& response = answer.response;
  const TimelineScope scope(&probe_->timeline(), clock_, TimelineKind::kAnswer, options_.group,
                            response.step());
  WEFT_CHECK(!sent_.empty());
  SentStep& sent = sent_.front();
  WEFT_CHECK_EQ(sent.step, response.step());
  const bool fits = std::equal(sent.rows.begin(), sent.rows.end(), response.slots().begin(),
                               response.slots().end()) &&
                    response.ids_size() == response.slots_size();
  if (!fits || !ScoresFit(sent, response)) {
    return group_->FailEpoch(
        absl::InternalError(absl::StrCat("rank 0 answered step ", sent.step, " with ",
                                         response.ids_size(), " rows and ", response.scores_size(),
                                         " scored prompts, which were not asked for so")),
        now_us);
  }
  const auto& timings = response.timings();
  StepSample sample = sent.sample;
  sample.host_us += timings.host_us();
  sample.queue_us = timings.queue_us();
  sample.device_us = timings.device_us();
  sample.wire_us = std::max<int64_t>(
      answer.call_us - timings.queue_us() - timings.host_us() - timings.device_us(), 0);
  probe_->StepDone(sample);
  rows_.clear();
  for (int i = 0; i < response.ids_size(); ++i) {
    rows_.push_back({response.slots(i), response.ids(i)});
  }
  FailInvalidRows(response, now_us);
  TakeScores(sent.scorings, response, now_us);
  const std::vector<SequenceId> sequences = std::move(sent.sequences);
  sent_.pop_front();
  emitted_.clear();
  scheduler_->OnStepDone(response.step(), rows_, {timings.device_us()}, now_us, &emitted_, &ended_);
  idle_since_us_.store(live_.empty() ? 0 : now_us, std::memory_order_release);
  SendEmitted(response, now_us);
  EndLives();
  MakeNextMasks(response.step(), sequences);
}

void EngineLoop::SendEmitted(const weft::shard::v1::StepResponse& response, int64_t now_us) {
  row_logprob_.assign(response.logprobs_size() > 0 ? rows_.size() : 0, -1);
  for (int i = 0; i < response.logprobs_size(); ++i) {
    const uint32_t row = response.logprobs(i).row();
    if (row < row_logprob_.size()) row_logprob_[row] = i;
  }
  gaps_us_.clear();
  uint32_t given = 0;
  for (const Emitted& emitted : emitted_) {
    Live& live = live_.at(emitted.id);
    if (shares_work()) ++NewsOf(*live.answer).tokens;
    RequestTimes& times = live.request->times;
    StreamBatch& batch = outbox_[live.request->text_worker];
    if (times.first_token_us == 0) {
      times.first_token_us = now_us;
      probe_->FirstToken(now_us - times.arrival_us);
      TracePoint(TimelineKind::kFirstToken, live, times.planned_us, clock_->NowUs());
      BeginStream(emitted.id, live, &batch);
      for (auto& follower : live.request->followers) released_.push_back(std::move(follower));
      live.request->followers.clear();
    } else {
      gaps_us_.push_back(static_cast<uint32_t>(now_us - live.last_token_us));
    }
    live.last_token_us = now_us;
    if (live.request->prompt_only) continue;
    ++given;
    if (live.constraint != nullptr) live.constraint->Append(emitted.token);
    StreamToken& token = batch.tokens.emplace_back();
    token.sequence = emitted.id;
    token.id = emitted.token;
    if (emitted.row >= row_logprob_.size() || row_logprob_[emitted.row] < 0) continue;
    const auto& from = response.logprobs(row_logprob_[emitted.row]);
    token.logprob = static_cast<int32_t>(batch.logprobs.size());
    StreamLogprob& logprob = batch.logprobs.emplace_back();
    logprob.logprob = from.logprob();
    for (const auto& top : from.top()) logprob.top.emplace_back(top.id(), top.logprob());
  }
  if (!gaps_us_.empty()) probe_->InterTokens(gaps_us_);
  if (given > 0) probe_->GeneratedTokens(given);
}

void EngineLoop::FailInvalidRows(const weft::shard::v1::StepResponse& response, int64_t now_us) {
  for (const uint32_t row : response.invalid_rows()) {
    if (row >= sent_.front().sequences.size()) continue;
    const SequenceId sequence = sent_.front().sequences[row];
    // Ended before its result came.
    if (!live_.contains(sequence)) continue;
    WEFT_LOG_ERROR("logits not finite id={} step={}", live_.at(sequence).answer->id(),
                   response.step());
    Fail(sequence, OutputNotFinite(), now_us);
  }
}

void EngineLoop::BeginStream(SequenceId sequence, Live& live, StreamBatch* batch) {
  live.begun = true;
  StreamBegin& begin = batch->begins.emplace_back();
  begin.sequence = sequence;
  begin.writer = std::move(live.request->writer);
  begin.text = std::move(live.request->text);
  begin.head.prompt_tokens = live.prompt_tokens;
  begin.head.cached_tokens = std::min(live.cached_tokens, live.prompt_tokens);
  begin.head.seed = live.request->seed;
  begin.head.fingerprint = fingerprint_;
  begin.head.prompt_scores = std::move(live.scores);
  if (live.request->resumed.has_value()) {
    ResumedPart& resumed = begin.head.resumed.emplace(std::move(*live.request->resumed));
    resumed.exact = deterministic_ && live.request->resumed_fingerprint == fingerprint_;
    probe_->Resumed(resumed.exact);
  }
  begin.times = live.request->times;
}

}  // namespace weft::router
