#include "router/shards/client_grpc.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/peer_tls.h"
#include "common/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "router/shards/connect_reason.h"

namespace weft::router {
namespace {

constexpr int kReconnectMinMs = 10;
constexpr int kReconnectMaxMs = 200;
// Time for connect and hand-shakes; a loaded machine needs some. While packets vanish each attempt
// takes as long, and the first one after they are let through again is what ends the silence.
constexpr int kConnectTimeoutMs = 1000;
// A connection whose peer is cut off is given up after both together, so that it is made anew as
// soon as the network is whole again and not when TCP next repeats itself.
constexpr int kKeepaliveMs = 2000;
constexpr int kKeepaliveTimeoutMs = 5000;
// A shard that comes back may have another address behind its name.
constexpr int kResolveMinMs = 500;
// For a name server that is slow; it is asked again meanwhile.
constexpr int kLookupTimeoutMs = 10'000;
// gRPC waits up to two minutes before it looks a name up again that was not known, as that of a
// pod that is yet to come: a new channel looks it up at once.
constexpr int64_t kLookAgainUs = 2'000'000;
// For the answer to why there is no connection, which the channel has at hand.
constexpr std::chrono::milliseconds kWhyTimeout(50);

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  // A lost step is a lost group, never a retry (invariant wire.order).
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kResolveMinMs);
  arguments.SetInt(GRPC_ARG_DNS_ARES_QUERY_TIMEOUT_MS, kLookupTimeoutMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kShardMessageBytesMax);
  arguments.SetMaxSendMessageSize(kShardMessageBytesMax);
  return arguments;
}

void ReleaseBytes(void* holder) {
  std::unique_ptr<SharedBytes> owned(static_cast<SharedBytes*>(holder));
}

// A buffer that refers to `bytes` and keeps them alive: all ranks send the same memory.
grpc::ByteBuffer ReferTo(const SharedBytes& bytes) {
  auto holder = std::make_unique<SharedBytes>(bytes);
  // gRPC reads the slice only; its C interface knows no const.
  void* data = const_cast<char*>(bytes->data());
  grpc::Slice slice(data, bytes->size(), &ReleaseBytes, holder.release());
  return grpc::ByteBuffer(&slice, 1);
}

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (!buffer.Dump(&slices).ok()) return out;
  out.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

class GrpcShardClient : public ShardClient {
 public:
  GrpcShardClient(Rank rank, const std::string& address, std::unique_ptr<PeerTlsSource> tls,
                  ShardReplySink sink)
      : rank_(rank),
        address_(address),
        tls_(std::move(tls)),
        sink_(std::move(sink)),
        paths_(CallPaths()),
        channel_(MakeChannel()) {}

  ~GrpcShardClient() override {
    absl::MutexLock lock(&mutex_);
    for (InFlight* call : calls_) {
      call->context.TryCancel();
      call->why_context.TryCancel();
    }
    mutex_.Await(absl::Condition(
        +[](GrpcShardClient* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
          return self->calls_.empty() && self->delivering_ == 0;
        },
        this));
  }

  void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t timeout_us,
            bool wait_for_ready) override {
    auto in_flight = std::make_unique<InFlight>();
    in_flight->reply.rank = rank_;
    in_flight->reply.call = call;
    in_flight->reply.tag = tag;
    in_flight->start_us = MonotonicClock().NowUs();
    in_flight->request = ReferTo(request);
    in_flight->context.set_deadline(std::chrono::system_clock::now() +
                                    std::chrono::microseconds(timeout_us));
    in_flight->context.set_wait_for_ready(wait_for_ready);
    in_flight->waits = wait_for_ready;
    InFlight* raw = in_flight.release();  // owned by the completion from here on
    std::shared_ptr<grpc::Channel> replaced;
    {
      absl::MutexLock lock(&mutex_);
      calls_.insert(raw);
      if (wait_for_ready) replaced = LookAgain(raw->start_us);
    }
    grpc::GenericStub(channel()).UnaryCall(
        &raw->context, paths_[static_cast<size_t>(call)], grpc::StubOptions(), &raw->request,
        &raw->response, [this, raw](grpc::Status status) { Complete(raw, status); });
  }

  bool Connected() override {
    return channel()->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  }

  bool is_local() const override { return false; }

 private:
  struct InFlight {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    ShardReply reply;
    int64_t start_us = 0;
    // Waits for a connection.
    bool waits = false;
    // Of the question why there is none.
    grpc::ClientContext why_context;
    grpc::ByteBuffer why_request;
    grpc::ByteBuffer why_response;
  };

  std::shared_ptr<grpc::Channel> MakeChannel() const {
    PeerTls tls = tls_->tls();
    grpc::SslCredentialsOptions options;
    options.pem_cert_chain = std::move(tls.cert_pem);
    options.pem_private_key = std::move(tls.key_pem);
    options.pem_root_certs = std::move(tls.ca_pem);
    return grpc::CreateCustomChannel(address_, grpc::SslCredentials(options), ChannelArguments());
  }

  std::shared_ptr<grpc::Channel> channel() {
    absl::MutexLock lock(&mutex_);
    return channel_;
  }

  // Replaces a channel without a connection that has not found the shard's name for a while, or
  // whose certificates are renewed; returns it, so that it ends outside the lock. Its calls end as
  // they would have.
  std::shared_ptr<grpc::Channel> LookAgain(int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) return nullptr;
    const bool lost_name = IsLookupFailure(why_) && now_us >= channel_made_us_ + kLookAgainUs;
    if (!tls_->Refresh() && !lost_name) return nullptr;
    channel_made_us_ = now_us;
    return std::exchange(channel_, MakeChannel());
  }

  // On a gRPC thread.
  void Complete(InFlight* raw, const grpc::Status& status) {
    std::unique_ptr<InFlight> in_flight(raw);
    ShardReply& reply = in_flight->reply;
    reply.status = ToStatus(status);
    if (status.ok()) reply.body = Flatten(in_flight->response);
    reply.call_us = MonotonicClock().NowUs() - in_flight->start_us;
    if (absl::IsDeadlineExceeded(reply.status)) {
      if (in_flight->waits && !Connected()) return AskWhy(in_flight.release());
      reply.status = absl::DeadlineExceededError("no answer in time");
    }
    Deliver(std::move(in_flight));
  }

  // Hands the reply over and forgets the call. Its contexts own the channel as well, and the last
  // owner's end joins gRPC's threads, of which this is one: so they go before this client, which
  // the destructor waits for, has nothing more to do.
  void Deliver(std::unique_ptr<InFlight> in_flight) {
    {
      absl::MutexLock lock(&mutex_);
      calls_.erase(in_flight.get());
      ++delivering_;
      if (in_flight->reply.status.ok()) why_.clear();
    }
    sink_(std::move(in_flight->reply));
    in_flight.reset();
    absl::MutexLock lock(&mutex_);
    --delivering_;
  }

  // A call that waits for a connection hears of its own deadline alone. One that does not wait is
  // refused with what the last attempt to connect broke of: an Info, which changes nothing if there
  // is a connection by then. The reply of `raw` goes out with its words.
  void AskWhy(InFlight* raw) {
    raw->why_context.set_deadline(std::chrono::system_clock::now() + kWhyTimeout);
    raw->why_context.set_wait_for_ready(false);
    raw->why_request = ReferTo(std::make_shared<const std::string>());
    grpc::GenericStub(channel()).UnaryCall(
        &raw->why_context, paths_[static_cast<size_t>(ShardCall::kInfo)], grpc::StubOptions(),
        &raw->why_request, &raw->why_response,
        [this, raw](grpc::Status why) { CompleteWithWhy(raw, why); });
  }

  // On a gRPC thread.
  void CompleteWithWhy(InFlight* raw, const grpc::Status& why) {
    std::unique_ptr<InFlight> in_flight(raw);
    ShardReply& reply = in_flight->reply;
    {
      absl::MutexLock lock(&mutex_);
      if (why.ok()) why_.clear();
      if (why.error_code() == grpc::StatusCode::UNAVAILABLE) why_ = why.error_message();
      // While an attempt is under way there is no answer; the one before it has the same.
      reply.status = absl::DeadlineExceededError(
          why.ok() ? "no connection until now"
                   : NoConnection(ShardRoute::kMutualTls, address_, why_));
    }
    Deliver(std::move(in_flight));
  }

  const Rank rank_;
  const std::string address_;
  const std::unique_ptr<PeerTlsSource> tls_;
  const ShardReplySink sink_;
  const std::vector<std::string> paths_;
  absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  int64_t channel_made_us_ ABSL_GUARDED_BY(mutex_) = MonotonicClock().NowUs();
  absl::flat_hash_set<InFlight*> calls_ ABSL_GUARDED_BY(mutex_);
  // Calls whose replies are being handed over.
  int delivering_ ABSL_GUARDED_BY(mutex_) = 0;
  // What the last attempt to connect broke of; empty once a call was answered.
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardClient>> MakeGrpcShardClient(Rank rank,
                                                                 const std::string& address,
                                                                 const ShardTls& tls,
                                                                 ShardReplySink sink) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<PeerTlsSource> source,
                        PeerTlsSource::Open("--shard-tls", {tls.cert, tls.key, tls.ca}));
  return std::make_unique<GrpcShardClient>(rank, address, std::move(source), std::move(sink));
}

}  // namespace weft::router
