// grpc.reflection.v1 and v1alpha: describes the public services to clients that have no protos,
// such as grpcurl. Registered by the gRPC server, which owns it; its calls run on gRPC's threads
// and have bounds of their own. It describes nothing that is not served.

#pragma once

#include "router/doors/grpc/call_methods.h"
#include "router/doors/grpc/descriptions.h"

namespace weft::router {

class ReflectionMethods : public CallMethods {
 public:
  // What `door` points to must outlive this.
  explicit ReflectionMethods(const GrpcDoor& door);

 private:
  const GrpcDoor door_;
  const Descriptions descriptions_;
};

}  // namespace weft::router
