// Small answers of a hub, asked for one after another with tries: the list of files, a file's
// headers. Part of a pull, on its thread.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/launcher/hub/download.h"
#include "deploy/launcher/hub/file_list.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {

// The commit and the files of `id`.
absl::StatusOr<ModelFileList> AskFileList(PullContext& context, const ModelId& id);

// Fills the size and the blob's name of `file`, which the list did not say, from its headers.
absl::Status AskFile(PullContext& context, const ModelId& id, const std::string& commit,
                     HubFile* file);

}  // namespace weft::hub
