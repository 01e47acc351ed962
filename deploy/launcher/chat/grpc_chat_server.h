// A server by its gRPC address (weft.v1.TextGeneration). Main thread; the library has threads of
// its own, so signals are masked before one is made.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deploy/launcher/chat/server.h"
#include "deploy/launcher/client_access.h"

namespace weft::launcher {

// `model` as requests name it; empty = the one that is served.
std::unique_ptr<ChatServer> MakeGrpcChatServer(ServerAccess access, std::string model);

}  // namespace weft::launcher
