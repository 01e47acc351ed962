// Finding a pulled model in the cache, without the network: what `weft serve --model org/name`
// serves. Reads the disk; any thread.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {

struct PulledModel {
  // To be served: the snapshot's directory, or its .gguf file.
  std::string path;
  std::string commit;
};

// The model that `id` names, whoever fetched it. Of several .gguf files the one that `include`
// matches (ParseModelId's revision decides the snapshot). NOT_FOUND when nothing of it, or not all
// of it, is there, with the command that fetches it; INVALID_ARGUMENT when it is there and cannot
// be served as it is, with the way out.
absl::StatusOr<PulledModel> FindPulledModel(const std::string& cache_dir, const ModelId& id,
                                            const std::vector<std::string>& include);

}  // namespace weft::hub
