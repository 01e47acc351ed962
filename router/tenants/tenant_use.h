// What each tenant has used since the router started, for metrics. Counts are kept here and not in
// the registry because names come and go with the key file, and the registry may not grow with
// them: whoever shows counts decides which names it shows (observe/tenant_metrics.h). Thread-safe;
// adding is one relaxed addition.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace weft::router {

// One tenant's, as it was when it was read.
struct TenantUseCounts {
  // Let in by admission, whatever became of them; tokenising is a request, too.
  uint64_t requests = 0;
  // Turned away, for whatever reason but a bad key, which has no tenant.
  uint64_t rejections = 0;
  // Of requests that began to run.
  uint64_t prompt_tokens = 0;
  // Of answers.
  uint64_t generated_tokens = 0;

  uint64_t tokens() const { return prompt_tokens + generated_tokens; }
  TenantUseCounts& operator+=(const TenantUseCounts& other);
  friend bool operator==(const TenantUseCounts&, const TenantUseCounts&) = default;
};

// One tenant's. Shared by all meters that its name ever had.
class TenantUse {
 public:
  void AddRequest() { requests_.fetch_add(1, std::memory_order_relaxed); }
  void AddRejection() { rejections_.fetch_add(1, std::memory_order_relaxed); }
  void AddPrompt(uint64_t tokens) { prompt_.fetch_add(tokens, std::memory_order_relaxed); }
  void AddGenerated(uint64_t tokens) { generated_.fetch_add(tokens, std::memory_order_relaxed); }
  TenantUseCounts Read() const;

 private:
  std::atomic<uint64_t> requests_{0};
  std::atomic<uint64_t> rejections_{0};
  std::atomic<uint64_t> prompt_{0};
  std::atomic<uint64_t> generated_{0};
};

// All names' uses. A name keeps its counts while it is used, and afterwards until `names_max` are
// known and room is needed: then the counts of all that nobody uses become a sum without names.
class TenantUseBook {
 public:
  struct Reading {
    absl::flat_hash_map<std::string, TenantUseCounts> by_name;
    TenantUseCounts forgotten;
  };

  // Fewer than `names_max` names are in use when one is opened.
  explicit TenantUseBook(size_t names_max) : names_max_(names_max) {}

  // The same one for a name for as long as it is known.
  std::shared_ptr<TenantUse> Open(const std::string& name);
  Reading Read() const;

 private:
  void ForgetUnusedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t names_max_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<TenantUse>> known_ ABSL_GUARDED_BY(mutex_);
  TenantUseCounts forgotten_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
