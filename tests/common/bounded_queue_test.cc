#include "common/bounded_queue.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/thread.h"

namespace weft {
namespace {

TEST_CASE("A full or closed queue refuses and leaves the item alone", "[common]") {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  CHECK(queue.TryPush(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  CHECK_FALSE(queue.TryPush(std::move(second)));
  REQUIRE(second != nullptr);
  CHECK(*second == 2);
  queue.Close();
  CHECK(queue.size() == 1);
  CHECK(**queue.Pop() == 1);
  CHECK_FALSE(queue.TryPush(std::move(second)));
  CHECK_FALSE(queue.Pop().has_value());
  CHECK(queue.PopAll().empty());
}

TEST_CASE("Pop gives up after its time-out", "[common]") {
  BoundedQueue<int> queue(1);
  CHECK_FALSE(queue.Pop(absl::Milliseconds(1)).has_value());
  CHECK(queue.PopAll(absl::Milliseconds(1)).empty());
}

TEST_CASE("Every item of several producers arrives once, in each producer's order", "[common]") {
  constexpr int kProducers = 4;
  constexpr int kItems = 2000;
  BoundedQueue<int> queue(64);
  std::vector<int> next(kProducers, 0);
  {
    std::vector<Thread> producers;
    for (int producer = 0; producer < kProducers; ++producer) {
      producers.emplace_back("producer", [&queue, producer] {
        for (int i = 0; i < kItems; ++i) {
          int item = producer * kItems + i;
          while (!queue.TryPush(std::move(item))) std::this_thread::yield();
        }
      });
    }
    for (int taken = 0; taken < kProducers * kItems;) {
      for (int item : queue.PopAll()) {
        // Order within one producer.
        REQUIRE(item % kItems == next[static_cast<size_t>(item / kItems)]++);
        ++taken;
      }
    }
  }
  CHECK(queue.size() == 0);
}

TEST_CASE("Close wakes a waiting consumer", "[common]") {
  BoundedQueue<int> queue(1);
  Thread consumer("consumer", [&queue] { CHECK(queue.PopAll().empty()); });
  queue.Close();
  consumer.Join();
}

}  // namespace
}  // namespace weft
