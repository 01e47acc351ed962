#include "router/tenants/tenant_use.h"

namespace weft::router {

TenantUseCounts& TenantUseCounts::operator+=(const TenantUseCounts& other) {
  requests += other.requests;
  rejections += other.rejections;
  prompt_tokens += other.prompt_tokens;
  generated_tokens += other.generated_tokens;
  return *this;
}

TenantUseCounts TenantUse::Read() const {
  TenantUseCounts counts;
  counts.requests = requests_.load(std::memory_order_relaxed);
  counts.rejections = rejections_.load(std::memory_order_relaxed);
  counts.prompt_tokens = prompt_.load(std::memory_order_relaxed);
  counts.generated_tokens = generated_.load(std::memory_order_relaxed);
  return counts;
}

std::shared_ptr<TenantUse> TenantUseBook::Open(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = known_.find(name);
  if (found != known_.end()) return found->second;
  if (known_.size() >= names_max_) ForgetUnusedLocked();
  return known_[name] = std::make_shared<TenantUse>();
}

TenantUseBook::Reading TenantUseBook::Read() const {
  absl::MutexLock lock(&mutex_);
  Reading reading;
  reading.by_name.reserve(known_.size());
  for (const auto& [name, use] : known_) reading.by_name.emplace(name, use->Read());
  reading.forgotten = forgotten_;
  return reading;
}

void TenantUseBook::ForgetUnusedLocked() {
  for (auto it = known_.begin(); it != known_.end();) {
    const auto at = it++;
    // Held by this book alone; nobody can take a share meanwhile.
    if (at->second.use_count() > 1) continue;
    forgotten_ += at->second->Read();
    known_.erase(at);
  }
}

}  // namespace weft::router
