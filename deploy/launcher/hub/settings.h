// Which hub, with which token, and where its files are kept: read from the variables that Hugging
// Face's libraries read, so that weft and they agree. Reads the environment through a function and
// the token's file; main thread.

#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace weft::hub {

// As getenv; null where a variable is not set.
using Environment = absl::FunctionRef<const char*(const char*)>;

// HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else `hub` in HF_HOME, which is `huggingface` in
// XDG_CACHE_HOME or ~/.cache.
std::string CacheDir(Environment environment);

// HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is 1, on, yes or true: nobody touches the network.
bool IsOffline(Environment environment);

struct HubSettings {
  // HF_ENDPOINT without a slash at its end, or https://huggingface.co.
  std::string endpoint;
  // HF_TOKEN, else what the file HF_TOKEN_PATH, or `token` in HF_HOME, holds; empty = none. Never
  // shown.
  std::string token;
  // PEM of the authorities that are trusted instead of the system's: SSL_CERT_FILE, CURL_CA_BUNDLE
  // or REQUESTS_CA_BUNDLE; empty = the system's.
  std::string ca_file;
};

// INVALID_ARGUMENT names the variable or the file and what was expected.
absl::StatusOr<HubSettings> ReadHubSettings(Environment environment);

}  // namespace weft::hub
