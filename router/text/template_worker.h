// What a template worker does: compiles one chat template and renders conversations with it until
// its socket is closed. Runs alone in a process of one thread under the limits that template_server
// set; trusts the router and not the template.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::router {

// Bytes of a conversation on its way to a worker, its marks included, and of what a worker gives.
inline constexpr size_t kTemplateRequestBytesMax = 32u << 20;
inline constexpr size_t kTemplateReplyBytesMax = 32u << 20;

// The messages: first (source, BOS, EOS), answered by (status, error); then any number of (fuel,
// bytes_max, now_unix_s, the template's variables as chat_values.h writes them), answered by
// (status, text or error). A status is a WeftTextStatus. Returns when the router has closed the
// socket; a call that takes more than `cpu_ms` of processor time ends the process.
void RunTemplateWorker(int socket, uint32_t cpu_ms);

}  // namespace weft::router
