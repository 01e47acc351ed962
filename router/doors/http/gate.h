// The gate of the routes that ask for a key. The context must outlive it.

#pragma once

#include <string>

#include "router/doors/door_context.h"
#include "router/doors/http/message.h"

namespace weft::router {

inline HttpGate KeyGate(const DoorContext* doors) {
  return [doors](const std::string& authorization, const std::string& api_key) {
    return doors->Authenticate({authorization, api_key});
  };
}

}  // namespace weft::router
