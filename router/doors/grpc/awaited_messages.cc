#include "router/doors/grpc/awaited_messages.h"

#include <algorithm>

namespace weft::router {

GrpcCall* AwaitedMessages::Add(GrpcCall* call, const void* connection, int64_t now_us) {
  GrpcCall* oldest = nullptr;
  if (!waiting_.empty() && waiting_.size() >= limits_.calls_max) {
    const void* const largest = LargestConnection();
    oldest = Take(std::find_if(waiting_.begin(), waiting_.end(), [largest](const Waiting& one) {
      return one.connection == largest;
    }));
  }
  by_call_[call] = waiting_.insert(waiting_.end(), {call, connection, now_us});
  ++by_connection_[connection];
  return oldest;
}

void AwaitedMessages::Remove(GrpcCall* call) {
  const auto found = by_call_.find(call);
  if (found != by_call_.end()) Take(found->second);
}

AwaitedMessages::Overdue AwaitedMessages::TakeOverdue(int64_t now_us) {
  Overdue overdue;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto at = it++;
    const int64_t waited_us = now_us - at->since_us;
    if (waited_us < limits_.grace_us && waited_us < limits_.timeout_us) break;
    if (waited_us >= limits_.timeout_us) {
      overdue.late.push_back(Take(at));
    } else if (by_connection_[at->connection] > limits_.connection_calls_max) {
      overdue.too_many.push_back(Take(at));
    }
  }
  return overdue;
}

GrpcCall* AwaitedMessages::Take(Queue::iterator at) {
  GrpcCall* const call = at->call;
  const auto count = by_connection_.find(at->connection);
  if (--count->second == 0) by_connection_.erase(count);
  by_call_.erase(call);
  waiting_.erase(at);
  return call;
}

const void* AwaitedMessages::LargestConnection() const {
  return std::max_element(by_connection_.begin(), by_connection_.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace weft::router
