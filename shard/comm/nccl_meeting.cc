#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/comm/nccl_communicator.h"

namespace weft::shard {
namespace {

// Between two looks at what NCCL does by itself.
constexpr std::chrono::milliseconds kPoll(1);
// What is wrong when ranks that run do not find each other.
constexpr char kReach[] =
    "; the ranks reach each other over TCP: NCCL_SOCKET_IFNAME must name a network interface that "
    "this host has and the other ranks' hosts reach (NCCL_DEBUG=WARN says more)";

absl::Status MeetingStatus(ncclResult_t result, ncclComm_t communicator, absl::string_view what) {
  const absl::Status status = NcclStatus(result, communicator, what);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), kReach));
}

class NcclMeeting : public GroupMeeting {
 public:
  explicit NcclMeeting(int device) : device_(device) {}

  absl::StatusOr<std::string> Offer(Epoch, uint32_t world) override {
    if (world == 1) return "alone";
    ncclUniqueId id;
    WEFT_RETURN_IF_ERROR(MeetingStatus(ncclGetUniqueId(&id), nullptr, "an id for the group"));
    return absl::BytesToHexString(absl::string_view(id.internal, sizeof(id.internal)));
  }

  void Withdraw(Epoch) override {}

  absl::StatusOr<std::unique_ptr<Communicator>> Meet(const MeetCall& call) override {
    if (call.world == 1) return std::make_unique<NcclCommunicator>(nullptr, call);
    WEFT_ASSIGN_OR_RETURN(const ncclUniqueId id, ParseToken(call.token));
    if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess) {
      return absl::InternalError(absl::StrCat("CUDA: ", cudaGetErrorString(error)));
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t communicator = nullptr;
    ncclResult_t state = ncclCommInitRankConfig(&communicator, static_cast<int>(call.world), id,
                                                static_cast<int>(call.rank), &config);
    auto made = std::make_unique<NcclCommunicator>(communicator, call);
    while (state == ncclInProgress) {
      WEFT_RETURN_IF_ERROR(GoOn(call));
      const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
      if (asked != ncclSuccess) state = asked;
    }
    WEFT_RETURN_IF_ERROR(MeetingStatus(state, communicator, "joining the group"));
    return made;
  }

  void Abort(Epoch epoch) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_epoch_ = std::max(aborted_epoch_, epoch);
    wake_.notify_all();
  }

 private:
  static absl::StatusOr<ncclUniqueId> ParseToken(const std::string& token) {
    ncclUniqueId id;
    const bool hex = token.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hex || token.size() != 2 * sizeof(id.internal)) {
      return absl::InvalidArgumentError("token: is no NCCL id");
    }
    const std::string bytes = absl::HexStringToBytes(token);
    std::memcpy(id.internal, bytes.data(), sizeof(id.internal));
    return id;
  }

  absl::Status GoOn(const MeetCall& call) {
    if (call.heartbeat != nullptr) call.heartbeat->Beat();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      const bool aborted =
          wake_.wait_for(lock, kPoll, [&] { return aborted_epoch_ >= call.epoch; });
      if (aborted) return absl::AbortedError("the meeting was aborted");
    }
    if (absl::Now() < call.deadline) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        "NCCL: rank ", call.rank, " waited for the ", call.world - 1, " others of epoch ",
        call.epoch, " until its join time-out; not all came", kReach));
  }

  const int device_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Epoch aborted_epoch_ = 0;
};

}  // namespace

std::unique_ptr<GroupMeeting> MakeNcclMeeting(int device) {
  return std::make_unique<NcclMeeting>(device);
}

}  // namespace weft::shard
