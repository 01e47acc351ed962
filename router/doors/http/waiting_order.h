// Who gives way when all places are taken: the connections of one worker that wait for their
// client, in the order in which they began to. None that has a request under way is in here. Lives
// on the worker's thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "boost/intrusive/list.hpp"

namespace weft::router {

// What a connection waits for, and so how easily it is closed for another.
enum class WaitingFor : uint8_t {
  kClose,      // the client to close, after the last answer
  kHandshake,  // TLS
  kStranger,   // its first request
  kRequest,    // its next request
  kBody,       // the rest of a body
  kNothing     // a request is under way, or the connection is closed
};

// The part of a connection that stands in the order. Leaves it by itself when destroyed.
class Waiting : public boost::intrusive::list_base_hook<
                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 private:
  friend class WaitingOrder;
  int64_t since_us_ = 0;
};

class WaitingOrder {
 public:
  // A client that was served before, or is sending a body, has so long before it has to give way.
  static constexpr int64_t kGraceUs = 1'000'000;

  // Takes `who` from where it stands and puts it last where it belongs.
  void Put(Waiting* who, WaitingFor what, int64_t now_us) {
    if (who->is_linked()) who->unlink();
    who->since_us_ = now_us;
    if (what != WaitingFor::kNothing) List(what).push_back(*who);
  }

  // The one to close for a newcomer: those that are through with, then the oldest that never made a
  // request, then clients between two requests, then bodies. Null when all have a claim to stay.
  Waiting* FindVictim(int64_t now_us) {
    if (Waiting* done = Oldest(WaitingFor::kClose)) return done;
    Waiting* const handshake = Oldest(WaitingFor::kHandshake);
    Waiting* const stranger = Oldest(WaitingFor::kStranger);
    if (handshake != nullptr && stranger != nullptr) {
      return handshake->since_us_ < stranger->since_us_ ? handshake : stranger;
    }
    if (handshake != nullptr) return handshake;
    if (stranger != nullptr) return stranger;
    for (const WaitingFor what : {WaitingFor::kRequest, WaitingFor::kBody}) {
      Waiting* const who = Oldest(what);
      if (who != nullptr && now_us - who->since_us_ >= kGraceUs) return who;
    }
    return nullptr;
  }
  Waiting* OldestHandshake() { return Oldest(WaitingFor::kHandshake); }

 private:
  using Entries = boost::intrusive::list<Waiting, boost::intrusive::constant_time_size<false>>;

  Entries& List(WaitingFor what) { return lists_[static_cast<size_t>(what)]; }
  Waiting* Oldest(WaitingFor what) {
    Entries& list = List(what);
    return list.empty() ? nullptr : &list.front();
  }

  std::array<Entries, static_cast<size_t>(WaitingFor::kNothing)> lists_;
};

}  // namespace weft::router
