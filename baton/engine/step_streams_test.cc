// Layers leave beside the step, and none is read behind the call for the last.
#include "baton/engine/step_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "baton/engine/lane.h"
#include "tests/support/fake_unit.h"

namespace baton {
namespace {

// Moves a layer when it is let to, or when too long has passed.
class HeldCarrier final : public Carrier {
 public:
  Status stream(StateStream& stream, const SequenceState& from, uint64_t position,
                std::span<const int32_t> layers) override {
    begun.emplace_back(layers.begin(), layers.end());
    ++asked;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!let && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    waited_in_vain = waited_in_vain || !let;
    moved += static_cast<int>(layers.size());
    return Carrier::stream(stream, from, position, layers);
  }
  std::atomic<bool> let{false}, waited_in_vain{false};
  std::atomic<int> asked{0}, moved{0};
  std::vector<std::vector<int32_t>> begun;
};

struct StreamedSeat {
  explicit StreamedSeat(uint64_t into_tokens) {
    seat.state.state = std::make_unique<fake::State>(fake::Storage{}, 8, live);
    seat.into.state = std::make_unique<fake::State>(fake::Storage{DType::kF16, true}, 8, live);
    seat.tokens = {1, 2, 3};
    seat.into_tokens = into_tokens;
  }
  void step() {
    for (const int32_t token : seat.tokens) static_cast<fake::State&>(*seat.state.state).append(token);
  }
  uint64_t hash_there() const { return static_cast<const fake::State&>(*seat.into.state).hash(); }
  uint64_t hash_here() const { return static_cast<const fake::State&>(*seat.state.state).hash(); }

  LiveStates live;
  StepSeat seat;
};

TEST(StepStreams, LayersGoBesideTheStep) {
  const SteadyClock clock;
  HeldCarrier carrier;
  Porter porter;
  StreamedSeat one(3);
  StepStreams streams(carrier, &porter, clock);
  streams.add(one.seat, 0);
  one.step();
  streams.layer_done(0, 0);
  EXPECT_EQ(carrier.moved, 0) << "the step waited for it";
  streams.layer_done(7, 0);  // of a seat that does not stream
  carrier.let = true;
  streams.layer_done(0, 1);
  EXPECT_EQ(carrier.moved, 2) << "the last call returns when all is moved";
  streams.finish(true);
  EXPECT_TRUE(one.seat.arrived && one.seat.moved);
  EXPECT_FALSE(carrier.waited_in_vain);
  EXPECT_EQ(one.seat.into.state->position(), 3u);
  EXPECT_EQ(one.hash_there(), one.hash_here());
  EXPECT_EQ(one.seat.report.bytes, section_bytes(one.seat.state.state->shape(), 3));
}

TEST(StepStreams, LayersThatComeMeanwhileGoTogether) {
  const SteadyClock clock;
  HeldCarrier carrier;
  Porter porter;
  StreamedSeat one(3), two(3);
  StepStreams streams(carrier, &porter, clock);
  streams.add(one.seat, 0);
  streams.add(two.seat, 1);
  one.step();
  two.step();
  streams.layer_done(0, 0);
  while (carrier.asked == 0) std::this_thread::yield();
  porter.send(streams, 0, 7);  // there is nothing of it
  porter.send(streams, 0, 1);
  porter.send(streams, 1, 0);
  porter.send(streams, 1, 1);
  carrier.let = true;
  porter.wait();
  const std::vector<std::vector<int32_t>> wanted = {{0}, {7, 1}, {0, 1}};
  EXPECT_EQ(carrier.begun, wanted);
  for (const StreamedSeat* each : {&one, &two})
    EXPECT_EQ(each->seat.into.stream->report().bytes, section_bytes(each->seat.state.state->shape(), 3));
  streams.finish(true);
  EXPECT_TRUE(one.seat.arrived && one.seat.moved && two.seat.arrived && two.seat.moved);
  EXPECT_EQ(one.hash_there(), one.hash_here());
  EXPECT_EQ(two.hash_there(), two.hash_here());
}

TEST(StepStreams, WhatIsNotToldOfGoesBehindTheStep) {
  const SteadyClock clock;
  Carrier carrier;
  StreamedSeat one(6);
  for (const bool last : {false, true}) {
    StepStreams streams(carrier, nullptr, clock);
    streams.add(one.seat, 0);
    one.step();
    streams.finish(true);
    EXPECT_TRUE(one.seat.moved);
    EXPECT_EQ(one.seat.arrived, last);
    EXPECT_EQ(one.seat.into.state->position(), last ? 6u : 0u);
  }
  EXPECT_EQ(one.hash_there(), one.hash_here());
}

TEST(StepStreams, AStepThatFailedBringsNothing) {
  const SteadyClock clock;
  Carrier carrier;
  Porter porter;
  StreamedSeat one(3);
  StepStreams streams(carrier, &porter, clock);
  streams.add(one.seat, 0);
  one.step();
  streams.layer_done(0, 0);
  streams.finish(false);
  EXPECT_FALSE(one.seat.arrived);
  EXPECT_EQ(one.seat.into.state->position(), 0u);
}

}  // namespace
}  // namespace baton
