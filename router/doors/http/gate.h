// The gate of the routes that ask for a key. The front must outlive it.

#pragma once

#include <string>

#include "router/doors/front.h"
#include "router/doors/http/message.h"

namespace weft::router {

inline HttpGate KeyGate(const Front* front) {
  return [front](const std::string& authorization, const std::string& api_key) {
    return front->Authenticate({authorization, api_key});
  };
}

}  // namespace weft::router
