#include "router/groups/fair_queue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"

namespace weft::router {

void FairQueue::Push(const QueuedRequest& request, bool is_new) {
  auto waiting = std::make_unique<Waiting>();
  Sequence& order = waiting->order;
  order.id = request.id;
  if (is_new) {
    order.tenant = tenants_.Enter(request.tenant, request.weight);
    present_[request.tenant] = order.tenant;
  } else {
    order.tenant = present_.at(request.tenant);
  }
  order.priority = request.priority;
  order.turn_us = request.arrival_us - request.priority * kAgeingUsDefault;
  queue_.Push(&order);
  WEFT_CHECK(waiting_.emplace(request.id, std::move(waiting)).second);
}

SequenceId FairQueue::Next() const { return queue_.DoorContext()->id; }

void FairQueue::HandOut(SequenceId id, uint32_t prompt_tokens) {
  const auto node = waiting_.extract(id);
  Sequence& order = node.mapped()->order;
  WEFT_CHECK(!node.mapped()->parked);
  tenants_.NoteTurn(*order.tenant);
  queue_.Remove(&order);
  tenants_.Charge(order.tenant, prompt_tokens);
  ++order.tenant->running;
}

void FairQueue::TakeBack(TenantIndex index, uint32_t prompt_tokens) {
  TenantShare* const tenant = present_.at(index);
  WEFT_CHECK_GT(tenant->running, 0u);
  --tenant->running;
  tenants_.Charge(tenant, -int64_t{prompt_tokens});
}

void FairQueue::Drop(SequenceId id, int64_t now_us) {
  const auto node = waiting_.extract(id);
  Waiting& waiting = *node.mapped();
  if (waiting.parked) {
    --parked_;
  } else {
    queue_.Remove(&waiting.order);
  }
  Leave(waiting.order.tenant, now_us);
}

void FairQueue::Park(SequenceId id) {
  Waiting& waiting = *waiting_.at(id);
  queue_.Remove(&waiting.order);
  waiting.parked = true;
  ++parked_;
}

void FairQueue::Unpark() {
  if (parked_ == 0) return;
  // The map's order is not that of the events.
  std::vector<Waiting*> parked;
  for (auto& [id, waiting] : waiting_) {
    if (waiting->parked) parked.push_back(waiting.get());
  }
  std::sort(parked.begin(), parked.end(),
            [](const Waiting* a, const Waiting* b) { return a->order.Outranks(b->order); });
  for (Waiting* const waiting : parked) {
    waiting->parked = false;
    queue_.Push(&waiting->order);
  }
  parked_ = 0;
}

void FairQueue::Join(TenantIndex index, uint32_t choices) {
  TenantShare* const tenant = present_.at(index);
  for (uint32_t i = 0; i < choices; ++i) tenants_.Enter(index, tenant->weight);
  tenant->running += choices;
}

void FairQueue::Charge(TenantIndex index, int64_t tokens, uint32_t ended, int64_t now_us) {
  TenantShare* const tenant = present_.at(index);
  tenants_.Charge(tenant, tokens);
  WEFT_CHECK_GE(tenant->running, ended);
  tenant->running -= ended;
  for (uint32_t i = 0; i < ended; ++i) Leave(tenant, now_us);
}

void FairQueue::Leave(TenantShare* tenant, int64_t now_us) {
  if (tenant->live == 1) present_.erase(tenant->index);
  tenants_.Leave(tenant, now_us);
}

bool FairQueue::HoldsShare(SequenceId id, uint32_t places) const {
  const TenantShare& tenant = *waiting_.at(id)->order.tenant;
  if (tenants_.size() == 1) return false;
  return tenant.running >= places * tenant.weight / tenants_.weights();
}

double FairQueue::ServedForTest(TenantIndex tenant) const {
  const auto found = present_.find(tenant);
  return found == present_.end() ? 0 : found->second->served;
}

void FairQueue::CheckInvariantsForTest() const {
  tenants_.CheckInvariantsForTest();
  WEFT_CHECK_EQ(queue_.size() + parked_, waiting_.size());
  WEFT_CHECK_EQ(present_.size(), tenants_.active());
}

}  // namespace weft::router
