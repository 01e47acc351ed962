// Models by their name on a hub (org/name), for the commands that take a model: finding what was
// pulled, and pulling it with progress on stderr. Main thread; only PullModel touches the network.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "deploy/launcher/hub/model_id.h"
#include "deploy/launcher/hub/pull.h"

namespace weft::launcher {

// What `model` names on a hub; nothing when there is a file or directory of that name, which wins,
// or when it is none's name.
absl::optional<hub::ModelId> HubModel(const std::string& model);

// Path of the model: `model` itself, or where it lies in the hub's cache; of several .gguf files
// the one that `include` matches. Looks at names, not into files. NOT_FOUND or INVALID_ARGUMENT
// names the way out, without the flag.
absl::StatusOr<std::string> FindModel(const std::string& model,
                                      const std::vector<std::string>& include);

// How a pull is shown.
enum class PullOutput {
  // Progress on one line of a terminal, else a line each few seconds; without a pattern.
  kPlain,
  // Lines of the log, for JSON.
  kLog,
};

// Pulls until it is done; Ctrl-C and SIGTERM end it. The snapshot's directory.
absl::StatusOr<std::string> PullModel(const hub::PullOptions& options, PullOutput output);

}  // namespace weft::launcher
