#include "shard/control/health_service.h"

#include "weft/shard/v1/shard.grpc.pb.h"

namespace weft::shard {

using grpc::health::v1::HealthCheckResponse;

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::health::v1::HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!request->service().empty() && request->service() != v1::ShardService::service_full_name()) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no such service"));
    return reactor;
  }
  const bool serving = !serving_ || serving_();
  response->set_status(serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace weft::shard
