// What tests leave on cards: after each one all that this process holds of them, memory to the byte, is what it was
// before, by its own counts and by those of the emulated driver. Any program whose sources include this is held to it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/driver_emulated.h"

namespace baton::test {

inline std::string text_of(const cuda::CardUse& use) {
  return fmt::format("{} bytes of cards, {} pinned; {} cards, {} streams, {} events, {} graphs", use.device_bytes,
                     use.pinned_bytes, use.cards, use.streams, use.events, use.graphs);
}
inline std::string text_of(const cuda::EmulatedUse& use) {
  return fmt::format(
      "{} bytes of cards, {} pinned, {} allocations; {} contexts, {} streams, {} events, {} modules, {} "
      "graphs",
      use.device_bytes, use.host_bytes, use.allocations, use.contexts, use.streams, use.events, use.modules,
      use.graphs);
}

// A fixture, and what it holds, is gone when its test ends.
class CardMemoryWatch final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    held_ = cuda::card_use();
    emulated_ = cuda::emulated_use();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    if (const cuda::CardUse now = cuda::card_use(); now != held_)
      ADD_FAILURE() << "left on cards: " << text_of(now) << "; before the test: " << text_of(held_);
    if (const cuda::EmulatedUse now = cuda::emulated_use(); now != emulated_)
      ADD_FAILURE() << "left on the emulated card: " << text_of(now) << "; before the test: " << text_of(emulated_);
  }

 private:
  cuda::CardUse held_;
  cuda::EmulatedUse emulated_;
};

inline bool watch_card_memory() {
  testing::UnitTest::GetInstance()->listeners().Append(new CardMemoryWatch);
  return true;
}
inline const bool k_card_memory_is_watched = watch_card_memory();

}  // namespace baton::test
