// Pulling a model: from its name to a snapshot in the cache, whole or not there. What is there
// already is not fetched again; two pulls of one model exclude each other. Runs on its caller's
// thread until it is done or interrupted. Never called while a server runs.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/shutdown.h"
#include "deploy/launcher/hub/download.h"
#include "deploy/launcher/hub/model_id.h"
#include "deploy/launcher/hub/reporter.h"
#include "deploy/launcher/hub/settings.h"

namespace weft::hub {

struct PullOptions {
  ModelId id;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  TransferOptions transfer;
  // Only says what would be fetched.
  bool dry_run = false;
};

// The snapshot's directory (with dry_run where it would be). Errors name the way out: UNAVAILABLE
// when the hub cannot be reached, NOT_FOUND, UNAUTHENTICATED, PERMISSION_DENIED as it answers,
// RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for bytes that are not those of its list, CANCELLED
// on a signal. The environment's variables are those of settings.h; with HF_HUB_OFFLINE only what
// was pulled before is found.
absl::StatusOr<std::string> Pull(const PullOptions& options, Environment environment,
                                 ShutdownSignals& signals, Reporter& reporter);

}  // namespace weft::hub
