// What connections owe for their calls, and who is ended for it: real sockets, gRPC left out.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/doors/grpc/call_accounts.h"
#include "router/doors/grpc/credentials.h"
#include "router/doors/grpc/gate.h"
#include "tests/router/doors/raw_client.h"

namespace weft::router {
namespace {

CallAllowance Allowance(int64_t burst, int64_t per_s) {
  CallAllowance allowance;
  allowance.calls_burst = burst;
  allowance.calls_per_s = per_s;
  return allowance;
}

// A gate whose connections nobody reads. Each has a key of its own.
struct Clients {
  Clients() : gate(ConnectionGate::Listen("127.0.0.1:0", {}).value()) {
    REQUIRE(gate->Start([this](int /*listener_fd*/, int fd, size_t way) {
                  absl::MutexLock lock(&mutex);
                  held.push_back(fd);
                  ways.push_back(way);
                })
                .ok());
  }
  ~Clients() {
    gate->Stop();
    for (const int fd : held) close(fd);
  }
  void Add() {
    clients.push_back(std::make_unique<RawClient>(static_cast<uint16_t>(gate->port())));
    absl::MutexLock lock(&mutex);
    const auto came = [&] {
      mutex.AssertHeld();
      return held.size() == clients.size();
    };
    REQUIRE(mutex.AwaitWithTimeout(absl::Condition(&came), absl::Seconds(60)));
  }
  CallArrival Call(size_t i) {
    absl::MutexLock lock(&mutex);
    return {&keys[i], ways[i]};
  }
  bool Ended(size_t i) { return clients[i]->WaitReadable(0); }

  std::unique_ptr<ConnectionGate> gate;
  std::vector<std::unique_ptr<RawClient>> clients;
  const int keys[300] = {};
  absl::Mutex mutex;
  std::vector<int> held ABSL_GUARDED_BY(mutex);
  std::vector<size_t> ways ABSL_GUARDED_BY(mutex);
};

TEST_CASE("The allowance of calls comes back with their ends and with time", "[router][grpc]") {
  Clients none;
  const CallAllowance allowance = Allowance(2, 1);
  CallAccounts accounts(none.gate.get(), allowance, {});
  const void* const patient = &none.keys[0];
  const void* const hasty = &none.keys[1];
  for (int i = 0; i < 100; ++i) {
    CHECK(accounts.Take({patient}, 0));
    accounts.Ended(accounts.Begin(patient, nullptr, 0).get(), 0, {});
    // Cancelled, but late.
    CHECK(accounts.Take({patient}, 0));
    CallEnd late;
    late.cancelled = true;
    accounts.Ended(accounts.Begin(patient, nullptr, 0).get(), allowance.early_us, late);
  }
  // Worked on or not, it is the same.
  const auto reset = [&](int64_t now_us, bool worked) {
    const bool good = accounts.Take({hasty}, now_us);
    if (!good) return false;
    const CallAccounts::AccountRef account = accounts.Begin(hasty, nullptr, now_us);
    if (worked) accounts.Worked(account.get(), true);
    CallEnd end;
    end.began_us = now_us;
    end.cancelled = true;
    end.worked = worked;
    accounts.Ended(account.get(), now_us, end);
    return true;
  };
  CHECK(reset(0, false));
  CHECK(reset(0, true));
  CHECK(reset(1'000'000, false));
  CHECK_FALSE(reset(1'500'000, true));
}

TEST_CASE("Time pays for no call that waits for its client", "[router][grpc]") {
  Clients none;
  CallAccounts accounts(none.gate.get(), Allowance(2, 1), {});
  const void* const key = &none.keys[0];
  std::vector<CallAccounts::AccountRef> open;
  for (int i = 0; i < 2; ++i) {
    CHECK(accounts.Take({key}, 0));
    open.push_back(accounts.Begin(key, nullptr, 0));
  }
  CHECK_FALSE(accounts.Take({key}, 60'000'000));
  accounts.Ended(open[0].get(), 60'000'000, {});
  CHECK(accounts.Take({key}, 60'000'000));
}

TEST_CASE("A call with a short deadline gives back then, whatever becomes of it",
          "[router][grpc]") {
  Clients none;
  CallAccounts accounts(none.gate.get(), Allowance(2, 0), {});
  const void* const key = &none.keys[0];
  constexpr size_t kNoWay = ConnectionGate::kWays;
  // gRPC drops many of them before they come to a handler.
  const auto call = [&](int64_t now_us, int64_t timeout_us) {
    return accounts.Take({key, kNoWay, timeout_us}, now_us);
  };
  for (int64_t now_us = 0; now_us < 100'000'000; now_us += 100'000) {
    CHECK(call(now_us, 4'000));
    CHECK(call(now_us, 80'000));
  }
  // Whoever sets deadlines that have passed at once gets no more for it.
  const int64_t start_us = 200'000'000;
  CHECK(call(start_us, 0));
  CHECK(call(start_us + 1'000, 0));
  CHECK_FALSE(call(start_us + 2'000, 0));
  CHECK(call(start_us + 50'000, 0));
  // A deadline that is far away is none.
  CHECK(call(start_us + 60'000, 10'000'000));
  CHECK(call(start_us + 100'000, 10'000'000));
  CHECK_FALSE(call(start_us + 20'000'000, 10'000'000));
}

TEST_CASE("When all connections owe too much the one that owes most is ended", "[router][grpc]") {
  Clients clients;
  CallDebtBounds bounds;
  bounds.debt_max = 40;
  CallAccounts accounts(clients.gate.get(), Allowance(320, 0), bounds);
  for (int i = 0; i < 4; ++i) clients.Add();
  const int64_t now_us = MonotonicClock().NowUs();
  const auto take = [&](size_t i, int count) {
    for (int k = 0; k < count; ++k) CHECK(accounts.Take(clients.Call(i), now_us));
  };
  take(0, 8);
  take(1, 20);
  take(2, 12);
  CHECK_FALSE(clients.Ended(1));
  // A newcomer's first call is taken, and pushes out the heaviest.
  take(3, 1);
  CHECK(clients.clients[1]->ReadToEnd().has_value());
  CHECK(clients.gate->stats().floods == 1);
  take(3, 5);
  for (const size_t i : {0, 2, 3}) CHECK_FALSE(clients.Ended(i));
}

TEST_CASE("Who owes a few calls is never ended, however many there are", "[router][grpc]") {
  Clients clients;
  CallDebtBounds bounds;
  bounds.debt_max = 40;
  CallAccounts accounts(clients.gate.get(), Allowance(320, 0), bounds);
  const int64_t now_us = MonotonicClock().NowUs();
  for (size_t i = 0; i < 40; ++i) {
    clients.Add();
    for (int k = 0; k < 4; ++k) CHECK(accounts.Take(clients.Call(i), now_us + 10'000));
  }
  CHECK(clients.gate->stats().floods == 0);
}

TEST_CASE("Calls that are worked on are no debt, and earlier ones speak for a client",
          "[router][grpc]") {
  Clients clients;
  CallDebtBounds bounds;
  bounds.debt_max = 40;
  CallAccounts accounts(clients.gate.get(), Allowance(320, 0), bounds);
  for (int i = 0; i < 2; ++i) clients.Add();
  const int64_t now_us = MonotonicClock().NowUs();
  for (int k = 0; k < 200; ++k) {
    CHECK(accounts.Take(clients.Call(0), now_us));
    accounts.Worked(accounts.Begin(clients.Call(0).key, nullptr, now_us).get(), true);
  }
  // It begins thirty more when another has begun eleven for nothing.
  for (int k = 0; k < 30; ++k) CHECK(accounts.Take(clients.Call(0), now_us));
  for (int k = 0; k < 10; ++k) CHECK(accounts.Take(clients.Call(1), now_us));
  CHECK_FALSE(accounts.Take(clients.Call(1), now_us));
  CHECK(clients.clients[1]->ReadToEnd().has_value());
  CHECK_FALSE(clients.Ended(0));
}

TEST_CASE("Calls of an ended connection count until gRPC has let go of them", "[router][grpc]") {
  Clients clients;
  CallDebtBounds bounds;
  bounds.debt_max = 100;
  CallAccounts accounts(clients.gate.get(), Allowance(20, 0), bounds);
  for (int i = 0; i < 2; ++i) clients.Add();
  const int64_t now_us = MonotonicClock().NowUs();
  std::vector<CallAccounts::AccountRef> open;
  for (int k = 0; k < 20; ++k) {
    CHECK(accounts.Take(clients.Call(0), now_us));
    open.push_back(accounts.Begin(clients.Call(0).key, nullptr, now_us));
  }
  CHECK_FALSE(accounts.Take(clients.Call(0), now_us));  // overdrawn, and ended
  CHECK(clients.clients[0]->ReadToEnd().has_value());
  // These 20 fill the room of all: the next flood is ended at its ninth call.
  const auto end_all = [&] {
    CallEnd end;
    end.began_us = now_us;
    end.cancelled = true;
    for (const CallAccounts::AccountRef& one : open) accounts.Ended(one.get(), now_us, end);
  };
  const bool let_go = GENERATE(false, true);
  if (let_go) end_all();
  // Looked at again once a millisecond.
  for (int k = 0; k < 8; ++k) CHECK(accounts.Take(clients.Call(1), now_us + 2'000 * k));
  CHECK(accounts.Take(clients.Call(1), now_us + 20'000) == let_go);
  if (!let_go) end_all();
}

TEST_CASE("A call of a connection whose way another has taken is nobody's", "[router][grpc]") {
  Clients clients;
  CallDebtBounds bounds;
  CallAccounts accounts(clients.gate.get(), Allowance(20, 0), bounds);
  clients.Add();
  const int64_t now_us = MonotonicClock().NowUs();
  for (int k = 0; k < 20; ++k) CHECK(accounts.Take(clients.Call(0), now_us));
  CHECK_FALSE(accounts.Take(clients.Call(0), now_us));
  CHECK(clients.clients[0]->ReadToEnd().has_value());
  clients.Add();
  // What gRPC had read of the first one takes a few calls and no name.
  for (int k = 0; k < 100; ++k) CHECK(accounts.Take(clients.Call(0), now_us) == (k < 8));
  for (int k = 0; k < 20; ++k) CHECK(accounts.Take(clients.Call(1), now_us));
  CHECK_FALSE(clients.Ended(1));
}

TEST_CASE("A way is one new connection's at a time", "[router][grpc]") {
  Clients clients;
  for (size_t i = 0; i < ConnectionGate::kWays; ++i) clients.Add();
  std::vector<std::shared_ptr<GrpcConnection>> found;
  for (size_t i = 0; i < ConnectionGate::kWays; ++i) {
    found.push_back(clients.gate->Leave(clients.Call(i).way));
    REQUIRE(found.back() != nullptr);
    for (size_t k = 0; k < i; ++k) CHECK(found[k] != found[i]);
    CHECK(clients.gate->Leave(clients.Call(i).way) == nullptr);
  }
}

TEST_CASE("A call's time-out is read as gRPC writes it", "[router][grpc]") {
  CHECK(ParseGrpcTimeoutUs("1n") == 0);
  CHECK(ParseGrpcTimeoutUs("1500n") == 1);
  CHECK(ParseGrpcTimeoutUs("20u") == 20);
  CHECK(ParseGrpcTimeoutUs("20m") == 20'000);
  CHECK(ParseGrpcTimeoutUs("3S") == 3'000'000);
  CHECK(ParseGrpcTimeoutUs("2M") == 120'000'000);
  CHECK(ParseGrpcTimeoutUs("99999999H") == 359'999'996'400'000'000);
  for (const char* bad : {"", "1", "S", "1s", "-1S", "1.5S", " 1S", "123456789S"}) {
    CHECK(ParseGrpcTimeoutUs(bad) == std::numeric_limits<int64_t>::max());
  }
}

}  // namespace
}  // namespace weft::router
