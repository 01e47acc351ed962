#include "router/scheduler/tenant_table.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace weft::router {
namespace {

constexpr uint32_t kNoPlace = ~uint32_t{0};

}  // namespace

TenantShare* TenantTable::Enter(TenantIndex index, double weight) {
  std::unique_ptr<TenantShare>& owner = tenants_[index];
  const bool is_new = owner == nullptr;
  if (is_new) {
    owner = std::make_unique<TenantShare>();
    owner->index = index;
    owner->heap_place = kNoPlace;
    // Doubled, so that many new tenants cost no more than their number.
    if (heap_.capacity() < tenants_.size()) heap_.reserve(2 * tenants_.size());
  } else if (owner->live == 0) {
    UnlinkIdle(owner.get());
  }
  weights_ += weight - (is_new ? 0 : owner->weight);
  owner->weight = weight;
  ++owner->live;
  return owner.get();
}

void TenantTable::Leave(TenantShare* tenant, int64_t now_us) {
  WEFT_CHECK_GT(tenant->live, 0u);
  if (--tenant->live > 0) return;
  WEFT_CHECK(tenant->waiting.empty() && tenant->running == 0);
  LinkIdle(tenant, now_us);
  if (idle_count_ > kTenantsIdleMax) ForgetOldest();
}

void TenantTable::LinkIdle(TenantShare* tenant, int64_t since_us) {
  tenant->idle_since_us = since_us;
  tenant->idle_longer = idle_shortest_;
  tenant->idle_shorter = nullptr;
  (idle_shortest_ == nullptr ? idle_longest_ : idle_shortest_->idle_shorter) = tenant;
  idle_shortest_ = tenant;
  ++idle_count_;
}

void TenantTable::ForgetIdle(int64_t now_us) {
  while (idle_longest_ != nullptr && now_us - idle_longest_->idle_since_us >= kTenantIdleUs) {
    ForgetOldest();
  }
}

void TenantTable::ForgetOldest() {
  TenantShare* const tenant = idle_longest_;
  UnlinkIdle(tenant);
  weights_ -= tenant->weight;
  tenants_.erase(tenant->index);
}

void TenantTable::UnlinkIdle(TenantShare* tenant) {
  TenantShare* const longer = tenant->idle_longer;
  TenantShare* const shorter = tenant->idle_shorter;
  (longer == nullptr ? idle_longest_ : longer->idle_shorter) = shorter;
  (shorter == nullptr ? idle_shortest_ : shorter->idle_longer) = longer;
  tenant->idle_longer = tenant->idle_shorter = nullptr;
  --idle_count_;
}

void TenantTable::Charge(TenantShare* tenant, int64_t tokens) {
  tenant->served += static_cast<double>(tokens) / tenant->weight;
  if (tenant->heap_place != kNoPlace) Restore(tenant->heap_place);
}

void TenantTable::StartWaiting(TenantShare* tenant) {
  WEFT_CHECK_EQ(tenant->heap_place, kNoPlace);
  const double level = heap_.empty() ? turn_served_ : heap_[0]->served;
  tenant->served = std::max(tenant->served, level);
  tenant->wait_number = ++waits_;
  heap_.push_back(tenant);
  tenant->heap_place = static_cast<uint32_t>(heap_.size() - 1);
  SiftUp(tenant->heap_place);
}

void TenantTable::StopWaiting(TenantShare* tenant) {
  const uint32_t place = tenant->heap_place;
  WEFT_CHECK_LT(place, heap_.size());
  tenant->heap_place = kNoPlace;
  TenantShare* const last = heap_.back();
  heap_.pop_back();
  if (last == tenant) return;
  Place(last, place);
  Restore(place);
}

void TenantTable::NoteTurn(const TenantShare& tenant) {
  turn_served_ = std::max(turn_served_, tenant.served);
}

void TenantTable::Place(TenantShare* tenant, size_t place) {
  heap_[place] = tenant;
  tenant->heap_place = static_cast<uint32_t>(place);
}

void TenantTable::Restore(size_t place) {
  TenantShare* const tenant = heap_[place];
  SiftUp(place);
  SiftDown(tenant->heap_place);
}

void TenantTable::SiftUp(size_t place) {
  TenantShare* const tenant = heap_[place];
  for (; place > 0; place = (place - 1) / 2) {
    TenantShare* const parent = heap_[(place - 1) / 2];
    if (!Before(*tenant, *parent)) break;
    Place(parent, place);
  }
  Place(tenant, place);
}

void TenantTable::SiftDown(size_t place) {
  TenantShare* const tenant = heap_[place];
  while (2 * place + 1 < heap_.size()) {
    size_t child = 2 * place + 1;
    if (child + 1 < heap_.size() && Before(*heap_[child + 1], *heap_[child])) ++child;
    if (!Before(*heap_[child], *tenant)) break;
    Place(heap_[child], place);
    place = child;
  }
  Place(tenant, place);
}

void TenantTable::Save(SchedulerState* state) const {
  state->tenants.clear();
  const auto save = [state](const TenantShare& t, bool idle) {
    state->tenants.push_back(
        {t.index, t.weight, t.served, t.wait_number, idle, idle ? t.idle_since_us : 0});
  };
  for (const auto& [index, tenant] : tenants_) {
    if (tenant->live > 0) save(*tenant, false);
  }
  // The map's order is not that of the events.
  std::sort(state->tenants.begin(), state->tenants.end(),
            [](const TenantState& a, const TenantState& b) { return a.index < b.index; });
  for (const TenantShare* t = idle_longest_; t != nullptr; t = t->idle_shorter) save(*t, true);
  state->turn_served = turn_served_;
  state->weights = weights_;
  state->waits = waits_;
}

absl::Status TenantTable::Restore(const SchedulerState& state) {
  const auto bad = [] {
    return absl::InvalidArgumentError("the scheduler's state has tenants that do not fit");
  };
  if (idle_count_ != 0) return bad();
  for (const TenantState& saved : state.tenants) {
    std::unique_ptr<TenantShare>& owner = tenants_[saved.index];
    if (saved.idle != (owner == nullptr) || !(saved.weight > 0)) return bad();
    if (owner == nullptr) {
      owner = std::make_unique<TenantShare>();
      owner->index = saved.index;
      owner->heap_place = kNoPlace;
      LinkIdle(owner.get(), saved.idle_since_us);
    }
    owner->weight = saved.weight;
    owner->served = saved.served;
    owner->wait_number = saved.wait_number;
  }
  if (state.tenants.size() != tenants_.size()) return bad();
  heap_.reserve(2 * tenants_.size());
  // What is sorted is a heap.
  std::sort(heap_.begin(), heap_.end(),
            [](const TenantShare* a, const TenantShare* b) { return Before(*a, *b); });
  for (size_t place = 0; place < heap_.size(); ++place) Place(heap_[place], place);
  turn_served_ = state.turn_served;
  weights_ = state.weights;
  waits_ = state.waits;
  return absl::OkStatus();
}

void TenantTable::CheckInvariantsForTest() const {
  WEFT_CHECK_LE(idle_count_, kTenantsIdleMax);
  WEFT_CHECK_GE(heap_.capacity(), tenants_.size());
  uint32_t idle = 0;
  for (const TenantShare* t = idle_longest_; t != nullptr; t = t->idle_shorter) {
    WEFT_CHECK(t->live == 0 && t->running == 0 && t->waiting.empty());
    ++idle;
  }
  WEFT_CHECK_EQ(idle, idle_count_);
  for (size_t i = 0; i < heap_.size(); ++i) {
    WEFT_CHECK(heap_[i]->heap_place == i && !heap_[i]->waiting.empty());
    WEFT_CHECK(i == 0 || !Before(*heap_[i], *heap_[(i - 1) / 2]));
  }
  size_t waiting = 0;
  double weights = 0;
  for (const auto& [index, tenant] : tenants_) {
    WEFT_CHECK(tenant->index == index && tenant->weight > 0);
    WEFT_CHECK_EQ(tenant->heap_place == kNoPlace, tenant->waiting.empty());
    weights += tenant->weight;
    waiting += !tenant->waiting.empty();
  }
  WEFT_CHECK_EQ(waiting, heap_.size());
  WEFT_CHECK_LT(std::abs(weights - weights_), 1e-6 * (1 + weights));
}

}  // namespace weft::router
