// What all doors share: the entrance, the probe, the names of the model, whether the server takes
// requests, and how strict it is. Made by main before the doors and outlives them. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/door.h"
#include "router/doors/entrance.h"
#include "router/doors/identity/identity.h"
#include "router/observe/probe.h"

namespace weft::router {

// What a request says of who sent it: headers of HTTP, metadata of gRPC. Empty where there is none.
struct Credentials {
  std::string authorization;
  std::string api_key;
};

struct DoorOptions {
  // Whom keys belong to; must outlive the context. Null = everybody is anonymous.
  const Identity* identity = nullptr;
  // Names a request may use beside the served model's own and "tgi".
  std::vector<std::string> model_aliases;
  // Unknown fields are errors.
  bool strict_fields = false;
  // No byte of an answer accepted for this long ends the request.
  int64_t slow_reader_timeout_us = 30'000'000;
  // Effective flags at the start, for /config.
  std::map<std::string, std::string> config;
  // Threads that read texts, for /info.
  uint32_t text_threads = 0;
};

class DoorContext {
 public:
  // Both must outlive this.
  DoorContext(Entrance* entrance, Probe* probe, DoorOptions options);

  // Who asks, by what his request carries. UNAUTHENTICATED without a good key where keys are
  // wanted.
  absl::StatusOr<TenantRef> Authenticate(const Credentials& credentials) const;
  // The right to hand in a request with a body of `body_bytes`, for a tenant that Authenticate
  // found before. UNAVAILABLE with Retry-After while loading or draining, RESOURCE_EXHAUSTED when
  // the server or the tenant's share is full. Counted as a rejection. Tokenising needs no shards:
  // Entrance::EnterText is enough for it.
  absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes) const;
  // OK for the served name, an alias, and the placeholders "tgi", "dummy" and nothing; NOT_FOUND
  // otherwise.
  absl::Status CheckModel(absl::string_view name) const;
  // What is served; UNAVAILABLE with Retry-After while no group has said it yet.
  absl::StatusOr<ModelFacts> ServedModel() const;
  // The entrance's state, for whoever asks whether to send requests here; leaving and draining win.
  ServerStatus Status() const;

  // Effective flags with where each came from.
  std::map<std::string, std::string> Config() const;
  void SetConfig(std::map<std::string, std::string> config);

  // Says from now on that this server is not ready, so that balancers send requests elsewhere, and
  // still takes those that come.
  void StartLeaving() { Advance(Stage::kLeaving); }
  // No new requests from now on.
  void StartDrain() { Advance(Stage::kDraining); }

  Entrance& entrance() const { return *entrance_; }
  Probe& probe() const { return *probe_; }
  const DoorOptions& options() const { return options_; }

 private:
  enum class Stage : uint8_t { kHere, kLeaving, kDraining };
  void Advance(Stage stage) { stage_.store(stage, std::memory_order_release); }
  Stage stage() const { return stage_.load(std::memory_order_acquire); }

  Entrance* const entrance_;
  Probe* const probe_;
  const DoorOptions options_;
  // Stands in for options.identity where there is none.
  const std::unique_ptr<Identity> nobody_;
  const Identity* const identity_;
  std::atomic<Stage> stage_{Stage::kHere};
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> config_ ABSL_GUARDED_BY(mutex_);
};

// "ready", "loading" ...
absl::string_view ServerStateName(ServerState state);
// 128 random bits in hexadecimal: not to be guessed, because Cancel takes it.
std::string NewRequestId();
// [A-Za-z0-9._-]{1,128}.
bool IsRequestId(absl::string_view text);

}  // namespace weft::router
