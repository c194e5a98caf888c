// Each invariant fails, by its name, on the smallest snapshot that breaks it: the simulation relies on that.
#include "baton/engine/invariants.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace baton {
namespace {

Snapshot sound() {
  Snapshot snapshot;
  snapshot.lanes.resize(3);  // two units and the bridge
  snapshot.active = {{.id = 1, .ready = true}, {.id = 2, .steps_in_flight = 1}};
  snapshot.states = {{.id = 10, .request = 1, .home = 0}, {.id = 11, .request = 2, .home = 1, .owner = 1}};
  snapshot.states[1].decodes = true;
  snapshot.lanes[1] = {.kind = WorkKind::kStep, .states = {snapshot.states[1]}, .requests = {2}};
  return snapshot;
}

std::string broken_by(const std::function<void(Snapshot&)>& change) {
  Snapshot snapshot = sound();
  change(snapshot);
  const Status status = check_snapshot(snapshot);
  return status ? "" : status.error().message.substr(0, status.error().message.find(" ("));
}

TEST(Invariants, HoldForASoundSnapshot) {
  EXPECT_EQ(broken_by([](Snapshot&) {}), "");
}

TEST(Invariants, AreEachBrokenByName) {
  EXPECT_EQ(broken_by([](Snapshot& s) { s.states[1].id = 10; }), "a state has two owners");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.states[1].request = 1; }), "a request has two states in one role");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.states[1].owner = 0; }), "a state is on a lane that did not make it");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.states[0].request = 7; }), "a state outlived its request");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.lanes[1].states.push_back(s.states[1]); }),
            "a step decodes too many sequences");
  EXPECT_EQ(broken_by([](Snapshot& s) {
              s.lanes[0] = {.kind = WorkKind::kStep, .states = {s.states[0], s.states[0]}};
            }),
            "a step prefills too many sequences");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.lanes[1].states[0].request = 7; }), "a step serves a request that has ended");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.limits.requests_active_max = 1; }), "too many active requests");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.queued = 1000; }), "too many requests");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.limits.state_bytes_max = 7, s.states[0].bytes = 8; }),
            "the states take more memory than allowed");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.active[0].waited = waiting_bound(s.limits) + 1; }), "a request starves");
  EXPECT_EQ(broken_by([](Snapshot& s) { s.active[0].ready = false; }), "a request is stuck");
}

TEST(Invariants, NothingDecodesWithoutTheProofThatWasAskedFor) {
  const std::string unproved = "a step decodes from a state without the proof that was asked for";
  const auto with = [](bool foreign, bool sealed_in, VerifyMode mode, bool passed) {
    return broken_by([=](Snapshot& s) {
      s.active[1].foreign = foreign;
      s.active[1].sealed_in = sealed_in;
      s.active[1].verify = mode;
      s.active[1].proof_passed = passed;
    });
  };
  EXPECT_EQ(with(true, true, VerifyMode::kOff, false), "");
  EXPECT_EQ(with(true, true, VerifyMode::kSample, true), "");
  EXPECT_EQ(with(false, false, VerifyMode::kAll, false), "");
  EXPECT_EQ(with(true, true, VerifyMode::kSample, false), unproved);
  EXPECT_EQ(with(false, true, VerifyMode::kSample, false), unproved);
  EXPECT_EQ(with(true, true, VerifyMode::kAll, true), unproved);
}

TEST(Invariants, NothingGoesOnFromAStateBeforeItsComparison) {
  EXPECT_EQ(broken_by([](Snapshot& s) {
              s.active[0].start_check_due = true;
              s.lanes[0] = {.kind = WorkKind::kStep, .states = {s.states[0]}, .requests = {1}};
            }),
            "a step goes on from an unproven state");
  EXPECT_EQ(broken_by([](Snapshot& s) {
              s.active[0].start_check_due = true;
              s.lanes[0] = {.kind = WorkKind::kMake, .states = {s.states[0]}, .requests = {1}};
            }),
            "")
      << "making a state goes on from nothing";
  const auto verify = [](bool compared) {
    return broken_by([=](Snapshot& s) {
      s.active[0].states_compared = compared;
      s.lanes[0] = {.kind = WorkKind::kProve, .states = {s.states[0]}, .requests = {1}};
      s.lanes[0].states[0].decodes = true;
    });
  };
  EXPECT_EQ(verify(false), "logits are compared before the states");
  EXPECT_EQ(verify(true), "");
}

TEST(History, EveryRequestEndsOnce) {
  const Output token{1, TokenEvent{.id = 5, .index = 0}};
  FinishedEvent end;
  end.stats.generated_tokens = 1;
  const Output finished{1, end};
  const auto observe = [](std::vector<Output> outputs, Snapshot snapshot = {}) {
    History history;
    history.submitted(1);
    return history.observe(outputs, snapshot).has_value();
  };
  EXPECT_TRUE(observe({token, finished}));
  EXPECT_FALSE(observe({token, finished, finished}));
  EXPECT_FALSE(observe({token, finished, token}));
  EXPECT_FALSE(observe({token, token, finished}));
  EXPECT_FALSE(observe({finished})) << "the figures say one token";
  EXPECT_FALSE(observe({token})) << "a request is open that the books do not have";
  Snapshot left;
  left.states = {{.id = 10}};
  EXPECT_FALSE(observe({token, finished}, left));
}

}  // namespace
}  // namespace baton
