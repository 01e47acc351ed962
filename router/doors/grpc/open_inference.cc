#include "router/doors/grpc/open_inference.h"

#include <memory>
#include <string>

#include "common/version.h"
#include "inference/open_inference.pb.h"
#include "router/doors/grpc/unary_call.h"
#include "router/doors/open_inference.h"

namespace weft::router {
namespace {

using inference::ModelMetadataResponse;

constexpr char kServerLive[] = "/inference.GRPCInferenceService/ServerLive";
constexpr char kServerReady[] = "/inference.GRPCInferenceService/ServerReady";
constexpr char kModelReady[] = "/inference.GRPCInferenceService/ModelReady";
constexpr char kServerMetadata[] = "/inference.GRPCInferenceService/ServerMetadata";
constexpr char kModelMetadata[] = "/inference.GRPCInferenceService/ModelMetadata";
// Of a method's path, which ends with its name.
constexpr size_t kServiceBytes = sizeof("/inference.GRPCInferenceService/") - 1;

using CallRef = std::shared_ptr<UnaryCall>;

void ServerLive(const DoorContext& doors, const CallRef& call) {
  inference::ServerLiveRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  inference::ServerLiveResponse response;
  response.set_live(IsLive(doors));
  call->Answer(response);
}

void ServerReady(const DoorContext& doors, const CallRef& call) {
  inference::ServerReadyRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  inference::ServerReadyResponse response;
  response.set_ready(IsReady(doors));
  call->Answer(response);
}

void ModelReady(const DoorContext& doors, const CallRef& call) {
  inference::ModelReadyRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  const absl::Status known = CheckOpenInferenceModel(doors, request.name(), request.version());
  if (absl::IsInvalidArgument(known)) return call->Fail(known);
  inference::ModelReadyResponse response;
  // Who polls for a model waits for it also where another one is served.
  response.set_ready(known.ok() && IsReady(doors));
  call->Answer(response);
}

void ServerMetadata(const DoorContext& /*doors*/, const CallRef& call) {
  inference::ServerMetadataRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  inference::ServerMetadataResponse response;
  response.set_name("weft");
  response.set_version(Version());
  call->Answer(response);
}

void FillTensor(const OpenInferenceTensor& tensor, ModelMetadataResponse::TensorMetadata* into) {
  into->set_name(tensor.name);
  into->set_datatype(tensor.datatype);
  into->add_shape(tensor.shape);
}

void ModelMetadata(const DoorContext& doors, const CallRef& call) {
  inference::ModelMetadataRequest request;
  if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return call->Fail(model.status());
  const absl::Status known = CheckOpenInferenceModel(doors, request.name(), request.version());
  if (!known.ok()) return call->Fail(known);
  ModelMetadataResponse response;
  response.set_name(model->model_name);
  response.add_versions(std::string(kOpenInferenceVersion));
  response.set_platform(std::string(kOpenInferencePlatform));
  FillTensor(kOpenInferenceInput, response.add_inputs());
  FillTensor(kOpenInferenceOutput, response.add_outputs());
  call->Answer(response);
}

}  // namespace

OpenInferenceMethods::OpenInferenceMethods(const GrpcDoor& open, const GrpcDoor& keyed)
    : open_(open), keyed_(keyed) {
  using Answerer = void (*)(const DoorContext&, const CallRef&);
  const auto add = [this](const char* path, const GrpcDoor* door, Answerer answer) {
    Add(path, [path, door, answer](grpc::CallbackServerContext* context) {
      UnaryCall::Form form;
      form.quiet = true;
      form.at_once = true;
      return std::make_shared<UnaryCall>(
          *door, context, path + kServiceBytes,
          [door, answer](const CallRef& call) { answer(*door->doors, call); }, form);
    });
  };
  add(kServerLive, &open_, ServerLive);
  add(kServerReady, &open_, ServerReady);
  add(kModelReady, &open_, ModelReady);
  add(kServerMetadata, &open_, ServerMetadata);
  add(kModelMetadata, &keyed_, ModelMetadata);
}

}  // namespace weft::router
