// The engine with its threads, over fake units: many requests at once, cancels, bounds, shutdown, failures. Also what
// ThreadSanitizer watches.
#include "baton/engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

// From cancel to the FinishedEvent. Sanitizers slow the threads, not the sleeping units.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr auto kCancelBound = milliseconds(300);
#else
constexpr auto kCancelBound = milliseconds(100);
#endif

TEST(Engine, UnitThatOnlyPrefillsAndItsWarning) {
  Rig rig({}, {{.decode_seats_max = 0, .warning = "asked for one device, ran on another"}, {}});
  Request request = make_request(9, 4, 1);
  request.prefill_unit = "a";
  request.decode_unit = "b";
  const Answer answer = run(*rig.engine, std::move(request));
  EXPECT_EQ(answer.finished.stats.prefill.ran, "a");
  EXPECT_EQ(answer.finished.stats.prefill.warning, "asked for one device, ran on another");
  EXPECT_EQ(answer.finished.stats.decode.warning, "");
  EXPECT_EQ(rig.engine->usage().prefilled, 8u);  // all but the last token, once
  Request other = make_request(9, 4, 2);
  other.prefill_unit = other.decode_unit = "a";
  other.strategy = "single";
  const auto refused = rig.engine->submit(std::move(other));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("only prefills"), std::string::npos) << refused.error().message;
}

TEST(Engine, ManyRequestsAtOnceOnTheSameUnits) {
  Rig rig({}, {{.storage = {DType::kF32, true}}, {.storage = {DType::kF16, false}, .decode_seats_max = 4}});
  constexpr size_t kThreads = 4, kEach = 12;
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < kThreads; ++caller) {
    callers.emplace_back([&rig, caller] {
      for (size_t i = 0; i < kEach; ++i) {
        const uint64_t seed = caller * kEach + i;
        Request request = make_request(1 + seed * 7 % 40, static_cast<uint32_t>(seed % 20), seed);
        if (seed % 3 == 0) request.sampler = {.temperature = 0.9f, .top_k = 6, .seed = seed, .banned_ids = {}};
        request.verify = static_cast<VerifyMode>(seed % 3);
        if (seed % 4 == 1) request.strategy = "single", request.prefill_unit = "b";
        if (seed % 5 == 0) request.prefill_unit = "b";
        const std::vector<int32_t> expected = expected_of(request);
        const Answer answer = run(*rig.engine, std::move(request));
        EXPECT_EQ(answer.tokens, expected) << "seed " << seed;
        EXPECT_EQ(answer.finished.reason, FinishReason::kLength);
        EXPECT_EQ(answer.finished.stats.fallback, "");
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const EngineUsage usage = rig.engine->usage();
  EXPECT_EQ(usage.requests, 0u);
  EXPECT_EQ(usage.states, 0u);
  EXPECT_EQ(usage.state_bytes, 0u);
  EXPECT_EQ(rig.live_states(), 0);
}

TEST(Engine, SequencesThatAreReadyTogetherShareDecodeSteps) {
  const auto slow = [](Act act, size_t) -> Status {
    if (act == Act::kDecode) std::this_thread::sleep_for(milliseconds(1));
    return {};
  };
  Rig rig({}, {{}, {.decode_seats_max = 4, .before = slow}});
  std::vector<Ticket> tickets;
  for (uint64_t seed = 0; seed < 4; ++seed) tickets.push_back(*rig.engine->submit(make_request(5, 40, seed)));
  for (Ticket& ticket : tickets) EXPECT_EQ(read_answer(ticket).tokens.size(), 40u);
  // Alone they would take 160.
  EXPECT_LT(rig.units[1]->decode_calls(), 120u);
}

// Submits the first, waits until the lane is held in it, then submits the others and lets go.
std::vector<Answer> run_behind(Engine& engine, Gate& gate, const std::vector<Request>& requests) {
  std::vector<Ticket> tickets;
  for (const Request& request : requests) {
    tickets.push_back(*engine.submit(request));
    if (tickets.size() == 1) gate.wait_for_arrival();
  }
  while (engine.usage().requests < requests.size()) std::this_thread::sleep_for(milliseconds(1));
  gate.open();
  std::vector<Answer> answers;
  for (Ticket& ticket : tickets) answers.push_back(read_answer(ticket));
  return answers;
}

Behaviour sharing_prefills(Gate& gate, std::function<Status(Act)> then = nullptr) {
  Behaviour behaviour;
  behaviour.prefill_tokens_preferred = behaviour.prefill_tokens_min = 64;
  behaviour.prefill_seats_shared = 16;
  behaviour.before = [&gate, then = std::move(then)](Act act, size_t) -> Status {
    if (act == Act::kPrefill) gate.pass();
    return then ? then(act) : Status();
  };
  return behaviour;
}

// A step takes 64 tokens: behind the first, four prompts of 14 tokens (13 of them are prefilled), then the fifth.
TEST(Engine, ShortPromptsThatWaitTogetherSharePrefillSteps) {
  Gate gate;
  Rig rig({}, {sharing_prefills(gate), {.decode_seats_max = 4}});
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    requests.push_back(make_request(14, 5, seed));
    requests.back().verify = static_cast<VerifyMode>(seed % 3);
  }
  const std::vector<Answer> answers = run_behind(*rig.engine, gate, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i].tokens, expected_of(requests[i])) << i;
    EXPECT_EQ(answers[i].finished.stats.fallback, "");
    EXPECT_EQ(answers[i].finished.stats.prefill_tokens, 13u);
    EXPECT_EQ(answers[i].finished.stats.prefill.ran, "a");
    EXPECT_EQ(answers[i].finished.stats.bridge.verified, true);
    EXPECT_EQ(answers[i].finished.stats.bridge.level, i % 3 == 0 ? BridgeLevel::kSealed : BridgeLevel::kProven);
  }
  EXPECT_EQ(rig.units[0]->prefilled_tokens(), 6 * 13u);
  EXPECT_EQ(rig.units[0]->prefill_calls(), 3u);
  EXPECT_EQ(rig.live_states(), 0);
}

// The long one goes by itself, a step after the other; the short ones behind it share one.
TEST(Engine, LongPromptsDoNotShareTheirSteps) {
  Gate gate;
  Rig rig({.prefill_factor_max = 1}, {sharing_prefills(gate), {.decode_seats_max = 4}});
  std::vector<Request> requests = {make_request(2, 2, 1), make_request(1 + 2 * 64, 2, 2), make_request(9, 2, 3),
                                   make_request(20, 2, 4)};
  const std::vector<Answer> answers = run_behind(*rig.engine, gate, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[i].tokens, expected_of(requests[i])) << i;
  EXPECT_EQ(rig.units[0]->prefill_calls(), 4u);
}

TEST(Failure, OfASharedPrefillTakesNobodyDown) {
  // The second prefill is the first of a shared step: all in it begin again, each in steps of its own.
  Gate gate;
  const auto fails = [calls = 0](Act act) mutable -> Status {
    if (act != Act::kPrefill || ++calls != 2) return {};
    return fail(Code::kDevice, "the fake device failed");
  };
  Rig rig({}, {sharing_prefills(gate, fails)});
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    requests.push_back(make_request(10, 5, seed));
    requests.back().strategy = "single";
    requests.back().prefill_unit = requests.back().decode_unit = "a";
  }
  const std::vector<Answer> answers = run_behind(*rig.engine, gate, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i].finished.reason, FinishReason::kLength);
    EXPECT_EQ(answers[i].tokens, expected_of(requests[i])) << i;
    EXPECT_EQ(answers[i].finished.stats.fallback, i == 0 ? "" : "prefill on 'a': the fake device failed");
  }
  EXPECT_EQ(rig.units[0]->prefill_calls(), 5u);  // the first, the shared one, and three
}

TEST(Engine, SaysWhatRanWhere) {
  Rig rig({}, {{}, {}});
  Request request = make_request(20, 5);
  request.verify = VerifyMode::kSample;
  const RequestStats stats = run(*rig.engine, request).finished.stats;
  EXPECT_EQ(stats.prompt_tokens, 20u);
  EXPECT_EQ(stats.generated_tokens, 5u);
  EXPECT_EQ(stats.prefill.asked, "a");
  EXPECT_EQ(stats.prefill.ran, "a");
  EXPECT_EQ(stats.prefill.evidence, "hashes on the host");
  EXPECT_EQ(stats.prefill_tokens, 19u);
  EXPECT_EQ(stats.decode.ran, "b");
  EXPECT_EQ(stats.bridge.kind, BridgeKind::kMove);
  EXPECT_GT(stats.bridge.bytes, 19 * 8 * 4u);
  EXPECT_TRUE(stats.bridge.verified);
  EXPECT_EQ(stats.bridge.level, BridgeLevel::kProven);
  EXPECT_EQ(stats.bridge.states, 1u);
  EXPECT_EQ(stats.bridge.checked, 1u);
  EXPECT_EQ(stats.bridge.agreement(), 1.0);
  EXPECT_EQ(stats.bridge.max_abs_dlogit, 0.0);
  EXPECT_GT(stats.ttft_ms, 0);
  EXPECT_GT(stats.prefill_tps, 0);
  EXPECT_GT(stats.decode_tps, 0);
  EXPECT_EQ(rig.units[0]->prefilled_tokens(), 19u);
  EXPECT_EQ(rig.units[1]->prefilled_tokens(), 19u);  // of the proof
}

// A unit that takes `per_token` for each prompt token and `per_step` for each decode step.
Behaviour slow_unit(milliseconds per_token, milliseconds per_step) {
  return {.before = [=](Act act, size_t count) -> Status {
    if (act == Act::kPrefill) std::this_thread::sleep_for(per_token * count);
    if (act == Act::kDecode) std::this_thread::sleep_for(per_step);
    return {};
  }};
}

void expect_prompt_cancel(Request request, milliseconds wait) {
  Rig rig({}, {slow_unit(milliseconds(3), milliseconds(3)), slow_unit(milliseconds(3), milliseconds(3))});
  auto ticket = rig.engine->submit(std::move(request));
  ASSERT_TRUE(ticket);
  std::this_thread::sleep_for(wait);
  const auto before = steady_clock::now();
  ticket->cancel();
  ticket->cancel();
  const Answer answer = read_answer(*ticket);
  const auto took = steady_clock::now() - before;
  EXPECT_EQ(answer.finished.reason, FinishReason::kCancelled);
  EXPECT_LT(took, kCancelBound);
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().states == 0; }));
  EXPECT_EQ(rig.live_states(), 0);
}

TEST(Cancel, TakesEffectWithin100MsDuringPrefill) { expect_prompt_cancel(make_request(1500, 5), milliseconds(400)); }
TEST(Cancel, TakesEffectWithin100MsDuringDecode) { expect_prompt_cancel(make_request(3, 1000), milliseconds(300)); }
TEST(Cancel, TakesEffectWithin100MsDuringTheProof) {
  Request request = make_request(3, 1000);
  request.verify = VerifyMode::kAll;
  expect_prompt_cancel(std::move(request), milliseconds(300));
}

// A stop ends the answer like a stop token: what the prompt left is still given.
TEST(Stop, GivesTheStateAndTheLogitsWheneverItComes) {
  for (const int after : {1, 2, 7}) {
    for (const bool moves : {true, false}) {
      Rig rig({}, {slow_unit(milliseconds(0), milliseconds(2)), slow_unit(milliseconds(0), milliseconds(2))});
      Request request = make_request(9, 1000);
      if (!moves) request.prefill_unit = "b";
      request.want_sealed_state = request.want_logits = true;
      auto ticket = rig.engine->submit(request);
      ASSERT_TRUE(ticket);
      for (int tokens = 0; tokens < after;) tokens += ticket->next_event(kPatience).has_value() ? 1 : 0;
      ticket->stop();
      ticket->stop();
      const Answer answer = read_answer_after(*ticket, static_cast<size_t>(after));
      EXPECT_EQ(answer.finished.reason, FinishReason::kStop) << after;
      EXPECT_EQ(answer.finished.stop_id, -1);
      EXPECT_FALSE(answer.finished.sealed_state.empty()) << "after " << after << " tokens";
      EXPECT_EQ(answer.finished.logits.size(), static_cast<size_t>(kVocab));
      EXPECT_LT(answer.finished.stats.generated_tokens, 1000u);
      EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
    }
  }
}

TEST(Stop, BeforeTheFirstTokenItIsACancel) {
  Rig rig({}, {slow_unit(milliseconds(3), milliseconds(3)), slow_unit(milliseconds(3), milliseconds(3))});
  auto ticket = rig.engine->submit(make_request(1500, 5));
  ASSERT_TRUE(ticket);
  ticket->stop();
  EXPECT_EQ(read_answer(*ticket).finished.reason, FinishReason::kCancelled);
}

// What was made before a cancel came is not thrown away.
TEST(Cancel, KeepsTheStateAndTheLogitsThatAreFinal) {
  Rig rig({}, {slow_unit(milliseconds(0), milliseconds(2)), slow_unit(milliseconds(0), milliseconds(2))});
  Request request = make_request(9, 1000);
  request.want_sealed_state = request.want_logits = true;
  auto ticket = rig.engine->submit(request);
  ASSERT_TRUE(ticket);
  for (int tokens = 0; tokens < 5;) tokens += ticket->next_event(kPatience).has_value() ? 1 : 0;
  ticket->cancel();
  const Answer answer = read_answer_after(*ticket, 5);
  EXPECT_EQ(answer.finished.reason, FinishReason::kCancelled);
  EXPECT_FALSE(answer.finished.sealed_state.empty());
  EXPECT_EQ(answer.finished.logits.size(), static_cast<size_t>(kVocab));
}

// The parts of the time to the first token are the whole of it, whatever the request needs before it.
TEST(FirstToken, PartsAddUp) {
  Rig rig({}, {slow_unit(milliseconds(1), milliseconds(4)), slow_unit(milliseconds(1), milliseconds(4))});
  Request plain = make_request(30, 3);
  plain.prefill_unit = "b";
  plain.strategy = "single";
  Request moved = make_request(30, 3), proven = make_request(30, 3), saved = make_request(30, 3);
  proven.verify = VerifyMode::kAll;
  saved.want_sealed_state = true;
  Request single = make_request(1, 3);
  Answer answers[] = {run(*rig.engine, plain), run(*rig.engine, moved), run(*rig.engine, proven),
                      run(*rig.engine, saved), run(*rig.engine, single)};
  Request resumed = make_request(30, 3);
  resumed.tokens.push_back(3);
  resumed.start_state = SealSource::owned(std::move(answers[3].finished.sealed_state));
  const Answer opened = run(*rig.engine, resumed);
  EXPECT_EQ(opened.finished.stats.reused_tokens, 30u);
  const Answer* all[] = {&answers[0], &answers[1], &answers[2], &answers[3], &answers[4], &opened};
  for (const Answer* answer : all) {
    const RequestStats& stats = answer->finished.stats;
    const FirstTokenTimes& times = stats.first_token;
    EXPECT_GT(stats.ttft_ms, 0);
    EXPECT_NEAR(times.sum(), stats.ttft_ms, 1e-6);
    for (const double part : {times.queue_ms, times.waiting_ms, times.prefill_ms, times.move_ms, times.keep_ms,
                              times.proof_ms, times.first_decode_ms})
      EXPECT_GE(part, 0);
    EXPECT_GE(times.first_decode_ms, 3.9);
    EXPECT_EQ(stats.queue_ms, times.queue_ms);
  }
  EXPECT_GE(answers[0].finished.stats.first_token.prefill_ms, 28);
  EXPECT_EQ(answers[0].finished.stats.first_token.move_ms, 0);
  EXPECT_GT(answers[1].finished.stats.first_token.move_ms, 0);
  EXPECT_EQ(answers[1].finished.stats.first_token.proof_ms, 0);
  EXPECT_LT(answers[4].finished.stats.first_token.prefill_ms, 1) << "only the state was made";
  EXPECT_EQ(answers[0].finished.stats.reused_tokens, 0u);
}

// A waits for B's lane: the time is called waiting, not prefill.
TEST(FirstToken, WaitingForOthersIsNotOnesOwnWork) {
  Rig rig({}, {slow_unit(milliseconds(0), milliseconds(0)), slow_unit(milliseconds(5), milliseconds(0))});
  Request first = make_request(60, 1, 1), second = make_request(8, 1, 2);
  first.prefill_unit = second.prefill_unit = "b";
  first.strategy = second.strategy = "single";
  auto a = rig.engine->submit(first), b = rig.engine->submit(second);
  ASSERT_TRUE(a && b);
  read_answer(*a);
  const RequestStats stats = read_answer(*b).finished.stats;
  EXPECT_GT(stats.first_token.waiting_ms, 20);
  EXPECT_NEAR(stats.first_token.sum(), stats.ttft_ms, 1e-6);
}

// A cancel while the last unit makes room: the answer is the via unit's, and so is its state.
TEST(Relay, EndsBetweenItsHandOversAsWhatItIs) {
  for (const size_t prompt : {size_t{1}, size_t{5}}) {
    std::atomic<bool> cancelled{false};
    Behaviour last;
    last.before = [&cancelled](Act act, size_t) -> Status {
      while (act == Act::kNewState && !cancelled) std::this_thread::sleep_for(milliseconds(1));
      return {};
    };
    Rig rig({}, {{}, {}, last});
    Request request = make_request(prompt, 60);
    request.via_unit = "b";
    request.decode_unit = "c";
    request.via_bounds = exact_bounds();
    request.verify = VerifyMode::kSample;
    request.want_answer_state = true;
    auto ticket = rig.engine->submit(std::move(request));
    ASSERT_TRUE(ticket) << ticket.error().message;
    for (int i = 0; i < 16; ++i) ASSERT_TRUE(ticket->next_event(std::chrono::seconds(20)));
    ticket->cancel();
    cancelled = true;
    const Answer answer = read_answer_after(*ticket, 16);
    EXPECT_EQ(answer.finished.reason, FinishReason::kCancelled);
    EXPECT_EQ(answer.finished.stats.via_tokens, 16u);
    EXPECT_EQ(answer.finished.stats.decode.ran, "");
    const BridgeStats& bridge = answer.finished.stats.bridge;
    EXPECT_EQ(bridge.level, prompt > 1 ? BridgeLevel::kProven : BridgeLevel::kNone);
    EXPECT_EQ(bridge.verified, prompt > 1);
    EXPECT_EQ(bridge.unproven.empty(), prompt > 1);
    EXPECT_EQ(answer.finished.answer_state_tokens, prompt + 15);
    EXPECT_FALSE(answer.finished.answer_state.empty());
  }
}

TEST(Cancel, ADroppedTicketCancels) {
  Rig rig({}, {slow_unit(milliseconds(1), milliseconds(1)), slow_unit(milliseconds(1), milliseconds(1))});
  {
    auto ticket = rig.engine->submit(make_request(100, 1000));
    ASSERT_TRUE(ticket);
    std::this_thread::sleep_for(milliseconds(30));
  }
  EXPECT_TRUE(comes_true([&] { return rig.engine->usage().requests == 0; }));
  EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
}

TEST(Queue, IsBoundedAndSaysSo) {
  Gate gate;
  EngineLimits limits;
  limits.requests_active_max = 1;
  limits.requests_queued_max = 1;
  const auto held = [&](Act, size_t) -> Status {
    gate.pass();
    return {};
  };
  Rig rig(limits, {{}, {.before = held}});
  auto running = rig.engine->submit(make_request(4, 3, 1));
  gate.wait_for_arrival();
  auto waiting = rig.engine->submit(make_request(4, 3, 2));
  ASSERT_TRUE(running && waiting);
  const auto refused = rig.engine->submit(make_request(4, 3, 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  EXPECT_NE(refused.error().message.find("queue full"), std::string::npos);
  waiting->cancel();
  EXPECT_EQ(read_answer(*waiting).finished.reason, FinishReason::kCancelled);  // without waiting for the other
  gate.open();
  EXPECT_EQ(read_answer(*running).tokens, expected_of(make_request(4, 3, 1)));
  EXPECT_EQ(run(*rig.engine, make_request(4, 3, 3)).tokens, expected_of(make_request(4, 3, 3)));
}

TEST(Shutdown, EndsEverythingWhileBusy) {
  EngineLimits limits;
  limits.requests_active_max = 3;
  Rig rig(limits, {slow_unit(milliseconds(1), milliseconds(1)), slow_unit(milliseconds(1), milliseconds(1))});
  std::vector<Ticket> tickets;
  for (uint64_t seed = 0; seed < 10; ++seed) tickets.push_back(*rig.engine->submit(make_request(50, 1000, seed)));
  std::this_thread::sleep_for(milliseconds(150));
  rig.engine->shutdown();
  rig.engine->shutdown();
  for (Ticket& ticket : tickets) EXPECT_EQ(read_answer(ticket).finished.reason, FinishReason::kCancelled);
  const auto refused = rig.engine->submit(make_request(4, 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCancelled);
  tickets.clear();
  rig.engine.reset();
  EXPECT_EQ(rig.live_states(), 0);
}

// A submit that passed the door before it closed may reach the scheduler behind the stop: it ends as the others do. The
// order is the threads' luck; of 200 rounds some have it.
TEST(Shutdown, EndsWhatIsSubmittedAtTheSameTime) {
  EngineLimits limits;
  limits.requests_active_max = 8;
  for (int round = 0; round < 200; ++round) {
    Rig rig(limits, {{}, {}});
    std::atomic<int> ready{0};
    std::mutex mutex;
    std::vector<Ticket> tickets;
    std::vector<std::thread> callers;
    for (uint64_t caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&, caller] {
        ++ready;
        while (ready < 5) std::this_thread::yield();
        auto ticket = rig.engine->submit(make_request(20, 2000, caller));
        if (!ticket) return;
        const std::scoped_lock lock(mutex);
        tickets.push_back(*std::move(ticket));
      });
    }
    ++ready;
    while (ready < 5) std::this_thread::yield();
    rig.engine->shutdown();
    for (std::thread& caller : callers) caller.join();
    for (Ticket& ticket : tickets) {
      const Answer answer = read_answer(ticket);
      ASSERT_EQ(answer.finished.reason, FinishReason::kCancelled) << "round " << round << " " << answer.tokens.size();
    }
    tickets.clear();
  }
}

TEST(Shutdown, DestructionWhileBusyWithoutTickets) {
  Rig rig({}, {slow_unit(milliseconds(1), milliseconds(1)), slow_unit(milliseconds(1), milliseconds(1))});
  for (uint64_t seed = 0; seed < 5; ++seed) ASSERT_TRUE(rig.engine->submit(make_request(50, 1000, seed)));
  std::vector<Ticket> kept;
  kept.push_back(*rig.engine->submit(make_request(50, 1000, 9)));
  std::this_thread::sleep_for(milliseconds(30));
  kept.clear();
  rig.engine.reset();
  EXPECT_EQ(rig.live_states(), 0);
}

Behaviour failing(Act which, int from_call, Code code = Code::kDevice) {
  return {.before = [=, calls = std::make_shared<std::atomic<int>>(0)](Act act, size_t) -> Status {
    if (act != which || (*calls)++ < from_call) return {};
    return fail(code, "the fake device failed");
  }};
}

TEST(Failure, OfThePrefillUnitFallsBackToTheDecodeUnit) {
  for (const Act act : {Act::kNewState, Act::kPrefill}) {
    Rig rig({}, {failing(act, 0), {}});
    const Request request = make_request(30, 6);
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.tokens, expected_of(request));
    EXPECT_EQ(answer.finished.stats.fallback, "prefill on 'a': the fake device failed");
    EXPECT_EQ(answer.finished.stats.prefill.asked, "a");
    EXPECT_EQ(answer.finished.stats.prefill.ran, "b");
    EXPECT_FALSE(answer.finished.stats.bridge.verified);
  }
}

TEST(Failure, OfDecodeEndsTheRequestAndNoOther) {
  Rig rig({}, {{}, failing(Act::kDecode, 3), {}});
  Request other = make_request(9, 200, 2);
  other.decode_unit = "c";
  auto good = rig.engine->submit(other);
  const Answer bad = run(*rig.engine, make_request(9, 20));
  EXPECT_EQ(bad.finished.reason, FinishReason::kError);
  EXPECT_EQ(bad.finished.error.code, Code::kDevice);
  EXPECT_EQ(bad.finished.error.message, "decode on 'b': the fake device failed");
  EXPECT_EQ(bad.tokens.size(), 3u);
  EXPECT_EQ(read_answer(*good).tokens, expected_of(other));
  EXPECT_EQ(rig.live_states(), 0);
}

TEST(Failure, OfASharedStepTakesNobodyDown) {
  // The first decode call of two rows fails: both begin again from their tokens, each in steps of its own.
  const auto fails = [failed = false](Act act, size_t seats) mutable -> Status {
    if (act == Act::kDecode) std::this_thread::sleep_for(milliseconds(1));
    if (act != Act::kDecode || seats < 2 || std::exchange(failed, true)) return {};
    return fail(Code::kDevice, "the fake device failed");
  };
  Rig rig({}, {{}, {.decode_seats_max = 2, .before = fails}});
  std::vector<Request> requests = {make_request(6, 60, 1), make_request(9, 60, 2)};
  requests[0].sampler = {.temperature = 0.9f, .top_k = 6, .seed = 5, .banned_ids = {}};
  std::vector<Ticket> tickets;
  for (const Request& request : requests) tickets.push_back(*rig.engine->submit(request));
  for (size_t i = 0; i < 2; ++i) {
    const Answer answer = read_answer(tickets[i]);
    EXPECT_EQ(answer.tokens, expected_of(requests[i]));
    EXPECT_EQ(answer.finished.stats.fallback, "decode on 'b': the fake device failed");
    EXPECT_FALSE(answer.finished.stats.bridge.verified);
  }
}

TEST(Engine, StopsAtAStopIdWithinAStepOfManyTokens) {
  Rig rig({}, {{}, {}});
  Request request = make_request(7, 300, 3);
  const std::vector<int32_t> whole = expected_of(request);
  request.stop_ids = {whole[20]};
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request));
  EXPECT_LE(answer.tokens.size(), 20u);
  EXPECT_EQ(answer.finished.reason, FinishReason::kStop);
  EXPECT_EQ(answer.finished.stop_id, whole[20]);
  request.ignore_eos = true;
  EXPECT_EQ(run(*rig.engine, request).tokens, whole);
}

// Of the prefill's unit: its request falls back, as do those that wait. Of the decode's: they end.
TEST(Failure, ALostUnitGetsNoMoreWork) {
  for (const bool decodes : {false, true}) {
    Behaviour losing;
    std::atomic<int> acts = 0;
    losing.before = [&](Act act, size_t) -> Status {
      if (act == Act::kNewState || ++acts == 1) return {};
      return fail(Code::kUnavailable, "the fake device was unplugged");
    };
    Behaviour behaviours[2];
    behaviours[decodes ? 1 : 0] = losing;
    Rig rig({.requests_active_max = 1}, {behaviours[0], behaviours[1]});
    const Request request = make_request(20, 6);
    std::vector<Ticket> tickets;
    for (int i = 0; i < 3; ++i) {
      auto ticket = rig.engine->submit(make_request(20, 6));
      if (ticket) tickets.push_back(std::move(*ticket));
    }
    ASSERT_FALSE(tickets.empty());
    for (Ticket& ticket : tickets) {
      const Answer answer = read_answer(ticket);
      if (decodes) {
        EXPECT_EQ(answer.finished.reason, FinishReason::kError);
        EXPECT_EQ(answer.finished.error.code, Code::kUnavailable);
        EXPECT_NE(answer.finished.error.message.find("unplugged"), std::string::npos);
      } else {
        EXPECT_EQ(answer.tokens, expected_of(request));
        EXPECT_NE(answer.finished.stats.fallback.find("unplugged"), std::string::npos);
      }
    }
    EXPECT_EQ(acts, 2) << "the lost unit was called again";
    const auto refused = rig.engine->submit(request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    EXPECT_NE(refused.error().message.find("ask for another unit"), std::string::npos) << refused.error().message;
    Request other = make_request(20, 6);
    other.prefill_unit = other.decode_unit = decodes ? "a" : "b";
    EXPECT_EQ(run(*rig.engine, other).tokens, expected_of(other));
  }
}

TEST(Failure, OfMemoryIsAnErrorWhenNothingIsLeftToFallBackTo) {
  Rig rig({}, {{}, failing(Act::kNewState, 0, Code::kOutOfMemory)});
  const Answer answer = run(*rig.engine, make_request(9, 20));
  EXPECT_EQ(answer.finished.reason, FinishReason::kError);
  EXPECT_EQ(answer.finished.error.code, Code::kOutOfMemory);
  EXPECT_TRUE(answer.tokens.empty());
}

TEST(SealedState, GoesOnInAnotherRequestOrIsRefused) {
  Rig rig({}, {{.storage = {DType::kF16, true}}, {}});
  Request first = make_request(12, 4);
  first.want_sealed_state = true;
  first.want_logits = true;
  const Answer saved = run(*rig.engine, first);
  EXPECT_EQ(saved.tokens, expected_of(first));
  EXPECT_EQ(saved.finished.logits, expected_logits(first.tokens));
  ASSERT_FALSE(saved.finished.sealed_state.empty());

  Request next = make_request(20, 5);  // begins with the same 12 tokens
  next.start_state = SealSource::borrowed(saved.finished.sealed_state);
  next.verify = VerifyMode::kSample;
  const Answer answer = run(*rig.engine, next);
  EXPECT_EQ(answer.tokens, expected_of(next)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.prefill_tokens, 7u);
  EXPECT_EQ(answer.finished.stats.bridge.states, 2u) << "where it was opened, and at the hand-over";
  EXPECT_EQ(answer.finished.stats.bridge.checked, 1u);
  EXPECT_EQ(answer.finished.stats.bridge.level, BridgeLevel::kProven);
  next.start_bounds.reset();
  const Answer sealed = run(*rig.engine, next);
  EXPECT_EQ(sealed.tokens, expected_of(next));
  EXPECT_EQ(sealed.finished.stats.bridge.unproven, "no bounds are known for the starting state on 'b'");
  EXPECT_EQ(sealed.finished.stats.bridge.level, BridgeLevel::kSealed);

  Request foreign = make_request(20, 5, 77);
  foreign.start_state = SealSource::borrowed(saved.finished.sealed_state);
  const Answer refused = run(*rig.engine, foreign);
  EXPECT_EQ(refused.finished.error.code, Code::kMismatch) << refused.finished.error.message;
  EXPECT_EQ(refused.finished.error.message.rfind("the starting state: ", 0), 0u);
  EXPECT_TRUE(refused.tokens.empty());

  Request damaged = make_request(20, 5);
  std::vector<std::byte> flipped = saved.finished.sealed_state;
  flipped.back() ^= std::byte{4};
  damaged.start_state = SealSource::owned(std::move(flipped));
  EXPECT_EQ(run(*rig.engine, damaged).finished.error.code, Code::kCorrupt);

  Request whole = make_request(12, 5);
  whole.start_state = SealSource::borrowed(saved.finished.sealed_state);
  EXPECT_EQ(run(*rig.engine, whole).finished.error.code, Code::kMismatch);
}

// It is asked each time it is opened, and what ends half way ends the request.
TEST(SealedState, IsReadFromItsSource) {
  Rig rig({}, {{}, {}});
  Request first = make_request(12, 1);
  first.want_sealed_state = true;
  const SealSource whole = SealSource::owned(run(*rig.engine, first).finished.sealed_state);
  int reads = 0;
  uint64_t left = UINT64_MAX;
  const SealSource file(whole.size(), [&](const SealSink& sink) -> Status {
    ++reads;
    return whole.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
      BATON_OK(sink(offset, bytes.first(std::min<uint64_t>(bytes.size(), left))));
      left -= std::min<uint64_t>(bytes.size(), left);
      return left > 0 ? Status() : fail(Code::kCorrupt, "x.state: ends at byte 700");
    });
  });
  Request next = make_request(20, 5);
  next.start_state = file;
  EXPECT_EQ(run(*rig.engine, next).tokens, expected_of(next));
  EXPECT_EQ(reads, 1);
  next.verify = VerifyMode::kSample;
  EXPECT_EQ(run(*rig.engine, next).tokens, expected_of(next));
  EXPECT_EQ(reads, 3) << "for the proof, and by the unit that goes on from it";
  left = 700;
  ASSERT_GT(whole.size(), left);
  const Answer broken = run(*rig.engine, next);
  EXPECT_EQ(broken.finished.error.code, Code::kCorrupt);
  EXPECT_EQ(broken.finished.error.message, "the starting state: x.state: ends at byte 700");
  EXPECT_TRUE(broken.tokens.empty());
  EXPECT_EQ(reads, 4);
  EXPECT_EQ(rig.live_states(), 0);
}

TEST(SealedState, GoesWhereItIsSentTo) {
  Rig rig({}, {{}, {}});
  Request request = make_request(12, 4);
  std::vector<std::byte> taken;
  request.seal_to = [&](const SealSource& state) -> Status {
    EXPECT_TRUE(taken.empty());
    BATON_TRY(taken, state.block());
    return {};
  };
  const StateShape shape = make_shape({});
  for (int way = 0; way < 12; ++way) {
    taken.clear();
    request.max_new_tokens = std::array{0u, 1u, 4u}[static_cast<size_t>(way % 3)];
    request.want_answer_state = way / 3 % 2 == 0;
    request.want_sealed_state = way / 6 == 0;
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.tokens, expected_of(request));
    const auto view = open_seal(taken, {{1, 2, 0}, &shape, &request.tokens, kContext, kVocab});
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->tokens, request.tokens);
    EXPECT_EQ(answer.finished.sealed_state, request.want_sealed_state ? taken : std::vector<std::byte>()) << way;
    EXPECT_EQ(answer.finished.answer_state.empty(), !request.want_answer_state) << way;
  }
  request.seal_to = [](const SealSource&) -> Status { return fail(Code::kDevice, "no room"); };
  const Answer failed = run(*rig.engine, request);
  EXPECT_EQ(failed.finished.error.code, Code::kDevice);
  EXPECT_EQ(failed.finished.error.message, "sealing the state: no room");
  EXPECT_EQ(rig.live_states(), 0);
}

// The seal behind the prompt is away when the answer's comes to be owed: that is made too.
TEST(SealedState, OfTheAnswerIsMadeBehindOneThatWasSentAway) {
  Gate gate;
  Rig rig({}, {{}, {}});
  Request request = make_request(12, 40);
  request.want_answer_state = true;
  request.seal_to = [&](const SealSource&) -> Status {
    gate.pass();
    return {};
  };
  auto ticket = rig.engine->submit(request);
  ASSERT_TRUE(ticket);
  gate.wait_for_arrival();
  ticket->cancel();
  std::this_thread::sleep_for(milliseconds(20));  // until the cancel was heard
  gate.open();
  const Answer answer = read_answer(*ticket);
  EXPECT_EQ(answer.finished.reason, FinishReason::kCancelled);
  EXPECT_FALSE(answer.finished.answer_state.empty());
  EXPECT_EQ(answer.finished.answer_state_tokens, 12u);
}

TEST(SealedState, AfterTheAnswerSavesItsPrefill) {
  Rig rig({}, {{.storage = {DType::kF16, true}}, {}});
  Request first = make_request(12, 4);
  first.want_sealed_state = first.want_answer_state = true;
  const Answer said = run(*rig.engine, first);
  ASSERT_EQ(said.tokens, expected_of(first));
  ASSERT_EQ(said.finished.reason, FinishReason::kLength);
  EXPECT_FALSE(said.finished.sealed_state.empty());
  EXPECT_EQ(said.finished.answer_state_tokens, 15u);  // the last was sampled, not processed

  Request next;
  next.tokens = first.tokens;
  next.tokens.insert(next.tokens.end(), said.tokens.begin(), said.tokens.end());
  for (const int32_t token : {3, 1, 4}) next.tokens.push_back(token);
  next.decode_unit = first.decode_unit;
  next.max_new_tokens = 5;
  next.start_state = SealSource::borrowed(said.finished.answer_state);
  const Answer answer = run(*rig.engine, next);
  EXPECT_EQ(answer.tokens, expected_of(next)) << answer.finished.error.message;
  EXPECT_EQ(answer.finished.stats.prefill_tokens, 3u);
}

TEST(Submit, RefusesWhatCannotRun) {
  EngineLimits limits;
  limits.tokens_max = 64;
  limits.state_bytes_max = 5000;
  Rig rig(limits, {{}, {}});
  const auto refusal = [&](auto&& change) {
    Request request = make_request(8, 4);
    change(request);
    auto ticket = rig.engine->submit(std::move(request));
    return ticket ? Error() : ticket.error();
  };
  EXPECT_EQ(refusal([](Request& r) { r.decode_unit = "npu"; }).message, "unit 'npu' is not loaded; loaded: a, b");
  EXPECT_EQ(refusal([](Request& r) { r.prefill_unit = "npu"; }).code, Code::kNotFound);
  EXPECT_EQ(
      refusal([](Request& r) { r.strategy = "x"; }).message.find("strategy 'x' does not exist; there are: handoff"),
      0u);
  EXPECT_EQ(refusal([](Request& r) { r.via_unit = "npu"; }).code, Code::kNotFound);
  EXPECT_EQ(refusal([](Request& r) { r.strategy = "handoff", r.via_unit = "b"; }).code, Code::kInvalidInput);
  EXPECT_EQ(refusal([](Request& r) { r.strategy = "single"; }).code, Code::kInvalidInput);
  EXPECT_EQ(refusal([](Request& r) { r.tokens.clear(); }).code, Code::kInvalidInput);
  EXPECT_NE(refusal([](Request& r) { r.tokens.resize(65); }).message.find("65 tokens, the context holds 64"),
            std::string::npos);
  EXPECT_EQ(refusal([](Request& r) { r.tokens[3] = kVocab; }).message, "token 3 is 32, the vocabulary has ids 0 to 31");
  EXPECT_EQ(refusal([](Request& r) { r.tokens[0] = -1; }).code, Code::kInvalidInput);
  EXPECT_EQ(refusal([](Request& r) { r.sampler.temperature = -1; }).code, Code::kInvalidInput);
  EXPECT_EQ(refusal([](Request& r) { r.tokens.resize(64), r.verify = VerifyMode::kAll; }).code, Code::kOutOfMemory);

  Request clipped = make_request(60, 100);
  const Answer answer = run(*rig.engine, clipped);
  EXPECT_EQ(answer.finished.reason, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), 5u);
}

TEST(Create, RefusesWhatCannotServe) {
  const auto code = [](EngineOptions options) {
    auto engine = Engine::create(std::move(options));
    return engine ? Code::kInternal : engine.error().code;
  };
  FakeExecutor one("one", make_model(64), {}), two("two", make_model(64), {}), other("other", make_model(64, 9), {});
  EXPECT_EQ(code({}), Code::kInvalidInput);
  EXPECT_EQ(code({.units = {{"one", &one.caps(), &one}, {"one", &two.caps(), &two}}}), Code::kInvalidInput);
  EXPECT_EQ(code({.units = {{"one", &one.caps(), nullptr}}}), Code::kInvalidInput);
  EXPECT_EQ(code({.units = {{"one", &one.caps(), &one}, {"other", &other.caps(), &other}}}), Code::kMismatch);
  EXPECT_EQ(code({.units = {{"one", &one.caps(), &one},
                            {"two", &two.caps(), &two, "draft"},
                            {"other", &other.caps(), &other, "draft"}}}),
            Code::kMismatch);
  EXPECT_EQ(code({.units = {{"one", &one.caps(), &one}, {"one", &other.caps(), &other, "draft"}}}),
            Code::kInvalidInput);
  const auto whole = make_model(64);
  std::const_pointer_cast<Model>(whole)->program.whole_sequence = true;
  FakeExecutor uncut("uncut", whole, {});
  EXPECT_EQ(code({.units = {{"uncut", &uncut.caps(), &uncut}}}), Code::kUnsupported);
  EngineLimits none;
  none.requests_active_max = 0;
  EXPECT_EQ(code({.units = {{"one", &one.caps(), &one}}, .limits = none}), Code::kInvalidInput);
}

}  // namespace
}  // namespace baton::fake
