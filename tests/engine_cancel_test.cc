// Requests that end while works of theirs are away: who waits for whom, and what is whose meanwhile. Units are held by
// gates, so that nothing here depends on time.
#include <gtest/gtest.h>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

// Held before its first step until `both` is open, and in its first one of two seats that decode until `gate` is.
Behaviour held_when_shared(Gate& both, Gate& gate) {
  Behaviour behaviour;
  behaviour.decode_seats_max = 2;
  behaviour.before = [&](Act act, size_t count) -> Status {
    if (act == Act::kPrefill) both.pass();
    if (act == Act::kDecode && count == 2) gate.pass();
    return {};
  };
  return behaviour;
}

Request on_one(uint64_t seed) {
  Request request = make_request(5, 300, seed);
  request.strategy = "single";
  request.prefill_unit = request.decode_unit = "a";
  return request;
}

TEST(EndedEarly, ASharedStepGoesOnWithoutIt) {
  Gate both, gate;
  EngineLimits limits;
  limits.requests_active_max = 2;
  limits.requests_queued_max = 1;
  Rig rig(limits, {held_when_shared(both, gate)});
  auto first = rig.engine->submit(on_one(1)), other = rig.engine->submit(on_one(2));
  ASSERT_TRUE(first && other);
  ASSERT_TRUE(comes_true([&] { return rig.engine->usage().requests == 2; }));
  both.open();
  gate.wait_for_arrival();
  first->cancel();
  EXPECT_EQ(read_answer(*first).finished.reason, FinishReason::kCancelled) << "while the step is held";
  EXPECT_FALSE(first->next_event(milliseconds(0)));
  const EngineUsage held = rig.engine->usage();
  EXPECT_EQ(held.requests, 1u);
  EXPECT_EQ(held.states, 2u) << "the step has both";
  // Its place in the queue is free, its seat is not.
  auto third = rig.engine->submit(on_one(3)), fourth = rig.engine->submit(on_one(4));
  EXPECT_TRUE(third && fourth);
  EXPECT_FALSE(rig.engine->submit(on_one(5)));
  gate.open();
  uint64_t seed = 2;
  for (auto* ticket : {&other, &third, &fourth}) {
    const Answer answer = read_answer(**ticket);
    EXPECT_EQ(answer.finished.reason, FinishReason::kLength) << answer.finished.error.message;
    EXPECT_EQ(answer.tokens, expected_of(on_one(seed++)));
  }
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().states == 0; }));
  EXPECT_EQ(rig.engine->usage().state_bytes, 0u);
  EXPECT_EQ(rig.live_states(), 0);
}

// The engine's end is told at once too, and waits for the step.
TEST(EndedEarly, TheEngineWaitsForTheStep) {
  Gate both, gate;
  Rig rig({}, {held_when_shared(both, gate)});
  auto first = rig.engine->submit(on_one(1)), other = rig.engine->submit(on_one(2));
  ASSERT_TRUE(first && other);
  ASSERT_TRUE(comes_true([&] { return rig.engine->usage().requests == 2; }));
  both.open();
  gate.wait_for_arrival();
  rig.engine->shutdown();
  EXPECT_EQ(read_answer(*first).finished.reason, FinishReason::kCancelled);
  EXPECT_EQ(read_answer(*other).finished.reason, FinishReason::kCancelled);
  EXPECT_EQ(rig.live_states(), 2);
  gate.open();
  EXPECT_EQ(rig.engine->close(), std::vector<std::string>{});
  EXPECT_EQ(rig.live_states(), 0);
}

// What is the caller's is not asked behind the FinishedEvent, and not for longer than it must: until it is refused.
class AskedOfTheCaller {
 public:
  // In the caller's place; `act` may go on until it is refused.
  template <class Act>
  Status asked(Act act) {
    asking_ = true;
    gate_.pass();
    Status status;
    while (status) status = act();
    code_ = status.error().code;
    std::this_thread::sleep_for(milliseconds(20));
    asking_ = false;
    return status;
  }
  void cancel_meanwhile(Request request) {
    Rig rig({}, {{}});
    auto ticket = rig.engine->submit(std::move(request));
    ASSERT_TRUE(ticket);
    gate_.wait_for_arrival();
    gate_.open();
    ticket->cancel();
    EXPECT_EQ(read_answer(*ticket).finished.reason, FinishReason::kCancelled);
    EXPECT_FALSE(asking_);
    EXPECT_EQ(code_, Code::kCancelled);
  }

 private:
  Gate gate_;
  bool asking_ = false;
  Code code_ = Code::kInternal;
};

TEST(EndedEarly, NotWhileTheTakerIsAsked) {
  AskedOfTheCaller caller;
  Request request = on_one(1);
  request.seal_to = [&](const SealSource& state) {
    return caller.asked([&] { return state.give([](uint64_t, std::span<const std::byte>) -> Status { return {}; }); });
  };
  caller.cancel_meanwhile(std::move(request));
}

TEST(EndedEarly, NotWhileTheSourceIsAsked) {
  AskedOfTheCaller caller;
  Request request = on_one(1);
  request.start_state =
      SealSource(1000, [&](const SealSink& sink) { return caller.asked([&] { return sink(0, {}); }); });
  caller.cancel_meanwhile(std::move(request));
}

}  // namespace
}  // namespace baton::fake
