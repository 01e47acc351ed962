#include "router/doors/grpc/call_watch.h"

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "router/doors/grpc/caller.h"

namespace weft::router {
namespace {

// Allowances are kept in millionths, so that time counts to the microsecond.
constexpr int64_t kOne = 1'000'000;

// HEADERS with a compressed header block, and RST_STREAM.
constexpr uint64_t kCallBytesMin = 9 + 4 + 13;

int64_t NowUs() { return MonotonicClock().NowUs(); }

}  // namespace

struct GrpcCallWatch::Context : public grpc::CallbackServerContext {
  const int64_t began_us = NowUs();
  bool at_handler = false;
  std::shared_ptr<GrpcConnection> connection;
};

// Makes the contexts of calls when they are matched with their handlers, and takes them back when
// they have ended.
class GrpcCallWatch::Allocator : public grpc::ContextAllocator {
 public:
  explicit Allocator(GrpcCallWatch* watch) : watch_(watch) {}

  grpc::CallbackServerContext* NewCallbackServerContext() override {
    auto context = std::make_unique<Context>();
    watch_->AddEarly(1);
    absl::MutexLock lock(&watch_->mutex_);
    watch_->contexts_.insert(context.get());
    return context.release();
  }
  // That class is final: gRPC makes it. Calls of methods that do not exist give nothing back.
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override { return nullptr; }

  void Release(grpc::CallbackServerContext* context) override {
    const std::unique_ptr<Context> own(dynamic_cast<Context*>(context));
    if (own == nullptr) return;  // a generic one comes here too; gRPC frees it
    {
      absl::MutexLock lock(&watch_->mutex_);
      watch_->contexts_.erase(context);
    }
    if (!own->at_handler) watch_->AddEarly(-1);
    End end;
    end.began_us = own->began_us;
    end.deadline_us = DeadlineUsOf(*own);
    end.cancelled = own->IsCancelled();
    watch_->Ended(ConnectionKeyOf(*own), NowUs(), end);
  }
  void Release(grpc::GenericCallbackServerContext* /*context*/) override {}

 private:
  GrpcCallWatch* const watch_;
};

// Sees every call before its handler.
class GrpcCallWatch::Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(GrpcCallWatch* watch) : watch_(watch) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    auto* context = dynamic_cast<grpc::CallbackServerContext*>(info->server_context());
    if (context != nullptr) watch_->Begin(context);
    return nullptr;
  }

 private:
  GrpcCallWatch* const watch_;
};

GrpcCallWatch::GrpcCallWatch(ConnectionGate* gate, const CallAllowance& allowance,
                             int64_t early_max, size_t untaken_max)
    : gate_(gate), allowance_(allowance), early_max_(early_max), untaken_(untaken_max) {}

GrpcCallWatch::~GrpcCallWatch() {
  absl::MutexLock lock(&mutex_);
  for (grpc::CallbackServerContext* context : contexts_) {
    const std::unique_ptr<grpc::CallbackServerContext> own(context);
  }
}

std::unique_ptr<grpc::ContextAllocator> GrpcCallWatch::MakeAllocator() {
  return std::make_unique<Allocator>(this);
}

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
GrpcCallWatch::MakeInterceptors() {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(this));
  return factories;
}

bool GrpcCallWatch::Arrived(const void* key, int64_t now_us) {
  std::shared_ptr<GrpcConnection> connection;
  int64_t since_us = 0;
  {
    absl::MutexLock lock(&mutex_);
    Sweep(now_us);
    const int64_t full = allowance_.calls_burst * kOne;
    const Account fresh{full, now_us, now_us, {}, {}, false};
    Account& account = accounts_.try_emplace(key, fresh).first->second;
    connection = account.connection.lock();
    // Its connection has closed: this is another with the same key.
    if (account.named && connection == nullptr) account = fresh;
    const int64_t passed_us = std::clamp<int64_t>(now_us - account.at_us, 0, 3600 * kOne);
    while (!account.later_us.empty() && *account.later_us.begin() <= now_us) {
      account.later_us.erase(account.later_us.begin());
      account.left += kOne;
    }
    account.left = std::min(account.left + passed_us * allowance_.calls_per_s, full);
    account.at_us = now_us;
    if (account.left >= kOne) {
      account.left -= kOne;
      return early_.load(std::memory_order_relaxed) < early_max_ && untaken_.MayCall(key);
    }
    if (connection != nullptr && connection->ended()) return false;
    since_us = account.since_us;
  }
  if (connection != nullptr) {
    gate_->EndFlood(std::move(connection));
  } else if (gate_->EndNewFlood(since_us, allowance_.calls_burst * kCallBytesMin)) {
    // It may have been another that floods too, or the key may be a new connection's by now: a few
    // calls more, until a handler names this one or the next guess is right.
    absl::MutexLock lock(&mutex_);
    const auto found = accounts_.find(key);
    if (found != accounts_.end()) found->second.left = allowance_.calls_burst * kOne / 8;
  }
  return false;
}

void GrpcCallWatch::Ended(const void* key, int64_t now_us, const End& end) {
  const int64_t early_until_us = end.began_us + allowance_.early_us;
  const bool early = end.cancelled && now_us < early_until_us;
  if (early && end.deadline_us >= early_until_us) return;
  absl::MutexLock lock(&mutex_);
  const auto found = accounts_.find(key);
  if (found == accounts_.end()) return;
  const int64_t later_us = std::max(end.deadline_us, end.began_us + allowance_.deadline_min_us);
  if (early && later_us > now_us) {
    std::multiset<int64_t>& all = found->second.later_us;
    if (static_cast<int64_t>(all.size()) < allowance_.calls_burst) all.insert(later_us);
    return;
  }
  found->second.left = std::min(found->second.left + kOne, allowance_.calls_burst * kOne);
}

void GrpcCallWatch::Begin(grpc::CallbackServerContext* context) {
  auto* const own = dynamic_cast<Context*>(context);
  if (own != nullptr && !std::exchange(own->at_handler, true)) AddEarly(-1);
  const std::shared_ptr<GrpcConnection> connection = gate_->Find(context->peer());
  if (connection == nullptr) return;
  gate_->Identify(connection.get());
  if (own != nullptr) own->connection = connection;
  absl::MutexLock lock(&mutex_);
  const auto found = accounts_.find(ConnectionKeyOf(*context));
  if (found == accounts_.end()) return;
  Account& account = found->second;
  if (account.connection.lock() != connection &&
      (account.named || account.since_us < connection->accepted_us())) {
    account.left = allowance_.calls_burst * kOne;  // what was spent was another's
  }
  account.connection = connection;
  account.named = true;
}

void GrpcCallWatch::Sweep(int64_t now_us) {
  if (accounts_.size() < sweep_at_) return;
  const int64_t old_us =
      now_us - allowance_.calls_burst * kOne / std::max<int64_t>(1, allowance_.calls_per_s);
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    const bool old = it->second.at_us < old_us;
    if (old) {
      accounts_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max<size_t>(1024, 2 * accounts_.size());
}

GrpcCallWatch::Origin GrpcCallWatch::OriginOf(const grpc::CallbackServerContext& context) const {
  const auto* const own = dynamic_cast<const Context*>(&context);
  if (own != nullptr) return {own->connection, own->began_us};
  return {gate_->Find(context.peer()), NowUs()};
}

}  // namespace weft::router
