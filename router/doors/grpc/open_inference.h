// inference.GRPCInferenceService, KServe's and Triton's protocol: health without a key, within the
// bounds of grpc.health.v1, and metadata of the model with one. Its other methods are not
// registered: UnknownMethods refuses them unread. Registered by the gRPC server, which owns it; its
// calls run on gRPC's threads.

#pragma once

#include "router/doors/grpc/call_methods.h"

namespace weft::router {

class OpenInferenceMethods : public CallMethods {
 public:
  // What the doors point to must outlive this. `open` is for health and for what says no more than
  // the build, `keyed` for what names the model.
  OpenInferenceMethods(const GrpcDoor& open, const GrpcDoor& keyed);

 private:
  const GrpcDoor open_;
  const GrpcDoor keyed_;
};

}  // namespace weft::router
