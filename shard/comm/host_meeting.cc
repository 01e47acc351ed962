#include "shard/comm/host_meeting.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/comm/local_communicator.h"
#include "shard/comm/mesh_meeting.h"
#include "shard/comm/shm_communicator.h"
#include "shard/comm/shm_segment.h"

namespace weft::shard {
namespace {

class HostMeeting : public GroupMeeting {
 public:
  explicit HostMeeting(int64_t capacity_floats) : capacity_floats_(capacity_floats) {}

  absl::StatusOr<std::string> Offer(Epoch epoch, uint32_t world) override {
    if (world == 1) return "alone";
    WEFT_ASSIGN_OR_RETURN(ShmSegment segment,
                          ShmSegment::Create(ShmShape{world, epoch, capacity_floats_}));
    std::string token = segment.token();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offered_epoch_ < epoch) {
      segment_ = std::move(segment);
      offered_epoch_ = epoch;
    }
    return token;
  }

  void Withdraw(Epoch epoch) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offered_epoch_ <= epoch) segment_.reset();
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Meet(const MeetCall& call) override {
    if (call.world == 1) return MakeLocalCommunicator(capacity_floats_);
    if (absl::StartsWith(call.token, kMeshTokenPrefix)) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 meets the others over TCP and rank ", call.rank,
                       " in memory of its host: give every shard --comm-host, or none"));
    }
    const ShmShape shape{call.world, call.epoch, capacity_floats_};
    WEFT_ASSIGN_OR_RETURN(
        std::unique_ptr<ShmCommunicator> communicator,
        ShmCommunicator::Open(call.token, shape, call.rank, call.peer_timeout, call.heartbeat));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (aborted_epoch_ >= call.epoch) return absl::AbortedError("the meeting was aborted");
      meeting_ = communicator.get();
    }
    const absl::Status status = communicator->Meet(call.deadline - absl::Now());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      meeting_ = nullptr;
    }
    WEFT_RETURN_IF_ERROR(status);
    return communicator;
  }

  void Abort(Epoch epoch) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_epoch_ = std::max(aborted_epoch_, epoch);
    if (meeting_ != nullptr) meeting_->Abort();
  }

 private:
  const int64_t capacity_floats_;
  // std::mutex, which ThreadSanitizer sees; a packaged absl::Mutex is not instrumented.
  std::mutex mutex_;
  // Kept until all ranks have mapped it.
  std::optional<ShmSegment> segment_;
  Epoch offered_epoch_ = 0;
  ShmCommunicator* meeting_ = nullptr;
  Epoch aborted_epoch_ = 0;
};

}  // namespace

std::unique_ptr<GroupMeeting> MakeHostMeeting(int64_t capacity_floats) {
  return std::make_unique<HostMeeting>(capacity_floats);
}

}  // namespace weft::shard
