// Parts of a connection by themselves: its pace, its place among others, descriptors in reserve.

#include <catch2/catch.hpp>

#include "router/doors/http/listener.h"
#include "router/doors/http/pace.h"
#include "router/doors/http/waiting_order.h"

namespace weft::router {
namespace {

TEST_CASE("A pace counts stalls and windows only while it runs", "[router][http]") {
  const PaceLimits limits = {30, 60, 100};
  Pace pace;
  CHECK(pace.Check(1000, 0, limits));
  pace.Start(1000, 5);
  CHECK(pace.Check(1029, 5, limits));
  CHECK_FALSE(pace.Check(1030, 5, limits));
  pace.Start(1000, 0);
  // A byte now and then keeps it from stalling, not from being slow.
  CHECK(pace.Check(1029, 1, limits));
  CHECK(pace.Check(1058, 2, limits));
  CHECK_FALSE(pace.Check(1060, 3, limits));
  pace.Start(1000, 0);
  CHECK(pace.Check(1025, 50, limits));
  CHECK(pace.Check(1060, 100, limits));
  CHECK(pace.Check(1085, 150, limits));
  CHECK_FALSE(pace.Check(1120, 199, limits));
  pace.Stop();
  CHECK(pace.Check(9999, 0, limits));
}

TEST_CASE("Who gives way: strangers first, then idle clients, then bodies, never one at work",
          "[router][http]") {
  WaitingOrder order;
  Waiting stranger, handshake, idle, body, closing;
  CHECK(order.FindVictim(0) == nullptr);
  order.Put(&body, WaitingFor::kBody, 0);
  order.Put(&idle, WaitingFor::kRequest, 10);
  CHECK(order.FindVictim(WaitingOrder::kGraceUs - 1) == nullptr);
  CHECK(order.FindVictim(WaitingOrder::kGraceUs) == &body);
  CHECK(order.FindVictim(WaitingOrder::kGraceUs + 10) == &idle);
  order.Put(&handshake, WaitingFor::kHandshake, 20);
  order.Put(&stranger, WaitingFor::kStranger, 30);
  CHECK(order.FindVictim(40) == &handshake);
  order.Put(&handshake, WaitingFor::kStranger, 40);
  CHECK(order.FindVictim(40) == &stranger);
  order.Put(&closing, WaitingFor::kClose, 50);
  CHECK(order.FindVictim(50) == &closing);
  for (Waiting* who : {&closing, &stranger, &handshake, &idle, &body}) {
    order.Put(who, WaitingFor::kNothing, 60);
  }
  CHECK(order.FindVictim(WaitingOrder::kGraceUs * 10) == nullptr);
}

TEST_CASE("Spare descriptors are given up one by one and filled up again", "[router][http]") {
  SpareDescriptors spare(2);
  CHECK(spare.size() == 2);
  CHECK(spare.GiveUp());
  CHECK(spare.GiveUp());
  CHECK_FALSE(spare.GiveUp());
  spare.Refill();
  CHECK(spare.size() == 2);
}

}  // namespace
}  // namespace weft::router
