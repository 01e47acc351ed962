#include "router/doors/grpc/health.h"

#include <memory>

#include "absl/status/status.h"
#include "router/doors/grpc/side_call.h"
#include "router/doors/grpc/unary_call.h"

namespace weft::router {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr char kServiceName[] = "weft.v1.TextGeneration";

// Writes the status, and each that differs from the last one written, until the client leaves.
class WatchCall : public SideCall {
 public:
  WatchCall(const GrpcDoor& door, grpc::CallbackServerContext* context, const HealthMethods* health)
      : SideCall(door, context, "Watch"), health_(health) {}

  void Pump() override {
    absl::MutexLock lock(&mutex_);
    if (!watching_ || !may_write()) return;
    const HealthCheckResponse::ServingStatus status = health_->StatusOf(service_);
    if (status == written_) return;
    written_ = status;
    HealthCheckResponse response;
    response.set_status(status);
    Write(response);
  }

 private:
  void OnMessage() override {
    HealthCheckRequest request;
    const absl::Status good = Take(&request);
    if (!good.ok()) return Close(good);
    {
      absl::MutexLock lock(&mutex_);
      service_ = request.service();
      watching_ = true;
    }
    Pump();
  }
  void OnWritten() override { Pump(); }

  const HealthMethods* const health_;
  std::string service_ ABSL_GUARDED_BY(mutex_);
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  HealthCheckResponse::ServingStatus written_ ABSL_GUARDED_BY(mutex_) =
      HealthCheckResponse::UNKNOWN;
};

}  // namespace

HealthMethods::HealthMethods(const GrpcDoor& door) : door_(door) {
  const auto check = [this](const std::shared_ptr<UnaryCall>& call) {
    HealthCheckRequest request;
    if (absl::Status status = call->Read(&request); !status.ok()) return call->Fail(status);
    HealthCheckResponse response;
    response.set_status(StatusOf(request.service()));
    if (response.status() == HealthCheckResponse::SERVICE_UNKNOWN) {
      return call->Fail(absl::NotFoundError("there is no such service"));
    }
    call->Answer(response);
  };
  Add(kCheck, [this, check](grpc::CallbackServerContext* context) {
    UnaryCall::Form form;
    form.at_once = true;
    return std::make_shared<UnaryCall>(door_, context, "Check", check, form);
  });
  Add(kWatch, [this](grpc::CallbackServerContext* context) {
    return std::make_shared<WatchCall>(door_, context, this);
  });
}

void HealthMethods::SetServing(bool serving) {
  if (serving_.exchange(serving) != serving) door_.calls->PumpAll();
}

HealthCheckResponse::ServingStatus HealthMethods::StatusOf(const std::string& service) const {
  if (!service.empty() && service != kServiceName) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_.load() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

}  // namespace weft::router
