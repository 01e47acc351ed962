// The line that a router prints loudly when it can be reached from other machines and lets in
// whoever comes, or lets others read along. Pure; called once at start-up.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

// Whether only this machine can reach a listener on `host`: `localhost`, 127.0.0.0/8 or ::1. Other
// names are not looked up, and an empty one means every address.
bool IsLoopback(absl::string_view host);

// Empty when `host` is a loopback address or both protections are on. `has_keys`: keys or required
// client certificates.
std::string OpenAddressWarning(absl::string_view host, bool has_keys, bool has_tls);

}  // namespace weft::router
