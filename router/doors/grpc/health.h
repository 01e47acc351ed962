// grpc.health.v1: says whether the server takes requests, as a whole and for its service.
// Registered by the gRPC server, which owns it and says what is so; its calls run on gRPC's threads
// and have bounds of their own. Check holds no place at all, so that whoever watches cannot keep a
// load balancer from asking.

#pragma once

#include <atomic>
#include <string>

#include "grpc/health/v1/health.pb.h"
#include "router/doors/grpc/call_methods.h"

namespace weft::router {

class HealthMethods : public CallMethods {
 public:
  // What `door` points to must outlive this. NOT_SERVING at first.
  explicit HealthMethods(const GrpcDoor& door);

  // Tells those who watch of a change.
  void SetServing(bool serving);
  // SERVICE_UNKNOWN for a name that is not served.
  grpc::health::v1::HealthCheckResponse::ServingStatus StatusOf(const std::string& service) const;

 private:
  const GrpcDoor door_;
  std::atomic<bool> serving_{false};
};

}  // namespace weft::router
