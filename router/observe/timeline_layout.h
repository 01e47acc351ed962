// Where each event of a timeline is drawn: on which track, from when to when, in order of time. A
// shard's clock is another than the router's: replies of one rank and epoch are shifted by one
// amount, so that the quickest of them was on its way for no time. Pure; a plain list comes out.

#pragma once

#include <cstdint>
#include <vector>

#include "router/observe/timeline.h"

namespace weft::router {

// One piece of a drawing. Its facts stand in the event.
struct TimelineEntry {
  enum class Part : uint8_t {
    // Slices of a track: they lie inside each other or apart.
    kRouter,
    kHost,
    kDevice,
    kComm,
    // Both ends of stretches that may overlap: a call on the wire, a request and its phases.
    kWireBegin,
    kWireEnd,
    kRequestBegin,
    kRequestEnd,
    kTextBegin,
    kTextEnd,
    kQueueBegin,
    kQueueEnd,
    kPrefillBegin,
    kPrefillEnd,
    kDecodeBegin,
    kDecodeEnd,
    // A request's arrows between slices of an engine loop.
    kFlowBegin,
    kFlowStep,
    kFlowEnd,
  };

  // Since the timeline's beginning.
  int64_t at_us = 0;
  // Of slices.
  int64_t length_us = 0;
  // Index into the events.
  uint32_t event = 0;
  Part part = Part::kRouter;

  bool slice() const { return part <= Part::kComm; }
};

// Ordered by time; at the same time what encloses comes before what lies in it, and slices before
// the ends of stretches and arrows.
std::vector<TimelineEntry> LayOut(const Timeline::Taken& taken);

}  // namespace weft::router
