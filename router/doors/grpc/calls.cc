#include "router/doors/grpc/calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/doors/grpc/call.h"
#include "router/errors.h"

namespace weft::router {
namespace {

absl::Status TooManyWait() {
  return OverloadedError("TOO_MANY_CALLS", "too many calls wait for their message",
                         absl::Seconds(1));
}

}  // namespace

GrpcCalls::GrpcCalls(const GrpcCallLimits& limits) : limits_(limits), awaited_(limits.awaited) {}

void GrpcCalls::Add(GrpcCall* call, const void* connection) {
  absl::MutexLock lock(&mutex_);
  all_[call].connection = connection;
}

void GrpcCalls::Remove(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  awaited_.Remove(call);
  const auto found = all_.find(call);
  if (found == all_.end()) return;
  LeavePlace(&found->second);
  all_.erase(found);
}

void GrpcCalls::LeavePlace(Call* call) {
  if (!std::exchange(call->working, false)) return;
  --working_;
  const auto count = working_by_connection_.find(call->connection);
  if (--count->second == 0) working_by_connection_.erase(count);
}

void GrpcCalls::AwaitMessage(GrpcCall* call) {
  std::shared_ptr<GrpcCall> oldest;
  {
    absl::MutexLock lock(&mutex_);
    Call& own = all_[call];
    LeavePlace(&own);
    GrpcCall* const found = awaited_.Add(call, own.connection, MonotonicClock().NowUs());
    if (found != nullptr) oldest = found->shared_from_this();
  }
  if (oldest != nullptr) oldest->GiveUp(TooManyWait());
}

void GrpcCalls::MessageCame(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  awaited_.Remove(call);
}

bool GrpcCalls::TakePlace(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  Call& own = all_[call];
  size_t& of_connection = working_by_connection_[own.connection];
  const bool room =
      working_ < limits_.working_max && of_connection < limits_.connection_working_max;
  if (room) {
    ++working_;
    ++of_connection;
    own.working = true;
  } else if (of_connection == 0) {
    working_by_connection_.erase(own.connection);
  }
  return room;
}

std::vector<std::shared_ptr<GrpcCall>> GrpcCalls::All() const {
  std::vector<std::shared_ptr<GrpcCall>> all;
  all.reserve(all_.size());
  for (const auto& [call, own] : all_) all.push_back(call->shared_from_this());
  return all;
}

void GrpcCalls::Look(int64_t now_us, int64_t slow_us) {
  std::vector<std::shared_ptr<GrpcCall>> all, late, too_many;
  {
    absl::MutexLock lock(&mutex_);
    const AwaitedMessages::Overdue overdue = awaited_.TakeOverdue(now_us);
    for (GrpcCall* call : overdue.late) late.push_back(call->shared_from_this());
    for (GrpcCall* call : overdue.too_many) too_many.push_back(call->shared_from_this());
    all = All();
  }
  for (const std::shared_ptr<GrpcCall>& call : late) {
    call->GiveUp(absl::DeadlineExceededError(
        absl::StrCat("the message did not come within ",
                     absl::FormatDuration(absl::Microseconds(limits_.awaited.timeout_us)))));
  }
  for (const std::shared_ptr<GrpcCall>& call : too_many) call->GiveUp(TooManyWait());
  for (const std::shared_ptr<GrpcCall>& call : all) call->CheckSlow(now_us, slow_us);
}

void GrpcCalls::PumpAll() {
  std::vector<std::shared_ptr<GrpcCall>> all;
  {
    absl::MutexLock lock(&mutex_);
    all = All();
  }
  for (const std::shared_ptr<GrpcCall>& call : all) call->Pump();
}

void GrpcCalls::CloseAll(const absl::Status& status) {
  std::vector<std::shared_ptr<GrpcCall>> all;
  {
    absl::MutexLock lock(&mutex_);
    all = All();
  }
  for (const std::shared_ptr<GrpcCall>& call : all) call->Close(status);
}

void GrpcCalls::MarkDirty(std::shared_ptr<GrpcCall> call) {
  absl::MutexLock lock(&mutex_);
  dirty_.push_back(std::move(call));
}

void GrpcCalls::Wake() {
  std::vector<std::shared_ptr<GrpcCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls.swap(dirty_);
  }
  for (const std::shared_ptr<GrpcCall>& call : calls) call->Pump();
}

}  // namespace weft::router
