#include "router/shards/call.h"

#include "absl/strings/str_cat.h"

namespace weft::router {

const char* CallName(ShardCall call) {
  switch (call) {
    case ShardCall::kInfo:
      return "Info";
    case ShardCall::kRendezvous:
      return "Rendezvous";
    case ShardCall::kJoinGroup:
      return "JoinGroup";
    case ShardCall::kLeaveGroup:
      return "LeaveGroup";
    case ShardCall::kWarmup:
      return "Warmup";
    case ShardCall::kPrefill:
      return "Prefill";
    case ShardCall::kDecode:
      return "Decode";
    case ShardCall::kFilterBatch:
      return "FilterBatch";
    case ShardCall::kMaskRows:
      return "MaskRows";
    case ShardCall::kHold:
      return "Hold";
  }
  return "?";
}

std::vector<std::string> CallPaths() {
  std::vector<std::string> paths;
  for (ShardCall call :
       {ShardCall::kInfo, ShardCall::kRendezvous, ShardCall::kJoinGroup, ShardCall::kLeaveGroup,
        ShardCall::kWarmup, ShardCall::kPrefill, ShardCall::kDecode, ShardCall::kFilterBatch,
        ShardCall::kMaskRows, ShardCall::kHold}) {
    paths.push_back(absl::StrCat("/weft.shard.v1.ShardService/", CallName(call)));
  }
  return paths;
}

}  // namespace weft::router
