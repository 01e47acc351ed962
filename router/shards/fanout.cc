#include "router/shards/fanout.h"

#include <string>
#include <utility>

#include "common/check.h"
#include "common/limits.h"

namespace weft::router {

ShardFanout::ShardFanout(std::vector<std::unique_ptr<ShardClient>> clients)
    : clients_(std::move(clients)) {
  WEFT_CHECK(!clients_.empty() && clients_.size() <= kWorldMax);
}

void ShardFanout::Send(Rank rank, ShardCall call, const google::protobuf::Message& request,
                       ShardCallTag tag, int64_t timeout_us, bool wait_for_ready) {
  clients_[rank]->Call(call, std::make_shared<const std::string>(request.SerializeAsString()), tag,
                       timeout_us, wait_for_ready);
}

void ShardFanout::SendAll(ShardCall call, const SharedBytes& request, ShardCallTag tag,
                          int64_t timeout_us) {
  for (auto& client : clients_) {
    client->Call(call, request, tag, timeout_us, /*wait_for_ready=*/false);
  }
}

}  // namespace weft::router
