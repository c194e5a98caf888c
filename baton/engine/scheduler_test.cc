// The scheduler and a lane driven by hand, one work at a time: which work comes next, how large it is, and what a lane
// does with it. tests/sim_test.cc checks what holds in every run; here the rules are counted exactly.
#include "baton/engine/scheduler.h"

#include <gtest/gtest.h>

#include <deque>

#include "baton/engine/lane.h"
#include "tests/support/fake_unit.h"

namespace baton {
namespace {

using fake::Act;

constexpr int64_t kMsNs = 1'000'000;

const StepWork& step_of(const Work& work) { return std::get<StepWork>(work.body); }
bool decodes(const Work& work) { return step_of(work).seats.back().decodes(); }

// One unit, its lane and the scheduler; every prefill and every decode step takes `step_ms` of a clock that stands
// still otherwise.
struct Rig {
  explicit Rig(EngineLimits limits, fake::Behaviour behaviour = {}) {
    auto before = behaviour.before;
    behaviour.before = [this, before](Act act, size_t count) -> Status {
      if (act != Act::kNewState) clock.advance_ns(static_cast<int64_t>(step_ms * kMsNs));
      return before ? before(act, count) : Status();
    };
    unit = std::make_unique<fake::FakeExecutor>("a", fake::make_model(4096), behaviour);
    LaneFacts& lane_facts = facts.lanes.emplace_back();
    lane_facts.name = "a";
    lane_facts.prefill_tokens_preferred = unit->caps().prefill_tokens_preferred;
    lane_facts.decode_seats_max = unit->caps().decode_seats_max;
    lane_facts.mixes = unit->caps().mixes;
    lane_facts.prefill_seats_shared = unit->caps().prefill_seats_shared;
    lane_facts.state_bytes = [this](uint64_t tokens) { return unit->state_bytes(tokens); };
    facts.models = {{.name = "", .context_max = 4096, .vocab = fake::kVocab}};
    facts.limits = limits;
    scheduler = std::make_unique<Scheduler>(facts);
    lane = std::make_unique<Lane>(*unit, "fake", unit->caps().decode_seats_max, clock);
  }

  RequestId submit(size_t prompt, uint32_t answer, std::vector<int32_t> stop_ids = {}, bool want_sealed_state = false) {
    Request request;
    request.want_sealed_state = want_sealed_state;
    return submit(std::move(request), prompt, answer, std::move(stop_ids));
  }
  RequestId submit(Request request, size_t prompt, uint32_t answer, std::vector<int32_t> stop_ids = {}) {
    for (size_t i = 0; i < prompt; ++i) request.tokens.push_back(static_cast<int32_t>(i % fake::kVocab));
    request.max_new_tokens = answer;
    request.prefill_unit = request.decode_unit = "a";
    request.strategy = "single";
    request.stop_ids = std::move(stop_ids);
    auto resolved = resolve(std::move(request), facts);
    EXPECT_TRUE(resolved && scheduler->submit(next_id, *resolved, clock.now_ns()));
    return next_id++;
  }

  // The lane's next work, not carried out; nothing when the scheduler has none.
  std::optional<Work> next() {
    if (sent.empty()) {
      for (Work& work : scheduler->poll(clock.now_ns())) sent.push_back(std::move(work));
    }
    if (sent.empty()) return std::nullopt;
    Work work = std::move(sent.front());
    sent.pop_front();
    return work;
  }
  void carry_out(Work& work) {
    work.started_ns = clock.now_ns();
    if (work.lane == scheduler->bridge()) {
      bridge.run(work);
    } else {
      lane->run(work);
    }
    work.ended_ns = clock.now_ns();
  }
  void give_back(Work work) { scheduler->done(std::move(work), clock.now_ns()); }
  void step(Work work) {
    carry_out(work);
    give_back(std::move(work));
  }
  // Until the request decodes.
  void prefill_all() {
    for (std::optional<Work> work = next(); work; work = next()) {
      const bool last = decodes(*work);
      step(std::move(*work));
      if (last) return;
    }
  }

  // Until nothing is left to do; the requests in the order of their ends.
  std::vector<std::pair<RequestId, FinishedEvent>> run_all() {
    std::vector<std::pair<RequestId, FinishedEvent>> ends;
    for (std::optional<Work> work = next(); work; work = next()) {
      step(std::move(*work));
      for (Output& output : scheduler->take_outputs()) {
        if (auto* finished = std::get_if<FinishedEvent>(&output.event)) ends.emplace_back(output.request, *finished);
      }
    }
    return ends;
  }

  FakeClock clock;
  std::deque<Work> sent;  // and not carried out
  double step_ms = 1;
  Carrier carrier;
  BridgeLane bridge{carrier, [](LaneIndex) -> Result<StateIdentity> { return StateIdentity{}; }};
  RequestId next_id = 1;
  std::unique_ptr<fake::FakeExecutor> unit;
  SchedulerFacts facts;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Lane> lane;
};

// 'D' and 'P' for each step of the lane while some decode and others' long prompts wait, 'M' for one of both.
std::string steps_of(int decoding, int prefilling, bool mixes) {
  EngineLimits limits{.requests_active_max = 16, .prefill_factor_max = 1, .decode_steps_per_prefill = 3};
  fake::Behaviour behaviour;
  behaviour.mixes = mixes;
  behaviour.decode_seats_max = 16;
  Rig rig(limits, behaviour);
  for (int i = 0; i < decoding; ++i) rig.submit(2, 4000);
  for (int i = 0; i < 4 * decoding; ++i) rig.step(*rig.next());
  for (int i = 0; i < prefilling; ++i) rig.submit(1000, 1);
  std::string steps;
  while (steps.size() < 40) {
    std::optional<Work> work = rig.next();
    if (!work) break;
    if (const auto* step = std::get_if<StepWork>(&work->body)) {
      const bool prefills = step->prefill_tokens() > 0;
      steps += !prefills ? 'D' : step->seats.back().decodes() ? 'M' : 'P';
    }
    rig.step(std::move(*work));
  }
  return steps;
}

// For each that waits for its prompt as many as decode for it, within the limit; none where they come along anyway.
TEST(Scheduler, BetweenTwoPrefillStepsRunAsManyDecodeStepsAsAreDue) {
  const auto expect = [](int decoding, int prefilling, bool mixes, size_t due) {
    const std::string steps = steps_of(decoding, prefilling, mixes);
    const char step = mixes ? 'M' : 'P';
    ASSERT_EQ(steps.size(), 40u);
    const size_t first = steps.find(step), last = steps.rfind(step);
    ASSERT_LT(first, last) << steps;
    for (size_t at = first; at + due + 1 <= last; at += due + 1)
      EXPECT_EQ(steps.substr(at, due + 2), step + std::string(due, 'D') + step) << steps;
  };
  expect(1, 1, false, 1);
  expect(3, 1, false, 3);
  expect(5, 1, false, 3);
  expect(4, 2, false, 2);
  expect(1, 4, false, 1);
  expect(1, 4, true, 0);
  expect(2, 1, true, 2);
  expect(2, 2, true, 1);
}

TEST(Scheduler, ADecodeStepThatOthersWaitForReturnsAtOnce) {
  EngineLimits limits;
  limits.decode_ms = 1e6;
  Rig rig(limits);
  rig.submit(2, 4000);
  rig.prefill_all();
  // Alone: many steps in one go.
  std::optional<Work> alone = rig.next();
  ASSERT_TRUE(alone && decodes(*alone));
  EXPECT_GT(step_of(*alone).calls, 1u);
  rig.step(std::move(*alone));
  // With a prompt waiting: one.
  rig.submit(400, 1);
  int count = 0;
  for (int i = 0; i < 12; ++i) {
    std::optional<Work> work = rig.next();
    ASSERT_TRUE(work);
    if (decodes(*work)) {
      EXPECT_EQ(step_of(*work).calls, 1u);
      ++count;
    }
    rig.step(std::move(*work));
  }
  EXPECT_GT(count, 4);
}

// How long a step took that failed says nothing about how many tokens fit into one.
TEST(Scheduler, APrefillStepThatFailedTeachesNothing) {
  bool fails = false;
  fake::Behaviour behaviour;
  behaviour.prefill_tokens_preferred = 64;
  behaviour.before = [&fails](Act act, size_t) -> Status {
    if (act == Act::kPrefill && fails) return fail(Code::kDevice, "the fake device failed");
    return {};
  };
  Rig rig({}, behaviour);
  const auto prefill_tokens = [&] {
    std::optional<Work> work = rig.next();
    BATON_CHECK(work);
    const uint64_t tokens = step_of(*work).prefill_tokens();
    rig.step(std::move(*work));
    return tokens;
  };
  rig.submit(2000, 1);
  for (int i = 0; i < 6; ++i) prefill_tokens();
  const uint64_t learned = prefill_tokens();
  ASSERT_GE(learned, 64u);
  fails = true;
  rig.step_ms = 5000;
  prefill_tokens();  // ends the request
  fails = false;
  rig.step_ms = 1;
  rig.submit(2000, 1);
  EXPECT_GE(prefill_tokens(), learned);
}

// A prefill's turn is no pause for those that decode, where the unit takes both at once.
TEST(Scheduler, APrefillTakesDecodesWithItWhereTheUnitMixes) {
  for (const bool mixes : {false, true}) {
    fake::Behaviour behaviour;
    behaviour.mixes = mixes;
    Rig rig({}, behaviour);
    rig.submit(2, 100);
    rig.prefill_all();
    rig.submit(60, 1);
    size_t mixed = 0, prefills = 0;
    for (int i = 0; i < 20; ++i) {
      std::optional<Work> work = rig.next();
      if (!work) break;
      if (const auto* step = std::get_if<StepWork>(&work->body)) {
        prefills += step->prefill_tokens() > 0;
        mixed += step->prefill_tokens() > 0 && step->seats.back().decodes();
        EXPECT_TRUE(step->prefill_tokens() == 0 || step->calls == 1);
      }
      rig.step(std::move(*work));
    }
    EXPECT_GT(prefills, 1u);
    EXPECT_EQ(mixed, mixes ? prefills : 0);
  }
}

TEST(Scheduler, CountsWhatAStateTakesBehindAStep) {
  fake::Behaviour behaviour;
  behaviour.bytes_per_token = 1000;
  Rig rig({}, behaviour);
  rig.submit(30, 4);
  rig.prefill_all();
  EXPECT_EQ(rig.scheduler->state_bytes(), section_bytes(rig.unit->shape(), 33) + 30 * 1000);
}

// Who stops an answer and then cancels it wants nothing more of it: the end is that of the cancel.
TEST(Scheduler, ACancelOvertakesAStop) {
  Rig rig({});
  const RequestId id = rig.submit(2, 4000, {}, true);
  rig.prefill_all();
  std::optional<Work> work = rig.next();
  ASSERT_TRUE(work);  // the state is lent: the request cannot end yet
  rig.scheduler->stop(id);
  rig.scheduler->cancel(id);
  rig.give_back(std::move(*work));
  EXPECT_FALSE(rig.next());
  std::optional<FinishReason> reason;
  for (const Output& output : rig.scheduler->take_outputs()) {
    if (const auto* finished = std::get_if<FinishedEvent>(&output.event)) reason = finished->reason;
  }
  EXPECT_EQ(reason, FinishReason::kCancelled);
}

// The requests that the lane's next `steps` steps serve, in order, each by its number.
std::vector<RequestId> served(Rig& rig, int steps) {
  std::vector<RequestId> ids;
  for (int i = 0; i < steps; ++i) {
    std::optional<Work> work = rig.next();
    if (!work) break;
    for (const StepSeat& seat : step_of(*work).seats) ids.push_back(seat.request);
    rig.step(std::move(*work));
  }
  return ids;
}

Request of_tenant(uint64_t tenant, uint32_t weight, int32_t priority = 0) {
  Request request;
  request.tenant = tenant, request.weight = weight, request.priority = priority;
  return request;
}

TEST(Scheduler, TheHigherPriorityPrefillsFirst) {
  Rig rig({.prefill_factor_max = 1});
  const RequestId low = rig.submit(of_tenant(0, 1, -1), 60, 1), high = rig.submit(of_tenant(0, 1, 3), 60, 1);
  std::vector<RequestId> ids = served(rig, 9);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), high), 9);
  ids = served(rig, 8);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), low), 8);
}

TEST(Scheduler, OfOnePriorityTheFirstDeadlineGoesFirst) {
  Rig rig({.prefill_factor_max = 1});
  rig.submit(60, 1);
  Request urgent;
  urgent.deadline_ns = 5000 * kMsNs;
  const RequestId id = rig.submit(urgent, 60, 1);
  EXPECT_EQ(served(rig, 3), std::vector<RequestId>(3, id));
}

// The lane's time, not its steps: a tenant whose steps are long has fewer.
TEST(Scheduler, TenantsShareALaneByTheirWeights) {
  Rig rig({.prefill_factor_max = 1, .overtaken_max = 100000});
  const RequestId three = rig.submit(of_tenant(1, 3), 3000, 1), one = rig.submit(of_tenant(2, 1), 3000, 1);
  const std::vector<RequestId> ids = served(rig, 200);
  EXPECT_NEAR(static_cast<double>(std::count(ids.begin(), ids.end(), three)), 150, 2);
  EXPECT_NEAR(static_cast<double>(std::count(ids.begin(), ids.end(), one)), 50, 2);
}

// However small its share or low its priority.
TEST(Scheduler, AWorkThatWasPassedOverOftenEnoughIsNext) {
  for (const bool by_priority : {true, false}) {
    Rig rig({.prefill_factor_max = 1, .overtaken_max = 10});
    const RequestId low = rig.submit(of_tenant(1, 1, by_priority ? -1 : 0), 3000, 1);
    rig.submit(of_tenant(2, 1000), 3000, 1);
    const std::vector<RequestId> ids = served(rig, 110);
    EXPECT_NEAR(static_cast<double>(std::count(ids.begin(), ids.end(), low)), 10, 1);
  }
}

TEST(Scheduler, NobodyIsOvertakenMoreOftenThanTheLimitSays) {
  Rig rig({.requests_active_max = 1, .overtaken_max = 3});
  rig.submit(2, 1);
  rig.step(*rig.next());
  const RequestId low = rig.submit(of_tenant(0, 1, -1), 2, 1);
  for (int i = 0; i < 8; ++i) rig.submit(of_tenant(0, 1, 1), 2, 1);
  std::vector<RequestId> ended;
  for (std::optional<Work> work = rig.next(); work; work = rig.next()) {
    rig.step(std::move(*work));
    for (const Output& output : rig.scheduler->take_outputs())
      if (std::holds_alternative<FinishedEvent>(output.event)) ended.push_back(output.request);
  }
  ASSERT_EQ(ended.size(), 10u);
  EXPECT_EQ(ended[4], low) << "the first, three that overtook it, and it";
}

TEST(Scheduler, TenantsAreLetInByTheirWeights) {
  Rig rig({.requests_active_max = 1, .overtaken_max = 1000});
  for (int i = 0; i < 16; ++i) rig.submit(of_tenant(1, 1), 2, 3);
  for (int i = 0; i < 16; ++i) rig.submit(of_tenant(2, 3), 2, 3);
  int of_one = 0, of_three = 0;
  while (of_one + of_three < 16) {
    rig.step(*rig.next());
    for (const Output& output : rig.scheduler->take_outputs()) {
      if (std::holds_alternative<FinishedEvent>(output.event)) ++(output.request <= 16 ? of_one : of_three);
    }
  }
  EXPECT_NEAR(of_three, 12, 1);
}

TEST(Scheduler, AStepHasNoMoreTokensThanItsLimit) {
  fake::Behaviour behaviour;
  behaviour.mixes = true;
  behaviour.prefill_tokens_preferred = 8;
  behaviour.decode_seats_max = 4;
  Rig rig({.step_tokens_max = 18}, behaviour);
  for (int i = 0; i < 4; ++i) rig.submit(2, 400);
  for (int i = 0; i < 12; ++i) rig.step(*rig.next());
  rig.submit(400, 1);
  uint64_t mixed = 0;
  for (int i = 0; i < 40; ++i) {
    std::optional<Work> work = rig.next();
    ASSERT_TRUE(work);
    const StepWork& step = step_of(*work);
    const auto decoding =
        std::count_if(step.seats.begin(), step.seats.end(), [](const StepSeat& seat) { return seat.decodes(); });
    EXPECT_LE(step.prefill_tokens() + static_cast<uint64_t>(decoding), 18u);
    if (step.prefill_tokens() > 0 && decoding == 4) {
      ++mixed;
      EXPECT_EQ(step.prefill_tokens() % 8, 0u) << "in pieces that the unit sums in";
    }
    rig.step(std::move(*work));
  }
  EXPECT_GT(mixed, 3u);
}

TEST(Scheduler, ARequestEndsAtItsDeadlineAndSaysSo) {
  Rig rig({.requests_active_max = 1});
  rig.submit(2, 4000);
  Request late;
  late.deadline_ns = 20 * kMsNs;
  const RequestId waiting = rig.submit(late, 2, 4);
  EXPECT_EQ(rig.scheduler->next_deadline_ns(), late.deadline_ns);
  rig.clock.advance_ns(late.deadline_ns);
  rig.next();
  std::vector<Output> outputs = rig.scheduler->take_outputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].request, waiting);
  const auto& finished = std::get<FinishedEvent>(outputs[0].event);
  EXPECT_EQ(finished.reason, FinishReason::kDeadline);
  EXPECT_NE(finished.error.message.find("20 ms after it came, passed while it waited to be let in"), std::string::npos)
      << finished.error.message;
  EXPECT_EQ(rig.scheduler->next_deadline_ns(), INT64_MAX);
}

// A checkpoint that somebody holds is no room for the next one, though one that runs was set aside for it: that one is
// let in again, and not set aside again for ever.
TEST(Scheduler, WhatCameBackForWantOfRoomStays) {
  EngineLimits limits;
  limits.state_bytes_max = 5500;
  limits.checkpoint_bytes_max = 5500;
  Rig rig(limits);
  Request first, urgent;
  first.reuse = ReuseMode::kAny;
  urgent.priority = 1;
  rig.submit(std::move(first), 50, 10);
  rig.run_all();
  std::vector<FoundCheckpoint> held = rig.scheduler->lasting_checkpoints();
  ASSERT_FALSE(held.empty());
  const uint64_t bytes = rig.scheduler->checkpoint_bytes();
  const RequestId running = rig.submit(40, 24);
  rig.prefill_all();
  const RequestId next = rig.submit(std::move(urgent), 100, 20);
  ASSERT_LE(rig.unit->state_bytes(40 + 23) + bytes, limits.state_bytes_max);
  ASSERT_GT(rig.unit->state_bytes(100 + 19) + bytes, limits.state_bytes_max);
  auto ends = rig.run_all();
  ASSERT_EQ(ends.size(), 1u) << "the other one waits for room";
  EXPECT_EQ(ends[0].first, running);
  EXPECT_EQ(ends[0].second.reason, FinishReason::kLength) << ends[0].second.error.message;
  held.clear();
  ends = rig.run_all();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].first, next);
  EXPECT_EQ(ends[0].second.reason, FinishReason::kLength) << ends[0].second.error.message;
}

TEST(Scheduler, AStepThatNobodyWaitsForIsToldToEnd) {
  fake::Behaviour behaviour;
  behaviour.prefill_seats_shared = 2;
  Rig rig({}, behaviour);
  const RequestId first = rig.submit(3, 1), second = rig.submit(3, 1);
  std::optional<Work> work = rig.next();
  ASSERT_TRUE(work && work->cancelled != nullptr);
  ASSERT_EQ(step_of(*work).seats.size(), 2u);
  rig.scheduler->cancel(first);
  rig.next();
  EXPECT_FALSE(work->cancelled->load()) << "the other one waits for it";
  rig.scheduler->cancel(second);
  rig.next();
  EXPECT_TRUE(work->cancelled->load());
  rig.step(std::move(*work));
  rig.next();
  EXPECT_TRUE(rig.scheduler->idle());
  rig.submit(3, 1);
  work = rig.next();
  EXPECT_FALSE(work->cancelled->load());
  rig.step(std::move(*work));
}

// Amid its answer from a checkpoint; amid its prompt, where there is no room for one, from the tokens.
TEST(Scheduler, AHigherPriorityTakesTheSeatOfALowerOne) {
  for (const bool answers : {true, false}) {
    Rig rig({.requests_active_max = 1, .checkpoint_bytes_max = answers ? uint64_t{1} << 20 : 0});
    const RequestId low = rig.submit(of_tenant(0, 1, -1), 60, 20);
    if (answers) rig.prefill_all();
    if (!answers) rig.step(*rig.next());
    const RequestId high = rig.submit(of_tenant(0, 1, 1), 10, 5);
    const auto ends = rig.run_all();
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_EQ(ends[0].first, high);
    EXPECT_EQ(ends[0].second.stats.preempted, 0u);
    EXPECT_EQ(ends[1].first, low);
    const RequestStats& stats = ends[1].second.stats;
    EXPECT_EQ(stats.preempted, 1u);
    EXPECT_GT(stats.aside_ms, 1);
    EXPECT_EQ(stats.generated_tokens, 20u);
    EXPECT_EQ(stats.recomputed_tokens > 0, !answers);
    EXPECT_EQ(rig.scheduler->checkpoint_bytes(), 0u);
  }
}

// What cannot be kept and cannot be computed again bit by bit is not set aside: the other one waits.
TEST(Scheduler, AnAnswerIsNotSetAsideWithoutACheckpoint) {
  Rig rig({.requests_active_max = 1});
  const RequestId low = rig.submit(of_tenant(0, 1, -1), 10, 20);
  rig.prefill_all();
  rig.submit(of_tenant(0, 1, 1), 10, 5);
  const auto ends = rig.run_all();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].first, low);
  EXPECT_EQ(ends[0].second.stats.preempted, 0u);
}

// A tenant that has all seats gives up those that are more than its share, and no more: nobody changes back and forth.
TEST(Scheduler, ATenantGivesUpWhatIsMoreThanItsShare) {
  Rig rig({.requests_active_max = 4, .checkpoint_bytes_max = uint64_t{1} << 20});
  for (int i = 0; i < 4; ++i) rig.submit(of_tenant(1, 1), 20, 40);
  rig.step(*rig.next());
  for (int i = 0; i < 4; ++i) rig.submit(of_tenant(2, 1), 20, 40);
  uint64_t first = 0, second = 0;
  for (const auto& [id, finished] : rig.run_all()) (id <= 4 ? first : second) += finished.stats.preempted;
  EXPECT_EQ(first, 2u);
  EXPECT_EQ(second, 0u);
}

TEST(Scheduler, MemoryIsTakenFromALowerPriorityToo) {
  fake::Behaviour behaviour;
  Rig rig({.checkpoint_bytes_max = uint64_t{1} << 20}, behaviour);
  const uint64_t one = rig.unit->state_bytes(60 + 20 - 1);
  EngineLimits limits = rig.facts.limits;
  limits.state_bytes_max = one + one / 2;
  Rig tight(limits, behaviour);
  const RequestId low = tight.submit(of_tenant(0, 1, -1), 60, 20);
  tight.step(*tight.next());
  const RequestId high = tight.submit(of_tenant(0, 1, 1), 60, 20);
  const auto ends = tight.run_all();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].first, high);
  EXPECT_EQ(ends[1].first, low);
  EXPECT_EQ(ends[1].second.stats.preempted, 1u);
  EXPECT_LE(tight.scheduler->bytes_peak(), limits.state_bytes_max);
}

// A checkpoint cuts a prompt: a unit whose bits show it has none for who asks for the same bits.
TEST(Scheduler, CutsThatShowAreNotMadeForExactReuse) {
  for (const bool shows : {false, true}) {
    Rig rig({.checkpoint_bytes_max = 1000});
    rig.facts.lanes[0].pieces_exact = !shows;
    for (const ReuseMode reuse : {ReuseMode::kExact, ReuseMode::kAny}) {
      Request request;
      request.tokens.assign(200, 1);
      request.decode_unit = "a";
      request.reuse = reuse;
      const auto resolved = resolve(request, rig.facts, 0);
      ASSERT_TRUE(resolved) << resolved.error().message;
      const bool off = shows && reuse == ReuseMode::kExact;
      EXPECT_EQ(resolved->request.reuse, off ? ReuseMode::kOff : reuse);
      EXPECT_EQ(resolved->cuts.empty(), off);
    }
  }
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithTheNumbers) {
  Rig rig({.state_bytes_max = 1000});
  Request request;
  request.tokens.assign(500, 1);
  request.decode_unit = "a";
  const auto resolved = resolve(request, rig.facts, 300);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, Code::kOutOfMemory);
  const std::string needs = std::to_string(rig.unit->state_bytes(500 + 256 - 1));
  EXPECT_NE(resolved.error().message.find(needs + " bytes of states, the limit is 1000, of which 300 are in use now"),
            std::string::npos)
      << resolved.error().message;
}

TEST(Lane, ManyDecodeStepsEndAtAStopId) {
  EngineLimits limits;
  limits.decode_ms = 1e6;
  std::vector<int32_t> prompt = {0, 1};
  const std::vector<int32_t> whole = fake::expected_answer(prompt, 60, {}, {}).tokens;
  // A token that comes up first somewhere behind the first step.
  size_t at = 10;
  while (std::find(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(at), whole[at]) !=
         whole.begin() + static_cast<ptrdiff_t>(at)) {
    ++at;
    ASSERT_LT(at, whole.size());
  }
  Rig rig(limits);
  rig.submit(2, 60, {whole[at]});
  rig.prefill_all();
  const uint64_t calls = rig.unit->decode_calls();
  std::optional<Work> work = rig.next();
  ASSERT_TRUE(work && decodes(*work));
  const StepWork& decode = step_of(*work);
  ASSERT_GT(decode.calls, at);
  rig.carry_out(*work);
  ASSERT_EQ(decode.seats.size(), 1u);
  EXPECT_EQ(decode.seats[0].draws.ids.size(), at) << "the first token came with the step before";
  EXPECT_EQ(decode.seats[0].draws.ids.back().id, whole[at]);
  EXPECT_EQ(rig.unit->decode_calls() - calls, at) << "the unit was not called behind the stop id";
  rig.give_back(std::move(*work));
  rig.next();
  EXPECT_TRUE(rig.scheduler->idle());
}

}  // namespace
}  // namespace baton
