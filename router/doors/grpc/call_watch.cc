#include "router/doors/grpc/call_watch.h"

#include <utility>

#include "common/clock.h"
#include "router/doors/grpc/caller.h"

namespace weft::router {
namespace {

int64_t NowUs() { return MonotonicClock().NowUs(); }

}  // namespace

struct GrpcCallWatch::Context : public grpc::CallbackServerContext {
  const int64_t began_us = NowUs();
  bool at_handler = false;
  bool worked = false;
  // As CallEnd has it.
  bool gives_back = true;
  CallAccounts::AccountRef account;
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
    CallEnd end;
    end.began_us = own->began_us;
    end.gives_back = own->gives_back;
    end.cancelled = own->IsCancelled();
    end.worked = own->worked;
    if (own->account != nullptr) watch_->accounts_.Ended(own->account.get(), NowUs(), end);
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
                             const CallBounds& bounds)
    : gate_(gate),
      early_max_(bounds.early_max),
      // A call that has waited for its handler seems to have less time than it had.
      short_deadline_us_(allowance.early_us / 2),
      untaken_(bounds.untaken_max),
      accounts_(gate, allowance, bounds.debts) {}

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

bool GrpcCallWatch::Arrived(const CallArrival& call, int64_t now_us) {
  return accounts_.Take(call, now_us) && early_.load(std::memory_order_relaxed) < early_max_ &&
         untaken_.MayCall(call.key);
}

void GrpcCallWatch::Begin(grpc::CallbackServerContext* context) {
  const std::shared_ptr<GrpcConnection> connection = gate_->Find(context->peer());
  if (connection != nullptr) gate_->Identify(connection.get());
  auto* const own = dynamic_cast<Context*>(context);
  if (own == nullptr || std::exchange(own->at_handler, true)) return;
  AddEarly(-1);
  own->connection = connection;
  own->gives_back = DeadlineUsOf(*own) >= own->began_us + short_deadline_us_;
  own->account = accounts_.Begin(ConnectionKeyOf(*own), connection, NowUs());
}

void GrpcCallWatch::Worked(grpc::CallbackServerContext* context) {
  auto* const own = dynamic_cast<Context*>(context);
  if (own == nullptr || std::exchange(own->worked, true)) return;
  if (own->account != nullptr) accounts_.Worked(own->account.get(), own->gives_back);
}

GrpcCallWatch::Origin GrpcCallWatch::OriginOf(const grpc::CallbackServerContext& context) const {
  const auto* const own = dynamic_cast<const Context*>(&context);
  if (own != nullptr) return {own->connection, own->began_us};
  return {gate_->Find(context.peer()), NowUs()};
}

}  // namespace weft::router
