// The addresses that a pull asks, and where the token may go. They are taken apart by the same
// library that connects (libcurl's URL functions), so that what is checked is what is asked. Pure:
// connects to nothing.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {

// OK for a URL of http or https without user, query or fragment. INVALID_ARGUMENT otherwise.
absl::Status CheckEndpoint(const std::string& endpoint);

// GET: the model's commit and files.
std::string FileListUrl(const std::string& endpoint, const ModelId& id);
// GET, HEAD: the bytes of `path` at `commit`.
std::string FileUrl(const std::string& endpoint, const ModelId& id, const std::string& commit,
                    absl::string_view path);

// Where `location`, which `url` answered with, leads. INVALID_ARGUMENT when that is no URL of http
// or https, or leads from https to http.
absl::StatusOr<std::string> Redirected(const std::string& url, const std::string& location);

// Whether both have the same scheme, host and port: only such a URL is given the token of the
// other.
bool IsSameOrigin(const std::string& url, const std::string& other);

// "host" or "host:port" of `url`, for people.
std::string HostOf(const std::string& url);

}  // namespace weft::hub
