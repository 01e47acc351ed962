#include "router/doors/grpc/call_accounts.h"

#include <algorithm>
#include <utility>

namespace weft::router {
namespace {

// Between two looks at all accounts that found nobody to end.
constexpr int64_t kLookPauseUs = 1'000;
// What a call of a flood that was ended counts for, which gRPC must still let go of: as long as
// there are many, who waits for an answer waits for these, and floods that come back get less room.
constexpr int64_t kGoneWeight = 8;

}  // namespace

// Under the lock of the accounts.
class CallAccounts::Account {
 public:
  Account(const CallAllowance& allowance, int64_t now_us, size_t way)
      : calls(allowance, now_us), way(way) {}

  // Its connection has closed, or was ended.
  bool gone() const {
    if (retired || flood || !named) return retired || flood;
    const std::shared_ptr<GrpcConnection> open = connection.lock();
    return open == nullptr || open->ended() || open->closed();
  }

  CallAccount calls;
  // By which its connection was handed over.
  const size_t way;
  std::weak_ptr<GrpcConnection> connection;
  bool named = false;
  // Only a handler may name it.
  bool by_handler = false;
  // Its connection was ended for its calls.
  bool flood = false;
  // Its key is another's.
  bool retired = false;
  // What it owed when that was last added to the sum of all.
  int64_t counted = 0;
};

CallAccounts::CallAccounts(ConnectionGate* gate, const CallAllowance& allowance,
                           const CallDebtBounds& bounds)
    : gate_(gate), allowance_(allowance), bounds_(bounds) {}

CallAccounts::~CallAccounts() = default;

bool CallAccounts::Take(const CallArrival& call, int64_t now_us) {
  std::shared_ptr<GrpcConnection> ends;
  bool good = false;
  {
    absl::MutexLock lock(&mutex_);
    Sweep(now_us);
    const AccountRef account = Find(call, now_us);
    if (account->gone()) return false;
    CallAccount& calls = account->calls;
    calls.Renew(now_us);
    // Who is not known cannot be ended: a few calls, until one of them comes to its handler.
    const bool few = calls.debt() < bounds_.connection_debt_min;
    if (!account->named && !few && call.way < ConnectionGate::kWays) return false;
    good = calls.Take();
    if (good && call.timeout_us < allowance_.early_us) {
      calls.GiveBackAt(now_us + std::max(call.timeout_us, allowance_.deadline_min_us));
    }
    Count(account.get());
    AccountRef victim;
    if (!good) {
      victim = account;
    } else if (debt_ > bounds_.debt_max) {
      if (now_us >= look_at_us_) victim = Heaviest(now_us);
      if (victim == nullptr) look_at_us_ = std::max(look_at_us_, now_us + kLookPauseUs);
      good = victim != account && (few || debt_ <= 2 * bounds_.debt_max);
    }
    if (victim != nullptr) {
      ends = victim->connection.lock();
      victim->flood = ends != nullptr;
      Count(victim.get());
    }
  }
  if (ends != nullptr) gate_->EndFlood(ends);
  return good;
}

CallAccounts::AccountRef CallAccounts::NewAccount(size_t way, int64_t now_us) const {
  return std::make_shared<Account>(allowance_, now_us, way);
}

CallAccounts::AccountRef CallAccounts::Find(const CallArrival& call, int64_t now_us) {
  AccountRef& account = accounts_[call.key];
  if (account == nullptr) account = NewAccount(call.way, now_us);
  if (account->gone()) {
    // This is another connection with the same key, or a call that was read before. Such come by
    // the way of the one that is gone: whose it is only a handler can tell then.
    const bool same_way = account->way == call.way;
    Retire(account.get());
    account = NewAccount(call.way, now_us);
    account->by_handler = same_way;
  }
  if (account->named || account->by_handler) return account;
  const std::shared_ptr<GrpcConnection> found = gate_->Leave(call.way);
  account->named = found != nullptr;
  account->connection = found;
  return account;
}

void CallAccounts::Retire(Account* account) {
  account->retired = true;
  Count(account);
}

void CallAccounts::Count(Account* account) {
  const int64_t held = account->calls.held() * (account->flood ? kGoneWeight : 1);
  const int64_t owes = account->gone() ? held : account->calls.debt();
  debt_ += owes - std::exchange(account->counted, owes);
}

CallAccounts::AccountRef CallAccounts::Heaviest(int64_t now_us) {
  AccountRef heaviest;
  int64_t most = 0;
  // What it was good for saves nobody when all together owe far too much.
  const bool anybody = debt_ > 2 * bounds_.debt_max;
  for (const auto& [key, account] : accounts_) {
    account->calls.Renew(now_us);
    Count(account.get());
    if (!account->named || account->counted <= bounds_.connection_debt_min) continue;
    if (account->gone()) continue;
    const int64_t weight = account->counted - (anybody ? 0 : account->calls.merit());
    if (weight <= most) continue;
    most = weight;
    heaviest = account;
  }
  return debt_ > bounds_.debt_max ? heaviest : nullptr;
}

CallAccounts::AccountRef CallAccounts::Begin(const void* key,
                                             const std::shared_ptr<GrpcConnection>& connection,
                                             int64_t now_us) {
  absl::MutexLock lock(&mutex_);
  AccountRef& account = accounts_[key];
  if (account == nullptr) account = NewAccount(std::numeric_limits<size_t>::max(), now_us);
  if (connection != nullptr && account->connection.lock() != connection) {
    // What was spent was another's.
    if (account->named) {
      Retire(account.get());
      account = NewAccount(account->way, now_us);
    }
    account->named = true;
    account->connection = connection;
  }
  account->calls.AddWaiting(1);
  Count(account.get());
  return account;
}

void CallAccounts::Worked(Account* account, bool gives_back) {
  absl::MutexLock lock(&mutex_);
  account->calls.AddWaiting(-1);
  account->calls.AddWorking(1);
  if (gives_back) account->calls.GiveBack();
  account->calls.AddMerit();
  Count(account);
}

void CallAccounts::Ended(Account* account, int64_t now_us, const CallEnd& end) {
  const bool early = end.cancelled && now_us < end.began_us + allowance_.early_us;
  absl::MutexLock lock(&mutex_);
  CallAccount& calls = account->calls;
  if (end.worked) {
    calls.AddWorking(-1);
  } else {
    calls.AddWaiting(-1);
  }
  if (early) {
    calls.TakeMerit();
    if (end.worked && end.gives_back) calls.TakeLate();
  } else if (!end.worked && end.gives_back) {
    calls.AddMerit();
    calls.GiveBack();
  }
  Count(account);
}

void CallAccounts::Sweep(int64_t now_us) {
  if (accounts_.size() < sweep_at_) return;
  const int64_t old_us =
      now_us - allowance_.calls_burst * 1'000'000 / std::max<int64_t>(1, allowance_.calls_per_s);
  for (auto it = accounts_.begin(); it != accounts_.end();) {
    Account* const account = it->second.get();
    if (account->calls.at_us() < old_us && account->calls.held() == 0) {
      debt_ -= account->counted;
      accounts_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max<size_t>(1024, 2 * accounts_.size());
}

}  // namespace weft::router
