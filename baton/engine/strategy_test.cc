// What strategies plan, view by view; and what every strategy in the list must keep to.
#include "baton/engine/strategy.h"

#include <gtest/gtest.h>

#include "baton/base/random.h"

namespace baton {
namespace {

std::string text_of(const StepPlan& plan) {
  constexpr std::array kRoles = {"source", "target", "proof"};
  constexpr std::array kForms = {"carry", "open", "seal"};
  if (plan.change() == StepPlan::Change::kTakeOver) return "take over";
  if (plan.change() == StepPlan::Change::kPassOn) return "pass on";
  std::string text;
  for (const PlannedWork& work : plan.works()) {
    if (!text.empty()) text += ", ";
    switch (work.kind) {
      case WorkKind::kMake:
        text += "make";
        break;
      case WorkKind::kStep:
        text += work.decodes ? "decode" : work.streams ? "stream" : "prefill";
        if (work.tokens > 0) text += " " + std::to_string(work.tokens);
        break;
      case WorkKind::kMove:
        text += kForms[static_cast<size_t>(work.form)];
        break;
      case WorkKind::kProve:
        text += work.decodes ? "verify" : "compare";
        break;
    }
    text += " " + std::string(kRoles[static_cast<size_t>(work.role)]);
  }
  return text;
}

RoleView at(uint64_t position) { return {.exists = true, .position = position}; }
constexpr RoleView kBusy = {.exists = false, .busy = true, .position = 0};

std::string planned(std::string_view name, RequestView view, RoleView source, RoleView target, RoleView proof = {}) {
  view.roles = {source, target, proof};
  return text_of(find_strategy(name)->plan(view));
}

TEST(Handoff, FromPromptToDecode) {
  const RequestView view{.need = 9};
  EXPECT_EQ(planned("handoff", view, {}, {}), "make target, prefill 9 source");
  EXPECT_EQ(planned("handoff", view, kBusy, kBusy), "");
  EXPECT_EQ(planned("handoff", view, at(4), at(0)), "prefill 5 source");
  EXPECT_EQ(planned("handoff", view, at(9), kBusy), "") << "no room yet";
  EXPECT_EQ(planned("handoff", view, at(9), at(0)), "carry source");
  EXPECT_EQ(planned("handoff", {.need = 9, .handed_over = true}, {}, at(9)), "decode target");
  EXPECT_EQ(planned("handoff", {.need = 9, .handed_over = true, .seal_due = true}, {}, at(9)), "seal target");
}

TEST(Handoff, OnOneUnitTheStateItselfIsHandedOver) {
  const RequestView view{.need = 9, .same_unit = true};
  EXPECT_EQ(planned("handoff", view, {}, {}), "prefill 9 source");
  EXPECT_EQ(planned("handoff", view, at(9), {}), "take over");
}

TEST(Handoff, TheProofIsMadeBesideThePrefillAndBeforeDecode) {
  const RequestView view{.need = 9, .proof_wanted = true};
  EXPECT_EQ(planned("handoff", view, {}, {}), "make target, prefill 9 proof, prefill 9 source");
  EXPECT_EQ(planned("handoff", view, at(9), at(0), at(3)), "prefill 6 proof, carry source");
  const RequestView over{.need = 9, .handed_over = true, .proof_wanted = true};
  EXPECT_EQ(planned("handoff", over, {}, at(9), at(3)), "prefill 6 proof");
  EXPECT_EQ(planned("handoff", over, {}, at(9), kBusy), "");
  EXPECT_EQ(planned("handoff", over, {}, at(9), at(9)), "verify target");
  const RequestView first{.need = 9, .handed_over = true, .proof_wanted = true, .compare_due = true};
  EXPECT_EQ(planned("handoff", first, {}, at(9), at(3)), "prefill 6 proof");
  EXPECT_EQ(planned("handoff", first, {}, at(9), at(9)), "compare target");
  EXPECT_EQ(planned("handoff", first, {}, kBusy, at(9)), "");
  RequestView repeats = first;
  repeats.proof_repeats = true;
  EXPECT_EQ(planned("handoff", repeats, {}, at(9)), "compare target") << "which makes the proof's state";
  EXPECT_EQ(planned("handoff", repeats, {}, at(9), kBusy), "");
  repeats.handed_over = false;
  EXPECT_EQ(planned("handoff", repeats, {}, at(0)), "prefill 9 source");
}

TEST(Overlap, StreamsFromTheFirstStepWithRoom) {
  RequestView view{.need = 9, .room_soon = true};
  EXPECT_EQ(planned("overlap", view, {}, {}), "make target") << "which is there at once";
  EXPECT_EQ(planned("overlap", view, {}, kBusy), "");
  EXPECT_EQ(planned("overlap", view, {}, at(0)), "stream 9 source");
  EXPECT_EQ(planned("overlap", view, at(4), at(0)), "stream 5 source");
  EXPECT_EQ(planned("overlap", view, kBusy, kBusy), "");
  view.room_soon = false;
  EXPECT_EQ(planned("overlap", view, {}, {}), "make target, prefill 9 source") << "others decode there";
  EXPECT_EQ(planned("overlap", view, at(4), {}), "make target, prefill 5 source");
  EXPECT_EQ(planned("overlap", view, at(9), at(0)), "carry source") << "nothing was streamed";
  EXPECT_EQ(planned("overlap", view, at(9), at(9)), "take over");
  EXPECT_EQ(planned("overlap", view, kBusy, at(9)), "") << "a checkpoint of it is kept";
  view.same_unit = true;
  EXPECT_EQ(planned("overlap", view, {}, {}), "prefill 9 source");
  EXPECT_EQ(planned("overlap", view, at(9), {}), "take over");
}

TEST(EveryStrategy, ComparesAStartingStateBeforeAnythingGoesOnFromIt) {
  RequestView view{.need = 9, .start_pending = true, .proof_wanted = true, .compare_due = true};
  view.start_check_due = true;
  for (const Strategy* strategy : strategies()) {
    EXPECT_EQ(planned(strategy->name, view, {}, {}), "make target") << strategy->name;
    EXPECT_EQ(planned(strategy->name, view, {}, kBusy), "") << strategy->name;
    EXPECT_EQ(planned(strategy->name, view, {}, at(0)), "open target") << strategy->name;
    RequestView opened = view;
    opened.start_opened = true;
    EXPECT_EQ(planned(strategy->name, opened, {}, at(6)), "compare target") << strategy->name;
    EXPECT_EQ(planned(strategy->name, opened, {}, at(6), at(2)), "compare target") << strategy->name;
    EXPECT_EQ(planned(strategy->name, opened, {}, at(6), kBusy), "") << strategy->name;
  }
}

TEST(Handoff, OpensAStartingStateOnThePrefillUnit) {
  const RequestView view{.need = 9, .start_pending = true};
  EXPECT_EQ(planned("handoff", view, {}, at(0)), "make source");
  EXPECT_EQ(planned("handoff", view, at(0), at(0)), "open source");
  EXPECT_EQ(planned("handoff", {.need = 9}, at(6), at(0)), "prefill 3 source");
}

TEST(Single, FromPromptToDecode) {
  EXPECT_EQ(planned("single", {.need = 9}, {}, {}), "prefill 9 target");
  EXPECT_EQ(planned("single", {.need = 9}, {}, at(4)), "prefill 5 target");
  EXPECT_EQ(planned("single", {.need = 9}, {}, at(9)), "decode target");
  EXPECT_EQ(planned("single", {.need = 0}, {}, {}), "make target");
  EXPECT_EQ(planned("single", {.need = 0}, {}, at(0)), "decode target");
  EXPECT_EQ(planned("single", {.need = 9, .start_pending = true}, {}, {}), "make target");
  EXPECT_EQ(planned("single", {.need = 9, .start_pending = true}, {}, at(0)), "open target");
  EXPECT_EQ(planned("single", {.need = 9, .proof_wanted = true}, {}, at(9)), "prefill 9 proof");
}

TEST(EveryStrategy, AloneIsTheDecodeUnitOnly) {
  for (const Strategy* strategy : strategies()) {
    EXPECT_EQ(planned(strategy->name, {.need = 9, .alone = true}, {}, {}), "prefill 9 target") << strategy->name;
    EXPECT_EQ(planned(strategy->name, {.need = 9, .alone = true}, {}, at(9)), "decode target") << strategy->name;
  }
}

// Over random views, possible or not: a plan never touches a busy role twice over, and never decodes without the proof.
TEST(EveryStrategy, PlansOnlyFreeRolesAndNoUnprovedDecode) {
  Random random(7);
  for (int i = 0; i < 200000; ++i) {
    RequestView view;
    view.need = random.below(4);
    view.generated = random.below(32);
    view.same_unit = random.below(2) != 0;
    view.room_soon = random.below(2) != 0;
    view.onward = random.below(2) != 0;
    view.alone = random.below(3) == 0;
    view.handed_over = random.below(2) != 0;
    view.start_pending = !view.handed_over && random.below(3) == 0;
    view.seal_due = random.below(4) == 0;
    view.proof_wanted = random.below(2) != 0;
    view.compare_due = view.proof_wanted && random.below(2) != 0;
    view.proof_repeats = random.below(2) != 0;
    view.start_check_due = view.start_pending && random.below(2) != 0;
    for (RoleView& role : view.roles) {
      role.busy = random.below(3) == 0;
      role.exists = !role.busy && random.below(2) != 0;
      role.position = role.exists ? random.below(view.need + 1) : 0;
    }
    for (const Strategy* strategy : strategies()) {
      std::array<int, kStateRoles> uses{};
      const StepPlan plan = strategy->plan(view);
      for (const PlannedWork& work : plan.works()) {
        EXPECT_FALSE(view.roles[static_cast<size_t>(work.role)].busy);
        EXPECT_EQ(++uses[static_cast<size_t>(work.role)], 1);
        if (work.kind == WorkKind::kStep) {
          EXPECT_TRUE(work.decodes ? !view.proof_wanted : work.tokens > 0);
        }
        if (work.streams) {
          EXPECT_TRUE(work.role == StateRole::kSource && view.target().exists && !view.same_unit);
          ++uses[static_cast<size_t>(StateRole::kTarget)];
        }
        if (work.kind == WorkKind::kProve && (work.decodes || !view.start_check_due)) {
          EXPECT_NE(work.decodes, view.compare_due);
          EXPECT_TRUE(view.proof().position == view.need || (view.compare_due && view.proof_repeats));
        }
        if (view.start_check_due && !view.handed_over) {
          EXPECT_TRUE(work.role == StateRole::kTarget &&
                      (work.kind == WorkKind::kMake || work.form == MoveForm::kOpen));
        }
        if (work.kind == WorkKind::kMove && work.form == MoveForm::kCarry) {
          EXPECT_FALSE(view.roles[static_cast<size_t>(work.to)].busy);
        }
      }
      for (const int used : uses) EXPECT_LE(used, 1) << strategy->name;
    }
  }
}

TEST(EveryStrategy, PassesOnOnlyWhatIsWhole) {
  for (const Strategy* strategy : strategies()) {
    for (const bool alone : {false, true}) {
      const RequestView view{.need = 99, .generated = 90, .onward = false, .alone = alone, .handed_over = !alone};
      EXPECT_EQ(planned(strategy->name, view, {}, at(99)), "decode target") << strategy->name;
      RequestView onward = view;
      onward.onward = true;
      EXPECT_NE(planned(strategy->name, onward, {}, at(98)), "pass on") << strategy->name;
      EXPECT_EQ(planned(strategy->name, onward, {}, kBusy), "") << strategy->name;
      EXPECT_NE(planned(strategy->name, onward, kBusy, at(99)), "pass on") << strategy->name;
      onward.seal_due = true;
      EXPECT_EQ(planned(strategy->name, onward, {}, at(99)), "seal target") << strategy->name;
    }
  }
}

TEST(EveryStrategy, IsFoundByItsName) {
  for (const Strategy* strategy : strategies()) EXPECT_EQ(find_strategy(strategy->name), strategy);
  EXPECT_EQ(find_strategy("nothing"), nullptr);
}

TEST(Choice, IsByTheUnitsOrWhatTheyAllow) {
  const auto chosen = [](std::string_view name, std::string_view prefill, std::string_view via = "") {
    const auto strategy = choose_strategy(name, prefill, via, "b");
    return strategy ? std::string((*strategy)->name) : strategy.error().message;
  };
  EXPECT_EQ(chosen("", "b"), "single");
  EXPECT_EQ(chosen("", "a"), "handoff");
  EXPECT_EQ(chosen("handoff", "b"), "handoff");
  EXPECT_EQ(chosen("single", "a"),
            "strategy 'single' runs everything on the decode unit 'b', but the prefill unit asked for is 'a': use "
            "strategy handoff or overlap, or leave that unit out");
  EXPECT_EQ(chosen("x", "a").find("strategy 'x' does not exist; there are: handoff"), 0u);
  EXPECT_EQ(chosen("handoff", "a", "c")
                .find("strategy 'handoff' goes straight to the decode unit 'b', but the via unit "
                      "asked for is 'c': use strategy "),
            0u);
}

}  // namespace
}  // namespace baton
