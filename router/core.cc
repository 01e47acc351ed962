#include "router/core.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/groups/placement.h"
#include "router/serving.h"
#include "router/text/parts/formats.h"
#include "router/text/parts/part_parser.h"
#include "router/text/sampling_defaults.h"

namespace weft::router {
namespace {

absl::Status CheckOptions(const EngineOptions& options) {
  const auto refuse = [](absl::string_view what) { return absl::InvalidArgumentError(what); };
  if (options.groups.empty() || options.groups.size() > kGroupsMax) {
    return refuse(absl::StrCat("expected 1 .. ", kGroupsMax, " groups of shards, found ",
                               options.groups.size()));
  }
  for (const std::vector<std::string>& group : options.groups) {
    if (group.empty()) return refuse("a group of shards has no address");
  }
  if (options.shards() > kWorldMax) {
    return refuse(
        absl::StrCat("expected 1 .. ", kWorldMax, " shard addresses, found ", options.shards()));
  }
  if (options.generation_config != "auto" && options.generation_config != "none") {
    return refuse(absl::StrCat("--generation-config: expected auto or none, found ",
                               options.generation_config));
  }
  if (options.text_threads == 0) return refuse("text threads: expected at least 1");
  if (options.mask_threads == 0) return refuse("mask threads: expected at least 1");
  if (options.running_max == 0 || options.running_max > kRunningMax) {
    return refuse(absl::StrCat("--running-max: expected 1 .. ", kRunningMax));
  }
  if (options.step_tokens_max < options.running_max || options.step_tokens_max > kStepTokensMax) {
    return refuse(absl::StrCat("--step-tokens-max: expected at least --running-max (",
                               options.running_max, ") and at most ", kStepTokensMax));
  }
  // Each request may put a few events into the engine loop's queue.
  if (options.queue_requests_max > kEngineEventsMax / 8) {
    return refuse(absl::StrCat("queued requests: expected at most ", kEngineEventsMax / 8));
  }
  if (options.queue_timeout_s < 0) return refuse("queue time-out: expected at least 0 s");
  if (options.recovery_timeout_s <= 0) return refuse("recovery time-out: expected more than 0 s");
  return absl::OkStatus();
}

absl::Status Starting() {
  return UnavailableError("LOADING", "the server is starting", absl::Seconds(1));
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> MakeTemplate(const EngineOptions& options,
                                                           const ModelText& text,
                                                           const Tokenizer* tokenizer) {
  if (options.template_host == nullptr) {
    return absl::InvalidArgumentError("the model has a chat template and no process to run it");
  }
  ChatTemplate::Options template_options;
  template_options.bos_token = text.bos_token;
  template_options.eos_token = text.eos_token;
  template_options.allow_control_tokens = options.allow_control_tokens;
  template_options.workers_max = options.text_threads;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> made,
                        ChatTemplate::Create(options.template_host, tokenizer, text.chat_template,
                                             std::move(template_options)));
  if (const absl::Status probe = made->Probe(); !probe.ok()) {
    WEFT_LOG_WARN(
        "the model's chat template fails on a short conversation, chats may be refused: {}",
        std::string(probe.message()));
  }
  return made;
}

// "auto" becomes what the chat template shows. A template that shows no format may still be told of
// tools by its users, and answers may be held to calls: these are plain JSON.
absl::StatusOr<AnswerDefaults> ChooseParsers(const EngineOptions& options, const ModelText& text) {
  const DetectedParsers detected = DetectParsers(text.chat_template);
  AnswerDefaults parsers;
  parsers.tool_parser = options.tool_parser;
  parsers.reasoning_parser = options.reasoning_parser;
  if (options.tool_parser == "auto") {
    parsers.tool_parser = std::string(detected.tool_parser);
    if (detected.tool_parser == kNoParser && !text.chat_template.empty()) {
      parsers.tool_parser = "json";
    }
  }
  if (options.reasoning_parser == "auto") {
    parsers.reasoning_parser = std::string(detected.reasoning_parser);
  }
  // What goes together only somebody who names both can know; what was found gives way.
  const bool harmony_tools = parsers.tool_parser == kHarmony;
  const bool harmony_reasoning = parsers.reasoning_parser == kHarmony;
  if (harmony_tools != harmony_reasoning) {
    if (options.tool_parser == "auto" && parsers.reasoning_parser != kNoParser) {
      parsers.tool_parser = harmony_reasoning ? std::string(kHarmony) : "json";
    } else if (options.reasoning_parser == "auto" && parsers.tool_parser != kNoParser) {
      parsers.reasoning_parser = std::string(harmony_tools ? kHarmony : kNoParser);
    }
  }
  PartParserOptions check;
  check.tool_parser = parsers.tool_parser;
  check.reasoning_parser = parsers.reasoning_parser;
  const absl::Status known = MakePartParser(check).status();
  if (!known.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tool-parser, --reasoning-parser: ", known.message()));
  }
  WEFT_LOG_INFO("answers are read as tool_parser={} reasoning_parser={}", parsers.tool_parser,
                parsers.reasoning_parser);
  return parsers;
}

class CoreImpl : public Core {
 public:
  explicit CoreImpl(Probe* probe) : probe_(probe) {}

  absl::Status Start(EngineOptions options) override {
    WEFT_RETURN_IF_ERROR(CheckOptions(options));
    WEFT_ASSIGN_OR_RETURN(ModelText text, LoadModelText(options.model_path));
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                          Tokenizer::FromModel(options.model_path));
    WEFT_ASSIGN_OR_RETURN(const TokenizerFingerprint fingerprint,
                          FingerprintTokenizer(options.model_path));
    std::unique_ptr<ChatTemplate> chat_template;
    if (!text.chat_template.empty()) {
      WEFT_ASSIGN_OR_RETURN(chat_template, MakeTemplate(options, text, tokenizer.get()));
    }
    std::unique_ptr<GrammarEngine> grammars;
    if (!text.eos_ids.empty()) {
      GrammarOptions grammar_options;
      grammar_options.lexers = std::max(grammar_options.lexers, options.mask_threads);
      grammars = GrammarEngine::CreateLater(*tokenizer, text.eos_ids, grammar_options);
    }
    WEFT_ASSIGN_OR_RETURN(AnswerDefaults defaults, ChooseParsers(options, text));
    if (options.generation_config == "auto") {
      WEFT_ASSIGN_OR_RETURN(defaults.sampling, ReadSamplingDefaults(options.model_path));
      WEFT_LOG_INFO("requests that do not say it are sampled by generation_config.json: {}",
                    SamplingDefaultsText(defaults.sampling));
    }
    owned_ = std::make_unique<Serving>(std::move(options), std::move(text), std::move(tokenizer),
                                       fingerprint, std::move(chat_template), std::move(grammars),
                                       std::move(defaults), probe_);
    WEFT_RETURN_IF_ERROR(owned_->Start());
    serving_.store(owned_.get(), std::memory_order_release);
    return absl::OkStatus();
  }

  // -- Entrance
  absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes) override {
    if (Serving* serving = get()) return serving->Enter(tenant, body_bytes);
    return Starting();
  }
  absl::StatusOr<Admission::Permit> EnterText(const TenantRef& tenant, size_t body_bytes) override {
    if (Serving* serving = get()) return serving->EnterText(tenant, body_bytes);
    return Starting();
  }
  bool Run(size_t bytes, absl::AnyInvocable<void()>&& read) override {
    Serving* const serving = get();
    return serving != nullptr && serving->Run(bytes, std::move(read));
  }
  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> SubmitChoices(
      GenerateInput input, std::vector<Admission::Permit> permits,
      std::shared_ptr<AnswerSink> sink) override {
    if (Serving* serving = get()) {
      return serving->Submit(std::move(input), std::move(permits), std::move(sink));
    }
    return Starting();
  }
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                Admission::Permit permit, std::shared_ptr<const TextCall> call,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override {
    if (Serving* serving = get()) {
      serving->Tokenize(std::move(prompt), add_special_tokens, std::move(permit), std::move(call),
                        std::move(done));
    } else {
      done(Starting());
    }
  }
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens, Admission::Permit permit,
                  std::shared_ptr<const TextCall> call,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override {
    if (Serving* serving = get()) {
      serving->Detokenize(std::move(ids), skip_special_tokens, std::move(permit), std::move(call),
                          std::move(done));
    } else {
      done(Starting());
    }
  }
  bool Cancel(const Tenant& tenant, const std::string& name) override {
    Serving* const serving = get();
    return serving != nullptr && serving->Cancel(tenant, name);
  }
  ModelFacts Model() const override {
    const Serving* const serving = get();
    return serving != nullptr ? serving->Model() : ModelFacts();
  }
  ServerStatus Status() const override {
    if (const Serving* const serving = get()) return serving->Status();
    ServerStatus status;
    status.detail = "loading the tokenizer";
    return status;
  }

  // -- Core
  void StartDrain(absl::Duration timeout) override {
    if (Serving* serving = get()) serving->StartDrain(timeout);
  }
  void SetQueueLimits(const QueueLimits& limits) override {
    if (Serving* serving = get()) serving->SetQueueLimits(limits);
  }
  absl::Status FlushPrefixCache() override {
    Serving* const serving = get();
    return serving != nullptr ? serving->FlushPrefixCache() : Starting();
  }
  bool WaitIdle(absl::Duration timeout) override {
    Serving* const serving = get();
    return serving == nullptr || serving->WaitIdle(timeout);
  }
  void Shutdown() override {
    if (Serving* serving = get()) serving->Shutdown();
  }

 private:
  Serving* get() const { return serving_.load(std::memory_order_acquire); }

  Probe* const probe_;
  std::unique_ptr<Serving> owned_;
  std::atomic<Serving*> serving_{nullptr};
};

}  // namespace

std::unique_ptr<Core> MakeCore(Probe* probe) { return std::make_unique<CoreImpl>(probe); }

}  // namespace weft::router
