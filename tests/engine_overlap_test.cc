// The strategy overlap in an engine with threads: streams beside steps, room that comes late, steps and requests that
// end amid a stream.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

Request overlap_request(size_t prompt, uint64_t seed = 1) {
  Request request = make_request(prompt, 6, seed);
  request.strategy = "overlap";
  return request;
}

Behaviour steps_of_8(bool tells) {
  return {.storage = {DType::kF16, true}, .prefill_tokens_preferred = 8, .tells_layers = tells};
}

TEST(EngineOverlap, AnswersAreRightHoweverLayersAreTold) {
  for (const bool tells : {false, true}) {
    Rig rig({}, {steps_of_8(tells), {}});
    for (const size_t prompt : {2u, 8u, 9u, 10u, 17u, 200u}) {
      const Request request = overlap_request(prompt);
      const Answer answer = run(*rig.engine, request);
      EXPECT_EQ(answer.tokens, expected_of(request)) << prompt;
      const BridgeStats& bridge = answer.finished.stats.bridge;
      EXPECT_EQ(answer.finished.stats.fallback, "");
      EXPECT_EQ(bridge.kind, BridgeKind::kMove);
      EXPECT_TRUE(bridge.verified);
      EXPECT_EQ(bridge.bytes, section_bytes(rig.units[0]->shape(), prompt - 1));
      EXPECT_TRUE(bridge.hidden_ms >= 0 && bridge.hidden_ms <= bridge.ms);
      const FirstTokenTimes& times = answer.finished.stats.first_token;
      EXPECT_NEAR(times.sum(), answer.finished.stats.ttft_ms, 0.5);
    }
    EXPECT_EQ(rig.live_states(), 0);
  }
}

// Units whose states have memory alike: it changes hands; but where a checkpoint is due at its end, which is the
// source's, it is copied.
TEST(EngineOverlap, AlikeMemoryChangesHands) {
  for (const std::string_view strategy : {"handoff", "overlap"}) {
    Behaviour source = steps_of_8(true), target;
    source.storage = target.storage = {DType::kF16, true, true};
    EngineLimits limits;
    limits.checkpoint_bytes_max = uint64_t{1} << 20;
    Rig rig(limits, {source, target});
    for (const bool keeps : {false, true}) {
      Request request = overlap_request(193);
      request.strategy = strategy;
      if (keeps) request.reuse = ReuseMode::kExact;
      const Answer answer = run(*rig.engine, request);
      EXPECT_EQ(answer.tokens, expected_of(request));
      const BridgeStats& bridge = answer.finished.stats.bridge;
      EXPECT_EQ(answer.finished.stats.fallback, "");
      const bool copied = keeps && strategy == "overlap";
      EXPECT_EQ(bridge.kind, copied ? BridgeKind::kMove : BridgeKind::kAdopt) << strategy;
      EXPECT_EQ(bridge.bytes, copied ? section_bytes(rig.units[0]->shape(), 192) : 0);
      EXPECT_EQ(bridge.level, BridgeLevel::kSealed);
      EXPECT_TRUE(bridge.verified);
      EXPECT_EQ(answer.finished.stats.kept_checkpoints > 0, keeps);
    }
    EXPECT_EQ(rig.live_states(), 0);
  }
}

TEST(EngineOverlap, SeveralAtOnceDoNotMix) {
  Behaviour source = steps_of_8(true);
  source.prefill_seats_shared = 4;
  Rig rig({}, {source, {.decode_seats_max = 4}});
  std::vector<Request> requests;
  std::vector<Ticket> tickets;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    requests.push_back(overlap_request(seed % 2 == 0 ? 4 : 60, seed));
    auto ticket = rig.engine->submit(requests.back());
    ASSERT_TRUE(ticket);
    tickets.push_back(std::move(*ticket));
  }
  for (size_t i = 0; i < tickets.size(); ++i) EXPECT_EQ(read_answer(tickets[i]).tokens, expected_of(requests[i])) << i;
  EXPECT_EQ(rig.engine->usage().states, 0u);
}

// Another answer holds the decode unit: the prefill goes on without room, and the state is carried behind it.
TEST(EngineOverlap, DoesNotWaitBehindOthersForRoom) {
  Gate gate;
  std::atomic<bool> first{true};
  Rig rig({}, {steps_of_8(true), {.before = [&](Act act, size_t) -> Status {
                 if (act == Act::kDecode && first.exchange(false)) gate.pass();
                 return {};
               }}});
  Request other = make_request(3, 2, 9);
  other.prefill_unit = "b";
  auto held = rig.engine->submit(other);
  ASSERT_TRUE(held);
  gate.wait_for_arrival();
  const Request request = overlap_request(30);
  auto ticket = rig.engine->submit(request);
  ASSERT_TRUE(ticket);
  const auto limit = steady_clock::now() + kPatience;
  while (rig.units[0]->prefilled_tokens() < 29 && steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(rig.units[0]->prefilled_tokens(), 29u);
  gate.open();
  EXPECT_EQ(read_answer(*ticket).tokens, expected_of(request));
  EXPECT_EQ(read_answer(*held).tokens, expected_of(other));
}

TEST(EngineOverlap, APrefillThatFailsAmidAStreamFallsBack) {
  for (const bool tells : {false, true}) {
    std::atomic<int> calls{0};
    Behaviour source = steps_of_8(tells);
    source.before = [&](Act act, size_t) -> Status {
      return act == Act::kPrefill && ++calls == 3 ? fail(Code::kDevice, "injected failure") : Status();
    };
    Rig rig({}, {source, {}});
    const Request request = overlap_request(60);
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.tokens, expected_of(request));
    EXPECT_NE(answer.finished.stats.fallback.find("injected failure"), std::string::npos);
    EXPECT_EQ(answer.finished.stats.bridge.kind, BridgeKind::kNone);
    EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
  }
}

TEST(EngineOverlap, ACancelAmidAStreamLeavesNothing) {
  Gate gate;
  std::atomic<int> calls{0};
  Behaviour source = steps_of_8(true);
  source.before = [&](Act act, size_t) -> Status {
    if (act == Act::kPrefill && ++calls == 3) gate.pass();
    return {};
  };
  Rig rig({}, {source, {}});
  auto ticket = rig.engine->submit(overlap_request(60));
  ASSERT_TRUE(ticket);
  gate.wait_for_arrival();
  ticket->cancel();
  gate.open();
  EXPECT_EQ(read_answer(*ticket).finished.reason, FinishReason::kCancelled);
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().states == 0; }));
  EXPECT_EQ(rig.live_states(), 0);
}

}  // namespace
}  // namespace baton::fake
