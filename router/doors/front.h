// What all doors share: the intake, the probe, the names of the model, whether the server takes
// requests, and how strict it is. Made by main before the doors and outlives them. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/intake.h"
#include "router/observe/probe.h"

namespace weft::router {

struct FrontOptions {
  // Names a request may use beside the served model's own and "tgi".
  std::vector<std::string> model_aliases;
  // Unknown fields are errors.
  bool strict_fields = false;
  // No byte of an answer accepted for this long ends the request.
  int64_t slow_reader_timeout_us = 30'000'000;
  // Effective flags, for /config.
  std::map<std::string, std::string> config;
  // For /info.
  uint32_t queue_requests_max = 0;
};

class Front {
 public:
  // Both must outlive this.
  Front(Intake* intake, Probe* probe, FrontOptions options);

  // OK when a generation may start now: UNAVAILABLE with Retry-After while loading or draining.
  // Counted as a rejection.
  absl::Status Admit() const;
  // OK for the served name, an alias, "tgi" or an empty name; NOT_FOUND otherwise.
  absl::Status CheckModel(absl::string_view name) const;
  // The intake's state; draining wins.
  ServerStatus Status() const;

  // No new requests from now on.
  void StartDrain() { draining_.store(true, std::memory_order_release); }
  bool draining() const { return draining_.load(std::memory_order_acquire); }

  Intake& intake() const { return *intake_; }
  Probe& probe() const { return *probe_; }
  const FrontOptions& options() const { return options_; }

 private:
  Intake* const intake_;
  Probe* const probe_;
  const FrontOptions options_;
  std::atomic<bool> draining_{false};
};

// "ready", "loading" ...
absl::string_view ServerStateName(ServerState state);
// 128 random bits in hexadecimal: not to be guessed, because Cancel takes it.
std::string NewRequestId();
// [A-Za-z0-9._-]{1,128}.
bool IsRequestId(absl::string_view text);

}  // namespace weft::router
