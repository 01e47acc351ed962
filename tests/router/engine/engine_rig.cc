#include "tests/router/engine/engine_rig.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "router/text/prepare.h"
#include "router/text/template_host.h"
#include "tests/router/anonymous.h"

namespace weft::router {
namespace {

using testing::MockShard;
using testing::MockShardOptions;

// GPT-2's alphabet: printable bytes stand for themselves, the others for code points from 256 on.
std::vector<int> ByteAlphabet() {
  std::vector<int> code_points(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    code_points[static_cast<size_t>(byte)] = plain ? byte : next++;
  }
  return code_points;
}

std::string JsonEscape(int code_point) {
  char text[8];
  std::snprintf(text, sizeof(text), "\\u%04x", code_point);
  return text;
}

}  // namespace

void WriteByteModel(const test::TempDir& dir) {
  std::vector<std::string> vocabulary;
  const std::vector<int> alphabet = ByteAlphabet();
  for (int id = 0; id < 256; ++id) {
    vocabulary.push_back(
        absl::StrCat("\"", JsonEscape(alphabet[static_cast<size_t>(id)]), "\": ", id));
  }
  vocabulary.push_back("\"<eos>\": 256");
  const char* byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
"use_regex": false})";
  dir.Write("tokenizer.json",
            absl::StrCat(R"({"version": "1.0", "truncation": null, "padding": null,
"added_tokens": [{"id": 256, "content": "<eos>", "single_word": false, "lstrip": false,
  "rstrip": false, "normalized": false, "special": true}],
"normalizer": null, "pre_tokenizer": )",
                         byte_level, R"(, "post_processor": null, "decoder": )", byte_level,
                         R"(, "model": {"type": "BPE", "dropout": null, "unk_token": null,
"continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
"byte_fallback": false, "vocab": {)",
                         absl::StrJoin(vocabulary, ", "), R"(}, "merges": []}})"));
  dir.Write("generation_config.json", R"({"eos_token_id": 256})");
  dir.Write("config.json", R"({"model_type": "llama", "eos_token_id": 256})");
  dir.Write("tokenizer_config.json", R"({"eos_token": "<eos>"})");
  dir.Write("chat_template.jinja",
            "{% for message in messages %}{{ message.role }}:{{ message.content }};{% endfor %}");
}

// -- FakeSink ------------------------------------------------------------------------------------

void FakeSink::ReadLocked() {
  if (answer_ == nullptr || !answer_->Fetch()) return;
  if (answer_->head() != nullptr) head_ = *answer_->head();
  AnswerToken token;
  while (answer_->Next(&token)) {
    WEFT_CHECK(head_.has_value());
    text_ += token.text;
    tokens_.push_back(token);
  }
  if (answer_->end() == nullptr) return;
  WEFT_CHECK(!end_.has_value());
  end_ = *answer_->end();
  text_ += end_->text;
  cancelled_ = answer_->cancelled();
  answer_.reset();
}

void FakeSink::Wake() {
  {
    absl::MutexLock lock(&mutex_);
    ReadLocked();
  }
  wakes_.fetch_add(1);
}

void FakeSink::Attach(absl::StatusOr<std::shared_ptr<Answer>> answer) {
  absl::MutexLock lock(&mutex_);
  if (answer.ok()) {
    answer_ = *std::move(answer);
    name_ = answer_->name();
    ReadLocked();
  } else {
    end_.emplace();
    end_->status = answer.status();
  }
}

void FakeSink::Cancel(CancelReason reason) {
  std::shared_ptr<Answer> answer;
  {
    absl::MutexLock lock(&mutex_);
    answer = answer_;
  }
  if (answer != nullptr) answer->Cancel(reason);
}

bool FakeSink::ended() const {
  absl::MutexLock lock(&mutex_);
  return end_.has_value();
}

void FakeSink::WaitEnd(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  INFO("tokens so far: " << tokens_.size());
  REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&ended), timeout));
}

void FakeSink::WaitTokens(size_t count, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return tokens_.size() >= count || end_.has_value();
  };
  REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&enough), timeout));
}

std::vector<TokenId> FakeSink::ids() const {
  absl::MutexLock lock(&mutex_);
  std::vector<TokenId> ids;
  for (const AnswerToken& token : tokens_) ids.push_back(token.id);
  return ids;
}

std::string FakeSink::text() const {
  absl::MutexLock lock(&mutex_);
  return text_;
}

std::string FakeSink::name() const {
  absl::MutexLock lock(&mutex_);
  return name_;
}

std::vector<AnswerToken> FakeSink::tokens() const {
  absl::MutexLock lock(&mutex_);
  return tokens_;
}

AnswerHead FakeSink::started() const {
  absl::MutexLock lock(&mutex_);
  REQUIRE(head_.has_value());
  return *head_;
}

absl::Status FakeSink::status() const {
  absl::MutexLock lock(&mutex_);
  return end_.has_value() ? end_->status : absl::OkStatus();
}

AnswerEnd FakeSink::finished() const {
  absl::MutexLock lock(&mutex_);
  REQUIRE(end_.has_value());
  return *end_;
}

CancelReason FakeSink::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

// -- FakeSupervisor ------------------------------------------------------------------------------

FakeSupervisor::FakeSupervisor(const std::string& socket_path, Restart restart)
    : restart_(std::move(restart)) {
  listen_fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
  stop_fd_ = eventfd(0, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  WEFT_CHECK_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  WEFT_CHECK_EQ(listen(listen_fd_, 4), 0);
  thread_ = Thread("supervisor-fake", [this] { Run(); });
}

FakeSupervisor::~FakeSupervisor() {
  eventfd_write(stop_fd_, 1);
  thread_.Join();
  close(listen_fd_);
  close(stop_fd_);
}

void FakeSupervisor::SendDied(uint32_t rank, uint64_t pid) {
  const std::string line = absl::StrCat("died ", rank, " ", pid, "\n");
  absl::MutexLock lock(&mutex_);
  WEFT_CHECK_EQ(send(client_fd_, line.data(), line.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(line.size()));
}

bool FakeSupervisor::connected() const {
  absl::MutexLock lock(&mutex_);
  return client_fd_ >= 0;
}

void FakeSupervisor::Run() {
  std::string buffer;
  int client = -1;
  while (true) {
    pollfd fds[2] = {{stop_fd_, POLLIN, 0}, {client < 0 ? listen_fd_ : client, POLLIN, 0}};
    poll(fds, 2, -1);
    if (fds[0].revents != 0) break;
    if (client < 0) {
      client = accept(listen_fd_, nullptr, nullptr);
      absl::MutexLock lock(&mutex_);
      client_fd_ = client;
      continue;
    }
    char bytes[256];
    const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
    if (got <= 0) {
      absl::MutexLock lock(&mutex_);
      close(client);
      client = client_fd_ = -1;
      continue;
    }
    buffer.append(bytes, static_cast<size_t>(got));
    size_t end;
    while ((end = buffer.find('\n')) != std::string::npos) {
      const std::vector<std::string> words =
          absl::StrSplit(buffer.substr(0, end), absl::MaxSplits(' ', 3));
      buffer.erase(0, end + 1);
      WEFT_CHECK(words.size() == 4 && words[0] == "restart");
      {
        absl::MutexLock lock(&mutex_);
        WEFT_CHECK_EQ(send(client, "ok\n", 3, MSG_NOSIGNAL), 3);
      }
      uint32_t rank;
      uint64_t pid;
      WEFT_CHECK(absl::SimpleAtoi(words[1], &rank) && absl::SimpleAtoi(words[2], &pid));
      restart_(rank, pid, words[3]);
    }
  }
  absl::MutexLock lock(&mutex_);
  if (client >= 0) close(client);
  client_fd_ = -1;
}

// -- EngineRig -----------------------------------------------------------------------------------

RigOptions TwoShards() {
  RigOptions options;
  options.world = 2;
  options.shape.kv_blocks = 120;
  options.shape.running_max = 16;
  options.shape.step_tokens_max = 64;  // prompts go in chunks
  options.engine.step_tokens_max = 64;
  options.engine.running_max = 16;
  options.engine.hang_timeout_ms = 400;
  options.step_us = 500;
  return options;
}

EngineRig::EngineRig(RigOptions options) : options_(std::move(options)) {
  WriteByteModel(dir_);
  const uint32_t world = options_.world;
  options_.engine.groups.resize(options_.groups);
  for (uint32_t rank = 0; rank < world * options_.groups; ++rank) {
    MockShardOptions shard;
    shard.socket = absl::StrCat(dir_.path(), "/shard-", rank, ".sock");
    shard.rank = rank % world;
    shard.world = world;
    shard.shape = options_.shape;
    shard.step_us = options_.step_us;
    shard.late_us = options_.late_us;
    shards_.push_back(std::make_unique<MockShard>(shard));
    if (options_.faults) {
      shards_.back()->SetFaults([this, rank](const testing::MockMoment& moment) {
        return options_.faults(rank, moment);
      });
    }
    options_.engine.groups[rank / world].push_back(shards_.back()->address());
  }
  if (options_.supervisor) {
    options_.engine.supervisor_socket = dir_.path() + "/supervisor.sock";
    supervisor_ = std::make_unique<FakeSupervisor>(
        options_.engine.supervisor_socket, [this](uint32_t rank, uint64_t pid, const std::string&) {
          absl::MutexLock lock(&restart_mutex_);
          if (shards_[rank]->pid() != pid) return;  // it runs as another process by now
          restarts_.fetch_add(1);
          shards_[rank]->Kill();
          shards_[rank]->Start();
        });
  }
  options_.engine.text_threads = 2;
  if (!options_.engine.on_fatal) {
    options_.engine.on_fatal = [this](const absl::Status&) { has_fatal_.store(true); };
  }
  engine_ = MakeEngine(options_.engine, &probe_);
}

EngineRig::~EngineRig() {
  engine_.reset();
  supervisor_.reset();
}

// Started by the first rig of the process.
static TemplateHost* Templates() {
  static const std::unique_ptr<TemplateHost> host = [] {
    TemplateHostOptions options;
    options.program = WEFT_TEMPLATE_SERVER;
    auto started = TemplateHost::Start(std::move(options));
    REQUIRE(started.ok());
    return *std::move(started);
  }();
  return host.get();
}

std::unique_ptr<Core> EngineRig::MakeEngine(EngineOptions options, Probe* probe) {
  if (options.groups.empty()) options.groups = options_.engine.groups;
  options.model_path = dir_.path();
  options.served_model_name = "mock";
  if (options.template_host == nullptr) options.template_host = Templates();
  std::unique_ptr<Core> core = MakeCore(probe);
  const absl::Status status = core->Start(std::move(options));
  INFO(status.ToString());
  REQUIRE(status.ok());
  return core;
}

void EngineRig::RestartShard(uint32_t rank) {
  absl::MutexLock lock(&restart_mutex_);
  shards_[rank]->Kill();
  shards_[rank]->Start();
}

void EngineRig::WaitUntil(const std::string& what, const std::function<bool()>& condition,
                          absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    INFO("waiting until " << what);
    REQUIRE(absl::Now() < deadline);
    absl::SleepFor(absl::Milliseconds(2));
  }
}

void EngineRig::WaitReady() {
  WaitUntil("the engine serves", [this] { return engine_->Status().state == ServerState::kReady; });
}

std::shared_ptr<FakeSink> SubmitTo(Core& core, GenerateInput input) {
  auto sink = std::make_shared<FakeSink>();
  absl::StatusOr<Admission::Permit> permit = core.Enter(Anonymous(), TextBytes(input));
  if (permit.ok()) {
    sink->Attach(core.Submit(std::move(input), *std::move(permit), sink));
  } else {
    sink->Attach(permit.status());
  }
  return sink;
}

std::shared_ptr<FakeSink> EngineRig::Submit(GenerateInput input) {
  return SubmitTo(*engine_, std::move(input));
}

// What the router makes of the request's wishes with a tokenizer of one id a byte.
static testing::MockRule RuleOf(const GenerateInput& input) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : input.bad_words) {
    for (const std::string& text :
         {word, absl::StrCat(" ", absl::StripLeadingAsciiWhitespace(word))}) {
      std::vector<TokenId>& ids = sequences.emplace_back();
      for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    }
  }
  return testing::MakeMockRule(input.allowed_token_ids, std::move(sequences));
}

std::vector<TokenId> EngineRig::Expected(const GenerateInput& input) const {
  const auto& prompt = std::get<std::vector<TokenId>>(input.prompt);
  const uint32_t room = options_.shape.context_tokens - static_cast<uint32_t>(prompt.size());
  return testing::MockAnswer(options_.shape.vocabulary, prompt, *input.seed,
                             input.max_tokens.value_or(room), input.ignore_eos, RuleOf(input));
}

void EngineRig::CheckClean() {
  WaitUntil("every slot is free", [this] {
    for (auto& shard : shards_) {
      if (shard->stats().held_slots > 0) return false;
    }
    return MetricValue(probe_, "weft_num_requests_running") == 0 &&
           MetricValue(probe_, "weft_num_requests_waiting") == 0 &&
           MetricValue(probe_, "weft_kv_blocks{state=\"used\"}") == 0;
  });
  CHECK(engine_->WaitIdle(absl::Seconds(10)));
  for (Rank rank = 0; rank < shards_.size(); ++rank) {
    const testing::MockShardStats stats = shards_[rank]->stats();
    INFO(absl::StrJoin(stats.violations, "\n"));
    CHECK(stats.violations.empty());
    // The next step is sent when rank 0 has answered the one before the last; another rank may be
    // as many steps behind rank 0.
    CHECK(stats.in_flight_max <= (rank == 0 ? 2 : 4));
  }
}

std::vector<TokenId> MakePrompt(uint64_t seed, size_t length) {
  std::vector<TokenId> ids;
  uint64_t state = seed + 1;
  for (size_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    ids.push_back(97 + static_cast<TokenId>((state >> 33) % 26));
  }
  return ids;
}

GenerateInput MakeInput(uint64_t seed, size_t prompt_tokens, uint32_t max_tokens) {
  GenerateInput input;
  input.prompt = MakePrompt(seed, prompt_tokens);
  input.seed = seed;
  input.max_tokens = max_tokens;
  return input;
}

double MetricValue(Probe& probe, const std::string& series) {
  for (absl::string_view line : absl::StrSplit(probe.Render(), '\n')) {
    double value;
    if (absl::StartsWith(line, series + " ") &&
        absl::SimpleAtod(line.substr(series.size() + 1), &value)) {
      return value;
    }
  }
  return -1;
}

}  // namespace weft::router
