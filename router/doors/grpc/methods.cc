#include "router/doors/grpc/methods.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/clock.h"
#include "common/version.h"
#include "grpcpp/support/server_callback.h"
#include "router/doors/access_log.h"
#include "router/doors/grpc/batch.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/errors.h"
#include "router/doors/grpc/generate.h"
#include "router/doors/grpc/request.h"
#include "router/doors/grpc/unary_call.h"
#include "router/doors/open_inference.h"
#include "router/errors.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

namespace {

constexpr char kGenerate[] = "/weft.v1.TextGeneration/Generate";
constexpr char kGenerateBatch[] = "/weft.v1.TextGeneration/GenerateBatch";
constexpr char kTokenize[] = "/weft.v1.TextGeneration/Tokenize";
constexpr char kDetokenize[] = "/weft.v1.TextGeneration/Detokenize";
constexpr char kCancel[] = "/weft.v1.TextGeneration/Cancel";
constexpr char kGetModel[] = "/weft.v1.TextGeneration/GetModel";
// ModelInfer, and what Triton has beyond the protocol.
constexpr char kOpenInferencePrefix[] = "/inference.GRPCInferenceService/";
// Of a method's path, which ends with its name.
constexpr size_t kServiceBytes = sizeof("/weft.v1.TextGeneration/") - 1;

weft::v1::DataType WireDataType(absl::string_view name) {
  if (name == "float32") return weft::v1::DATA_TYPE_FLOAT32;
  if (name == "bfloat16") return weft::v1::DATA_TYPE_BFLOAT16;
  if (name == "float16") return weft::v1::DATA_TYPE_FLOAT16;
  return weft::v1::DATA_TYPE_UNSPECIFIED;
}

// A call of a method that does not exist. Deletes itself.
class UnknownCall : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall(DoorContext* doors, GrpcCallWatch* watch, grpc::GenericCallbackServerContext* context)
      : doors_(doors), watch_(watch), context_(context), start_us_(MonotonicClock().NowUs()) {
    watch_->untaken()->Add(ConnectionKeyOf(*context_));
    GrpcCallWatch::Origin origin = watch_->OriginOf(*context_);
    connection_ = std::move(origin.connection);
    account_ = watch_->accounts()->Begin(ConnectionKeyOf(*context_), connection_, start_us_);
    if (connection_ != nullptr) {
      message_begin_ = connection_->BeginMessage(origin.began_us, MonotonicClock().NowUs(),
                                                 HeaderBytesOf(*context_));
    }
    const bool inference = absl::StartsWith(context_->method(), kOpenInferencePrefix);
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            inference ? std::string(kNoOpenInference) : "there is no such method"});
  }
  void OnDone() override {
    const std::unique_ptr<UnknownCall> self(this);
    watch_->untaken()->Remove(ConnectionKeyOf(*context_));
    CallEnd end;
    end.began_us = start_us_;
    end.cancelled = context_->IsCancelled();
    end.gives_back = false;
    watch_->accounts()->Ended(account_.get(), MonotonicClock().NowUs(), end);
    if (connection_ != nullptr) connection_->EndMessage(message_begin_, 0);
    AccessRecord record;
    record.total_us = MonotonicClock().NowUs() - start_us_;
    record.door = "grpc";
    record.route = "other";
    record.status = std::string(GrpcCodeName(grpc::StatusCode::UNIMPLEMENTED));
    doors_->probe().GrpcHandled(record.route, record.status, record.total_us);
    if (context_->IsCancelled()) return;  // as for other calls that are taken back at once
    record.client = PeerOf(*context_);
    record.traceparent = TraceparentOf(*context_);
    LogAccess(record);
  }

 private:
  DoorContext* const doors_;
  GrpcCallWatch* const watch_;
  grpc::GenericCallbackServerContext* const context_;
  const int64_t start_us_;
  std::shared_ptr<GrpcConnection> connection_;
  CallAccounts::AccountRef account_;
  uint64_t message_begin_ = 0;
};

}  // namespace

TextGenerationMethods::TextGenerationMethods(const GrpcDoor& door) : door_(door) {
  Add(kGenerate, [this](grpc::CallbackServerContext* context) {
    return std::make_shared<GenerateCall>(door_, context);
  });
  Add(kGenerateBatch, [this](grpc::CallbackServerContext* context) {
    return std::make_shared<BatchCall>(door_, context);
  });
  AddUnary(kTokenize, &TextGenerationMethods::Tokenize);
  AddUnary(kDetokenize, &TextGenerationMethods::Detokenize);
  AddUnary(kCancel, &TextGenerationMethods::Cancel);
  AddUnary(kGetModel, &TextGenerationMethods::GetModel);
}

void TextGenerationMethods::AddUnary(const char* path, Answerer answer) {
  Add(path, [this, path, answer](grpc::CallbackServerContext* context) {
    UnaryCall::Form form;
    form.quiet = path == kGetModel;
    return std::make_shared<UnaryCall>(
        door_, context, path + kServiceBytes,
        [this, answer](const std::shared_ptr<UnaryCall>& call) { (this->*answer)(call); }, form);
  });
}

void TextGenerationMethods::Tokenize(const std::shared_ptr<UnaryCall>& call) {
  absl::StatusOr<Admission::Permit> permit =
      door_.doors->entrance().EnterText(call->tenant(), call->message_bytes());
  if (!permit.ok()) return call->Fail(permit.status());
  weft::v1::TokenizeRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  auto prompt = ReadTokenize(&request);
  if (!prompt.ok()) return call->Fail(prompt.status());
  const bool add = !request.has_add_special_tokens() || request.add_special_tokens();
  door_.doors->entrance().Tokenize(*std::move(prompt), add, *std::move(permit), /*call=*/nullptr,
                                   [call](absl::StatusOr<TokenizeResult> result) {
                                     if (!result.ok()) return call->Fail(result.status());
                                     weft::v1::TokenizeResponse response;
                                     response.mutable_ids()->Add(result->ids.begin(),
                                                                 result->ids.end());
                                     for (std::string& token : result->tokens) {
                                       response.add_tokens(std::move(token));
                                     }
                                     call->Answer(response);
                                   });
}

void TextGenerationMethods::Detokenize(const std::shared_ptr<UnaryCall>& call) {
  absl::StatusOr<Admission::Permit> permit =
      door_.doors->entrance().EnterText(call->tenant(), call->message_bytes());
  if (!permit.ok()) return call->Fail(permit.status());
  weft::v1::DetokenizeRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  absl::StatusOr<std::vector<TokenId>> ids = ReadDetokenize(request);
  if (!ids.ok()) return call->Fail(ids.status());
  const bool skip = !request.has_skip_special_tokens() || request.skip_special_tokens();
  door_.doors->entrance().Detokenize(*std::move(ids), skip, *std::move(permit), /*call=*/nullptr,
                                     [call](absl::StatusOr<std::string> text) {
                                       if (!text.ok()) return call->Fail(text.status());
                                       weft::v1::DetokenizeResponse response;
                                       response.set_text(*std::move(text));
                                       call->Answer(response);
                                     });
}

void TextGenerationMethods::Cancel(const std::shared_ptr<UnaryCall>& call) {
  weft::v1::CancelRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  if (!IsRequestId(request.request_id())) {
    return call->Fail(FieldError("request_id", "must have 1 to 128 characters of [A-Za-z0-9._-]"));
  }
  weft::v1::CancelResponse response;
  response.set_found(door_.doors->entrance().Cancel(*call->tenant(), request.request_id()));
  call->Answer(response);
}

void TextGenerationMethods::GetModel(const std::shared_ptr<UnaryCall>& call) {
  weft::v1::GetModelRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  const absl::StatusOr<ModelFacts> served = door_.doors->ServedModel();
  if (!served.ok()) return call->Fail(served.status());
  const ModelFacts& model = *served;
  weft::v1::GetModelResponse response;
  response.set_model(model.model_name);
  response.set_family(model.shape.family);
  response.set_parameters(model.shape.parameters);
  response.set_context_tokens(model.shape.context_tokens);
  response.set_vocab_size(model.shape.vocab_size);
  response.set_dtype(WireDataType(model.shape.dtype));
  response.set_shards(model.shards);
  response.mutable_build()->set_version(Version());
  response.mutable_build()->set_revision(Revision());
  response.set_request_tokens_max(model.shape.request_tokens_max);
  call->Answer(response);
}

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return std::make_unique<UnknownCall>(doors_, watch_, context).release();
}

}  // namespace weft::router
