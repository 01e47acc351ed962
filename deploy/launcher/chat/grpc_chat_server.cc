#include "deploy/launcher/chat/grpc_chat_server.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::launcher {
namespace {

// A server that is there answers sooner; one that starts is worth a line.
constexpr absl::Duration kSilentWait = absl::Seconds(1);
// Questions that a server answers from memory.
constexpr absl::Duration kSmallCall = absl::Seconds(10);
// Tries for a connection that broke: the one who waits is a person, and a server that is back is
// found within the shortest --reconnect-timeout-s, a second.
constexpr int kReconnectMsMin = 100;
constexpr int kReconnectMsMax = 300;
// The longest pause between two of them, with its jitter.
constexpr absl::Duration kOneTry = absl::Milliseconds(400);
// What one try may take.
constexpr int kConnectMs = 1000;

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

void FillChat(const std::vector<ChatTurn>& messages, v1::ChatPrompt* chat) {
  for (const ChatTurn& turn : messages) {
    v1::ChatMessage* const message = chat->add_messages();
    message->set_role(turn.role);
    message->set_content(turn.content);
  }
}

void FillSettings(const Settings& settings, v1::GenerateRequest* request) {
  v1::SamplingParameters* const sampling = request->mutable_sampling();
  v1::DecodingParameters* const decoding = request->mutable_decoding();
  const auto real = [&settings](const char* name, auto set) {
    if (const auto value = settings.Real(name)) set(static_cast<float>(*value));
  };
  real("temperature", [sampling](float value) { sampling->set_temperature(value); });
  real("top_p", [sampling](float value) { sampling->set_top_p(value); });
  real("min_p", [sampling](float value) { sampling->set_min_p(value); });
  real("typical_p", [sampling](float value) { sampling->set_typical_p(value); });
  real("repetition_penalty", [decoding](float value) { decoding->set_repetition_penalty(value); });
  real("presence_penalty", [decoding](float value) { decoding->set_presence_penalty(value); });
  real("frequency_penalty", [decoding](float value) { decoding->set_frequency_penalty(value); });
  if (const auto value = settings.Integer("top_k")) {
    sampling->set_top_k(static_cast<uint32_t>(*value));
  }
  if (const auto value = settings.Integer("seed")) sampling->set_seed(*value);
}

void FillResume(const ResumePoint& point, v1::Resume* resume) {
  resume->mutable_output_ids()->Add(point.output_ids.begin(), point.output_ids.end());
  resume->set_seed(point.seed);
  resume->set_fingerprint(point.fingerprint);
}

AnswerEvent ToEvent(const v1::GenerateResponse& response) {
  AnswerEvent event;
  event.text = response.output().text();
  event.token_ids.assign(response.output().token_ids().begin(),
                         response.output().token_ids().end());
  if (response.has_prompt_info()) {
    const v1::PromptInfo& info = response.prompt_info();
    event.begins = true;
    event.prompt_tokens = info.prompt_tokens();
    event.cached_tokens = info.cached_tokens();
    event.seed = info.seed();
    event.fingerprint = info.fingerprint();
    event.inexact = info.resume_match() == v1::RESUME_MATCH_INEXACT;
  }
  if (response.has_finish_info()) {
    event.finish = response.finish_info().reason() == v1::FINISH_REASON_LENGTH ? Finish::kLength
                                                                               : Finish::kEnd;
    event.output_tokens = response.finish_info().output_tokens();
  }
  return event;
}

class GrpcChatServer : public ChatServer {
 public:
  GrpcChatServer(ServerAccess access, std::string model)
      : access_(std::move(access)), model_(std::move(model)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMsMin);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
    // A call that is lost is asked for again by us, with what came of it.
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    channel_ = ConnectGrpc(access_, arguments);
    stub_ = v1::TextGeneration::NewStub(channel_);
  }

  absl::Status Connect(absl::Duration wait) override {
    const absl::Time begin = absl::Now();
    const auto connected = [this, begin](absl::Duration most) {
      return channel_->WaitForConnected(absl::ToChronoTime(begin + most));
    };
    if (connected(std::min(wait, kSilentWait))) return absl::OkStatus();
    if (wait > kSilentWait) {
      std::fputs(absl::StrFormat("waiting for %s, up to %d s (--connect-timeout-s)\n",
                                 access_.address, absl::ToInt64Seconds(wait))
                     .c_str(),
                 stderr);
      if (connected(wait)) return absl::OkStatus();
    }
    return NoGrpcServer(access_);
  }

  absl::StatusOr<ModelFacts> Facts(Stop& stop) override {
    grpc::ClientContext context;
    Prepare(kSmallCall, &context);
    const Stop::Hook hook(stop, [&context] { context.TryCancel(); });
    v1::GetModelResponse model;
    WEFT_RETURN_IF_ERROR(ToStatus(stub_->GetModel(&context, v1::GetModelRequest(), &model)));
    return ModelFacts{model.model(), model.request_tokens_max()};
  }

  absl::StatusOr<uint32_t> CountTokens(const std::vector<ChatTurn>& messages, Stop& stop) override {
    grpc::ClientContext context;
    Prepare(kSmallCall, &context);
    const Stop::Hook hook(stop, [&context] { context.TryCancel(); });
    v1::TokenizeRequest request;
    FillChat(messages, request.mutable_chat());
    v1::TokenizeResponse response;
    WEFT_RETURN_IF_ERROR(ToStatus(stub_->Tokenize(&context, request, &response)));
    return static_cast<uint32_t>(response.ids_size());
  }

  absl::Status Stream(const AnswerRequest& request, absl::Duration most, Stop& stop,
                      absl::FunctionRef<bool(const AnswerEvent&)> on_event) override {
    v1::GenerateRequest message;
    message.set_model(model_);
    FillChat(request.messages, message.mutable_chat());
    FillSettings(request.settings, &message);
    if (request.max_tokens > 0) message.mutable_stopping()->set_max_tokens(request.max_tokens);
    if (request.resume) FillResume(*request.resume, message.mutable_resume());
    // A channel that failed says so again at once, also where the server is back by now: one more
    // try of its own comes first.
    if (channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kOneTry));
    }
    grpc::ClientContext context;
    Prepare(most, &context);
    const Stop::Hook hook(stop, [&context] { context.TryCancel(); });
    const auto reader = stub_->Generate(&context, message);
    v1::GenerateResponse response;
    bool wanted = true;
    while (reader->Read(&response)) {
      if (wanted && !on_event(ToEvent(response))) {
        wanted = false;
        context.TryCancel();
      }
    }
    return ToStatus(reader->Finish());
  }

  const std::string& address() const override { return access_.address; }

 private:
  void Prepare(absl::Duration most, grpc::ClientContext* context) const {
    AddApiKey(access_, context);
    context->set_deadline(absl::ToChronoTime(absl::Now() + most));
  }

  const ServerAccess access_;
  const std::string model_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TextGeneration::Stub> stub_;
};

}  // namespace

std::unique_ptr<ChatServer> MakeGrpcChatServer(ServerAccess access, std::string model) {
  return std::make_unique<GrpcChatServer>(std::move(access), std::move(model));
}

}  // namespace weft::launcher
