// The page at /ui: files that are part of this program, to chat with the model and to watch the
// server. They hold nothing secret and are shown to everybody; what the page asks of the other
// routes carries the key that its user typed. Routes are added by main at the start, asked on the
// io threads, and never wait.

#pragma once

#include "router/doors/http/router.h"

namespace weft::router {

// GET /ui (to /ui/), /ui/ and the files below it.
void AddUiRoutes(HttpRouter* router);

}  // namespace weft::router
