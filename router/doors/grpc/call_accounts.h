// The accounts of calls of all connections, by gRPC's key for them. Ends the connection whose
// account is overdrawn, and when all together owe too much the one that owes most, less what its
// calls were good for before; it never ends one that owes a few calls. What the calls of such
// connections hold counts until gRPC has let go of them, and more than that of others: while a
// flood is cleared away the next one gets less room. Owned by the call watch. Thread-safe; it never
// waits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/grpc/call_account.h"
#include "router/doors/grpc/gate.h"

namespace weft::router {

// What is known of a call when its headers have come.
struct CallArrival {
  // The same for all calls of a connection. Another connection may have it after this one's end.
  const void* key;
  // By which the connection was handed over; a number beyond all ways = not known.
  size_t way = std::numeric_limits<size_t>::max();
  // Until the call's deadline; a number beyond all times = none.
  int64_t timeout_us = std::numeric_limits<int64_t>::max();
};

struct CallEnd {
  int64_t began_us = 0;
  // By what it was good for. False when it gives back at its deadline, whatever its end, or never.
  bool gives_back = true;
  // Before it was answered, by its client or its deadline.
  bool cancelled = false;
  // It was let in to be worked on.
  bool worked = false;
};

struct CallDebtBounds {
  // What all connections owe together, and what one may owe whatever the others do.
  int64_t debt_max = 1536;
  int64_t connection_debt_min = 8;
};

class CallAccounts {
 public:
  class Account;
  using AccountRef = std::shared_ptr<Account>;

  CallAccounts(ConnectionGate* gate, const CallAllowance& allowance, const CallDebtBounds& bounds);
  ~CallAccounts();

  // A call has come. False when it must go no further.
  bool Take(const CallArrival& call, int64_t now_us);

  // A call has come to its handler, on this connection; null = it is not known. What it returns is
  // for the other three, which end with Ended.
  AccountRef Begin(const void* key, const std::shared_ptr<GrpcConnection>& connection,
                   int64_t now_us);
  // It is worked on from now on.
  void Worked(Account* account, bool gives_back);
  void Ended(Account* account, int64_t now_us, const CallEnd& end);

 private:
  AccountRef NewAccount(size_t way, int64_t now_us) const;
  // The account of the call's connection, with its name where that can be known.
  AccountRef Find(const CallArrival& call, int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It lives on for the calls that it has still.
  void Retire(Account* account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what has changed of what it owes to the sum of all.
  void Count(Account* account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who owes most; null where all owe little.
  AccountRef Heaviest(int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets those whose connections have not been heard of for so long that they are full again.
  void Sweep(int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ConnectionGate* const gate_;
  const CallAllowance allowance_;
  const CallDebtBounds bounds_;
  absl::Mutex mutex_;
  absl::flat_hash_map<const void*, AccountRef> accounts_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 1024;
  // The sum of what all owe, and when all may be looked at for the one that owes most.
  int64_t debt_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t look_at_us_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router
