// grpc.health.v1 of a shard, beside its ShardService: what kubelet, grpc_health_probe and load
// balancers ask. Check is answered from memory at the moment of the question; Watch is
// UNIMPLEMENTED, which its protocol allows and which tells clients to ask by Check. gRPC's own
// health service would say SERVING from the server's start until it is told otherwise, and so of a
// shard that has not begun to load. Owned by the ShardServer; gRPC's threads.

#pragma once

#include <functional>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"

namespace weft::shard {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `serving` must not block; none = always.
  explicit HealthService(std::function<bool()> serving) : serving_(std::move(serving)) {}

  // Of the shard as a whole ("") and of weft.shard.v1.ShardService; NOT_FOUND for another name.
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;

 private:
  const std::function<bool()> serving_;
};

}  // namespace weft::shard
