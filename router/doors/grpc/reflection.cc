#include "router/doors/grpc/reflection.h"

#include <memory>

#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "inference/open_inference.pb.h"
#include "router/doors/grpc/side_call.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {
namespace {

constexpr char kV1[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kV1Alpha[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// One stream: each request is answered before the next one is read. The two versions have the same
// messages under two names.
class ReflectionCall : public SideCall {
 public:
  ReflectionCall(const GrpcDoor& door, grpc::CallbackServerContext* context,
                 const Descriptions* descriptions)
      : SideCall(door, context, "ServerReflectionInfo"), descriptions_(descriptions) {}

 private:
  void OnMessage() override {
    grpc::reflection::v1::ServerReflectionRequest request;
    const absl::Status good = Take(&request);
    if (!good.ok()) return Close(good);
    absl::MutexLock lock(&mutex_);
    if (may_write()) Write(descriptions_->Answer(request));
  }
  void OnMessagesEnd() override { Close(absl::OkStatus()); }
  void OnWritten() override {
    BeginMessage(MonotonicClock().NowUs(), 0);
    ReadMessage();
  }

  const Descriptions* const descriptions_;
};

}  // namespace

ReflectionMethods::ReflectionMethods(const GrpcDoor& door)
    : door_(door),
      descriptions_({grpc::health::v1::HealthCheckResponse::descriptor()->file(),
                     grpc::reflection::v1::ServerReflectionRequest::descriptor()->file(),
                     grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file(),
                     inference::ServerLiveRequest::descriptor()->file(),
                     weft::v1::GenerateRequest::descriptor()->file()}) {
  for (const char* path : {kV1, kV1Alpha}) {
    Add(path, [this](grpc::CallbackServerContext* context) {
      return std::make_shared<ReflectionCall>(door_, context, &descriptions_);
    });
  }
}

}  // namespace weft::router
