#include "router/doors/grpc/call.h"

#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "router/doors/grpc/caller.h"
#include "router/doors/grpc/errors.h"
#include "router/errors.h"

namespace weft::router {
namespace {

int64_t NowUs() { return MonotonicClock().NowUs(); }

}  // namespace

GrpcCall::GrpcCall(const GrpcDoor& door, grpc::CallbackServerContext* context,
                   absl::string_view method)
    : door_(door),
      context_(context),
      start_us_(NowUs()),
      method_(method),
      client_(PeerOf(*context)),
      traceparent_(TraceparentOf(*context)) {}

GrpcReactor* GrpcCall::Start(const std::shared_ptr<GrpcCall>& call) {
  call->self_ = call;
  GrpcCallWatch::Origin origin = call->door_.watch->OriginOf(*call->context_);
  call->connection_ = std::move(origin.connection);
  if (call->connection_ != nullptr) call->connection_->Touch(call->start_us_);
  call->BeginMessage(origin.began_us, HeaderBytesOf(*call->context_));
  call->door_.watch->AddEarly(1);
  call->door_.calls->Add(call.get(), ConnectionKeyOf(*call->context_));
  call->Begin();
  return call.get();
}

void GrpcCall::Begin() {
  if (!traceparent_.empty()) context_->AddInitialMetadata("traceparent", traceparent_);
  const absl::Status wanted = Wanted();
  if (!wanted.ok()) return End(wanted);
  if (!door_.open) {
    const absl::StatusOr<Credentials> credentials = CredentialsOf(*context_);
    if (!credentials.ok()) return End(credentials.status());
    absl::StatusOr<TenantRef> tenant = door_.doors->Authenticate(*credentials);
    if (!tenant.ok()) return End(tenant.status());
    tenant_ = *std::move(tenant);
    if (connection_ != nullptr) connection_->Authenticate();
  }
  ReadMessage();
}

void GrpcCall::BeginMessage(int64_t began_us, uint64_t header_bytes) {
  EndMessage(0);
  if (connection_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  message_begin_ = connection_->BeginMessage(began_us, NowUs(), header_bytes);
}

void GrpcCall::EndMessage(uint64_t message_bytes) {
  absl::MutexLock lock(&mutex_);
  if (!message_begin_.has_value()) return;
  connection_->EndMessage(*message_begin_, message_bytes);
  message_begin_.reset();
}

absl::Status GrpcCall::Wanted() const {
  if (context_->IsCancelled()) return absl::CancelledError("cancelled by the client");
  if (connection_ != nullptr && connection_->ended()) {
    return absl::CancelledError("the connection was ended");
  }
  return absl::OkStatus();
}

void GrpcCall::ReadMessage() {
  {
    absl::MutexLock lock(&mutex_);
    placed_ = false;
    awaiting_ = true;
  }
  door_.calls->AwaitMessage(this);
  absl::MutexLock lock(&mutex_);
  // Under the lock: whoever ends the call lets go of what a read needs. gRPC answers on a thread of
  // its own.
  if (!ended_) StartRead(&message_);
}

void GrpcCall::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    awaiting_ = false;
    if (ended_) return message_.Clear();
  }
  door_.calls->MessageCame(this);
  if (ok) EndMessage(message_.Length());
  const absl::Status wanted = Wanted();
  if (!wanted.ok()) return Refuse(wanted);
  if (!ok) return OnMessagesEnd();
  if (!at_once()) {
    if (!door_.calls->TakePlace(this)) {
      return Refuse(
          OverloadedError("TOO_MANY_CALLS", "too many calls are under way", absl::Seconds(1)));
    }
    door_.watch->Worked(context_);
    absl::MutexLock lock(&mutex_);
    placed_ = true;
    worked_ = true;
    LeaveEarly();
    if (connection_ != nullptr && !door_.open) connection_->AddRunning(1, NowUs());
  }
  OnMessage();
}

void GrpcCall::OnMessagesEnd() {
  End(FieldError("request", "is missing: the client ended the call before a message was whole"));
}

void GrpcCall::LeaveEarly() {
  if (std::exchange(early_, false)) door_.watch->AddEarly(-1);
}

// -- Ends ----------------------------------------------------------------------------------------

bool GrpcCall::TakeEnd(grpc::StatusCode code, bool awaiting_only) {
  absl::MutexLock lock(&mutex_);
  if (ended_ || (awaiting_only && !awaiting_)) return false;
  ended_ = true;
  code_ = code;
  write_start_us_ = NowUs();
  LeaveEarly();
  if (!placed_) {
    untaken_ = true;
    door_.watch->untaken()->Add(ConnectionKeyOf(*context_));
  }
  return true;
}

void GrpcCall::GiveUp(const absl::Status& status) {
  const grpc::Status answer = ToGrpcStatus(status);
  if (TakeEnd(answer.error_code(), /*awaiting_only=*/true)) Finish(answer);
}

void GrpcCall::End(const absl::Status& status) {
  const grpc::Status answer = ToGrpcStatus(status);
  if (TakeEnd(answer.error_code(), /*awaiting_only=*/false)) Finish(answer);
}

void GrpcCall::Refuse(const absl::Status& status) {
  message_.Clear();
  End(status);
}

void GrpcCall::EndWith(const grpc::ByteBuffer* answer) {
  if (!TakeEnd(grpc::StatusCode::OK, /*awaiting_only=*/false)) return;
  StartWriteAndFinish(answer, grpc::WriteOptions(), grpc::Status::OK);
}

void GrpcCall::CheckSlow(int64_t now_us, int64_t timeout_us) {
  {
    absl::MutexLock lock(&mutex_);
    if (write_start_us_ == 0 || now_us - write_start_us_ < timeout_us) return;
    slow_ = true;
  }
  OnSlow();
  absl::MutexLock lock(&mutex_);
  if (!done_) context_->TryCancel();  // what is being written fails
}

void GrpcCall::OnDone() {
  door_.calls->Remove(this);
  EndMessage(0);
  AccessRecord record;
  grpc::StatusCode code;
  bool worked;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    code = code_;
    worked = worked_;
    LeaveEarly();
    if (untaken_) door_.watch->untaken()->Remove(ConnectionKeyOf(*context_));
    if (slow_) record.cause = CancelReasonName(CancelReason::kSlowReader);
  }
  const int64_t now_us = NowUs();
  if (connection_ != nullptr) connection_->Touch(now_us);
  if (door_.open) {
    self_.reset();  // may delete this
    return;
  }
  if (connection_ != nullptr && worked) connection_->AddRunning(-1, now_us);
  record.total_us = now_us - start_us_;
  door_.doors->probe().GrpcHandled(method_, GrpcCodeName(code), record.total_us);
  // Taken back before anything was done for it. Floods of calls that are reset at once are such: a
  // line for each would be work for the threads that have to end them.
  if (worked || !context_->IsCancelled()) {
    record.door = "grpc";
    record.route = method_;
    record.client = client_;
    record.traceparent = traceparent_;
    record.status = std::string(GrpcCodeName(code));
    if (tenant_ != nullptr) record.tenant = tenant_->name;
    Describe(&record);
    LogAccess(record, quiet() && code == grpc::StatusCode::OK);
  }
  self_.reset();  // may delete this
}

}  // namespace weft::router
