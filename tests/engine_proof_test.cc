// The bridge proof in the engine, over fake units that agree to the bit: what is compared when, what is found, what is
// said of it.
#include <gtest/gtest.h>

#include <thread>

#include "baton/bridge/bridge.h"
#include "baton/state/seal_list.h"
#include "tests/support/engine_rig.h"

namespace baton::fake {
namespace {

TEST(Proof, FindsAWrongHandOverInTheState) {
  for (const VerifyMode mode : {VerifyMode::kSample, VerifyMode::kAll}) {
    Rig rig({}, {{.spoils_prefill = [] { return true; }}, {}});
    Request request = make_request(30, 6);
    request.verify = mode;
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.tokens, expected_of(request));
    const RequestStats& stats = answer.finished.stats;
    EXPECT_NE(stats.fallback.find("the bridge proof failed at the hand-over: the states differ, layer"),
              std::string::npos)
        << stats.fallback;
    EXPECT_FALSE(stats.bridge.verified);
    EXPECT_TRUE(stats.bridge.proof_failed);
    EXPECT_EQ(stats.bridge.level, BridgeLevel::kNone);
    EXPECT_FALSE(stats.bridge.worst.passed());
    EXPECT_EQ(stats.bridge.checked, 0u) << "no logits are made from such a state";
    EXPECT_EQ(stats.prefill.ran, "b");
    EXPECT_EQ(stats.prefill_tokens, 29u);
  }
}

// With bounds that let the state through, the logits still give it away.
TEST(Proof, FindsAWrongHandOverInTheLogits) {
  Rig rig({}, {{.spoils_prefill = [] { return true; }}, {}});
  Request request = make_request(30, 6);
  request.verify = VerifyMode::kSample;
  ProofBounds wide;
  wide.segments = {{9, {9, 9}}, {9, {9, 9}}, {9, {9, 9}}};
  wide.logits = {.rms = 1e-3, .largest = 1e-3, .kl = 1e-3};
  request.move_bounds = wide;
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request));
  const RequestStats& stats = answer.finished.stats;
  EXPECT_NE(stats.fallback.find("the bridge proof failed at answer token 0: the logits differ"), std::string::npos);
  EXPECT_GT(stats.bridge.max_abs_dlogit, stats.bridge.logits.largest);
  EXPECT_GT(stats.bridge.max_kl, stats.bridge.logits.kl);
  EXPECT_TRUE(stats.bridge.proof_failed);
  EXPECT_FALSE(stats.bridge.verified);
}

TEST(Proof, OfASampleKeepsNoSecondStateForTheAnswer) {
  const auto slow = [](Act act, size_t) -> Status {
    if (act == Act::kDecode) std::this_thread::sleep_for(milliseconds(2));
    return {};
  };
  for (const VerifyMode mode : {VerifyMode::kSample, VerifyMode::kAll}) {
    Rig rig({}, {{}, {.before = slow}});
    Request request = make_request(9, 60);
    request.verify = mode;
    auto ticket = rig.engine->submit(std::move(request));
    ASSERT_TRUE(ticket);
    uint64_t most = 0;
    for (uint32_t seen = 0; seen < 60;) {
      const auto event = ticket->next_event(kPatience);
      ASSERT_TRUE(event);
      const auto* token = std::get_if<TokenEvent>(&*event);
      ASSERT_NE(token, nullptr);
      seen = token->index + 1;
      if (seen > 10 && seen < 40) most = std::max(most, rig.engine->usage().states);
    }
    EXPECT_EQ(most, mode == VerifyMode::kSample ? 1u : 2u);
    read_answer(*ticket);
  }
}

TEST(Proof, OfNothingSaysSo) {
  Rig rig({}, {{}, {}});
  const auto bridge_of = [&](auto&& change) {
    Request request = make_request(12, 4);
    request.verify = VerifyMode::kAll;
    change(request);
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.tokens, expected_of(request));
    EXPECT_EQ(answer.finished.stats.fallback, "");
    return answer.finished.stats.bridge;
  };
  const BridgeStats one_unit = bridge_of([](Request& r) { r.strategy = "single", r.prefill_unit = "b"; });
  EXPECT_EQ(one_unit.unproven, "nothing is handed over: one unit does everything");
  EXPECT_EQ(one_unit.level, BridgeLevel::kNone);
  EXPECT_FALSE(one_unit.verified);
  const BridgeStats one_token = bridge_of([](Request& r) { r.tokens.resize(1); });
  EXPECT_EQ(one_token.unproven, "nothing is handed over: the prompt is one token");
  const BridgeStats unknown = bridge_of([](Request& r) { r.move_bounds.reset(); });
  EXPECT_EQ(unknown.unproven, "no bounds are known for states that 'a' hands to 'b'");
  EXPECT_EQ(unknown.level, BridgeLevel::kSealed);
  EXPECT_FALSE(unknown.verified) << "the proof was asked for";
  EXPECT_EQ(unknown.checked, 0u);
}

// On one unit the state itself is handed over: nothing is sealed, so nothing is called so.
TEST(Proof, OfAnAliasAsksForTheSameBits) {
  Rig rig({}, {{}, {.decode_seats_max = 2}});
  Request request = make_request(12, 4);
  request.strategy = "handoff";
  request.prefill_unit = "b";
  request.move_bounds.reset();  // not needed
  const Answer plain = run(*rig.engine, request);
  EXPECT_EQ(plain.finished.stats.bridge.kind, BridgeKind::kAlias);
  EXPECT_EQ(plain.finished.stats.bridge.level, BridgeLevel::kNone);
  EXPECT_FALSE(plain.finished.stats.bridge.verified);
  EXPECT_EQ(plain.finished.stats.bridge.unproven, "");
  request.verify = VerifyMode::kAll;
  const Answer proven = run(*rig.engine, request);
  EXPECT_EQ(proven.finished.stats.bridge.level, BridgeLevel::kProven);
  EXPECT_TRUE(proven.finished.stats.bridge.verified);
  EXPECT_EQ(proven.finished.stats.bridge.between, "b -> b, the same bits");
}

// Prefills that are spoiled, but not those of the proof: the second prefill of a unit is the proof's.
TEST(Proof, OfAnAliasFindsOtherBits) {
  Rig rig({}, {{}, {.spoils_prefill = [calls = 0]() mutable { return ++calls == 1; }}});
  Request request = make_request(12, 4);
  request.strategy = "handoff";
  request.prefill_unit = "b";
  request.verify = VerifyMode::kSample;
  const Answer answer = run(*rig.engine, request);
  EXPECT_TRUE(answer.finished.stats.bridge.proof_failed);
}

TEST(Proof, ARequestThatEndsBeforeItsFirstTokenIsNotVerified) {
  Gate gate;
  const auto held = [&](Act act, size_t) -> Status {
    if (act == Act::kDecode) gate.pass();
    return {};
  };
  Rig rig({}, {{}, {.before = held}});
  auto ticket = rig.engine->submit(make_request(9, 4));
  gate.wait_for_arrival();
  ticket->cancel();
  gate.open();
  const Answer answer = read_answer(*ticket);
  EXPECT_EQ(answer.finished.reason, FinishReason::kCancelled);
  EXPECT_EQ(answer.finished.stats.bridge.kind, BridgeKind::kMove);
  EXPECT_EQ(answer.finished.stats.bridge.level, BridgeLevel::kNone);
  EXPECT_FALSE(answer.finished.stats.bridge.verified);
}

TEST(Proof, OfAllTokensFindsAStateThatGoesWrongLater) {
  // The third comparison's target (seat 0 of two) is spoiled.
  const auto spoils = [calls = 0](size_t seat, size_t seats) mutable {
    return seats == 2 && seat == 0 && ++calls == 3;
  };
  Rig rig({}, {{}, {.decode_seats_max = 2, .spoils_decode = spoils}});
  Request request = make_request(30, 8);
  request.verify = VerifyMode::kAll;
  const Answer answer = run(*rig.engine, request);
  EXPECT_EQ(answer.tokens, expected_of(request));
  EXPECT_EQ(answer.finished.stats.bridge.checked, 3u);
  EXPECT_EQ(answer.finished.stats.bridge.agreed, 2u);
  EXPECT_NE(answer.finished.stats.fallback.find("the bridge proof failed at answer token 2"), std::string::npos);
}

// A state of the right tokens whose hash is not theirs, as a seal without a key cannot tell.
std::vector<std::byte> forged_state(const Engine&, const Request& request, size_t tokens) {
  LiveStates live;
  State state({}, kContext, live);
  for (size_t i = 0; i < tokens; ++i) state.append(request.tokens[i]);
  state.store_hash(mix(state.hash()));
  auto block = seal_state(state, {1, 2, 0}, std::span(request.tokens).first(tokens));
  BATON_CHECK(block);
  return *block;
}

TEST(Proof, OfAStartingStateIsMadeWhereItWasOpened) {
  for (const char* strategy : {"single", "handoff"}) {
    for (const char* prefill : {"a", "b"}) {
      if (std::string_view(strategy) == "single" && *prefill == 'a') continue;
      Rig rig({}, {{}, {}});
      Request request = make_request(20, 5);
      request.strategy = strategy;
      request.prefill_unit = prefill;
      request.start_state = SealSource::owned(forged_state(*rig.engine, request, 12));
      request.verify = VerifyMode::kSample;
      const Answer answer = run(*rig.engine, request);
      EXPECT_EQ(answer.tokens, expected_of(request));
      const RequestStats& stats = answer.finished.stats;
      EXPECT_EQ(stats.fallback.rfind("the bridge proof failed at the starting state: the states differ, layer 1", 0),
                0u)
          << stats.fallback;
      EXPECT_TRUE(stats.bridge.proof_failed);
      EXPECT_EQ(stats.bridge.level, BridgeLevel::kNone);
      EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
    }
  }
}

// A starting state that another unit goes on from and hands over went through two hands: their bounds add up. Each
// alone would not let this one through.
TEST(Proof, BoundsOfAllHandsAddUp) {
  const auto level_with = [](double start_share, double move_share) {
    Rig rig({}, {{}, {}});
    Request request = make_request(20, 3);
    request.start_state = SealSource::owned(forged_state(*rig.engine, request, 12));
    request.verify = VerifyMode::kSample;
    const auto share = [](double of, const char* between) {
      ProofBounds bounds;
      bounds.between = between;
      bounds.segments = {{9, {9, 9}}, {9, {9, 9}}, {9, {9, 9}}};
      bounds.logits = {of * 1e6, of * 1e6, of * 1e12};
      return bounds;
    };
    request.start_bounds = share(start_share, "s -> b");
    request.move_bounds = share(move_share, "a -> b");
    const BridgeStats bridge = run(*rig.engine, std::move(request)).finished.stats.bridge;
    if (start_share > 0 || move_share > 0) {
      EXPECT_EQ(bridge.between, "s -> b, then a -> b");
    }
    return bridge.level;
  };
  EXPECT_EQ(level_with(1, 0), BridgeLevel::kProven);
  EXPECT_EQ(level_with(0, 1), BridgeLevel::kProven);
  EXPECT_EQ(level_with(0, 0), BridgeLevel::kNone);
}

// The proof makes its own of a starting state in the calls that made it, and of what came behind it too.
TEST(Proof, RepeatsTheMakersSteps) {
  std::vector<std::pair<Act, size_t>> calls;
  const auto watch = [&](Act act, size_t count) -> Status {
    if (act == Act::kPrefill) std::this_thread::sleep_for(milliseconds(count > 3 ? 60 : 1));  // steps of many sizes
    if (act != Act::kNewState) calls.emplace_back(act, count);
    return {};
  };
  Rig rig({}, {{}, {.prefill_tokens_preferred = 4, .decode_seats_max = 2, .before = watch}});
  Request first = make_request(30, 1);
  first.prefill_unit = "b";
  first.strategy = "single";
  first.want_sealed_state = true;
  Request next = make_request(34, 1);
  next.prefill_unit = "b";
  next.strategy = "single";
  next.start_state = SealSource::owned(run(*rig.engine, first).finished.sealed_state);
  next.verify = VerifyMode::kSample;
  const std::vector<std::pair<Act, size_t>> made = std::exchange(calls, {});
  ASSERT_GT(made.size(), 3u);
  EXPECT_EQ(made.back(), std::pair(Act::kDecode, size_t{1}));
  const Answer answer = run(*rig.engine, next);
  EXPECT_EQ(answer.finished.stats.bridge.level, BridgeLevel::kProven) << answer.finished.stats.fallback;
  ASSERT_GT(calls.size(), made.size());
  EXPECT_EQ(std::vector(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(made.size())), made);
  // Bounds that are not zero: a prefill, the last token decoded.
  calls.clear();
  next.start_bounds->logits = {1, 1, 1};
  EXPECT_EQ(run(*rig.engine, next).finished.stats.bridge.level, BridgeLevel::kProven);
  uint64_t prefilled = 0;
  size_t at = 0;
  for (; calls[at].first == Act::kPrefill; ++at) prefilled += calls[at].second;
  EXPECT_EQ(prefilled, 29u);
  EXPECT_EQ(calls[at], std::pair(Act::kDecode, size_t{1}));
}

// The answer's rows are decoded with those of the proof: what is saved then is as if nothing had been proven.
TEST(Proof, LeavesNoMarkInTheStateThatIsSaved) {
  std::vector<Provenance> made;
  for (const VerifyMode mode : {VerifyMode::kOff, VerifyMode::kAll}) {
    Rig rig({}, {{}, {.decode_seats_max = 2}});
    Request request = make_request(30, 6);
    request.want_sealed_state = true;
    request.verify = mode;
    const Answer answer = run(*rig.engine, request);
    EXPECT_EQ(answer.finished.stats.bridge.checked, mode == VerifyMode::kOff ? 0u : 6u);
    const auto listing = list_seal(answer.finished.sealed_state);
    ASSERT_TRUE(listing) << listing.error().message;
    made.push_back(listing->provenance);
  }
  EXPECT_EQ(to_lines(made[1]), to_lines(made[0]));
}

}  // namespace
}  // namespace baton::fake
