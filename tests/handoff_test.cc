// Every ordered pair of units, every strategy, every golden prompt, through the real engine: the same tokens as
// `single` on `ref`. Where they part, the two best logits must lie closer than the units' stated tolerances explain (a
// near tie); near ties are counted, anything else fails. Each move must be verified, and the proof must hold.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "baton/api/units.h"
#include "baton/engine/engine.h"
#include "baton/engine/strategy.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

constexpr uint32_t kNewTokens = 32;

struct Answer {
  std::vector<int32_t> ids;
  RequestStats stats;
};

class Handoff : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (smoke_run() && GetParam().name == "tiny-qwen3.5-multimodal") GTEST_SKIP() << "tiny-qwen3.5 is its text model";
    auto model = load_model(GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    EngineOptions options;
    for (const UnitEntry* entry : unit_entries()) {
      auto unit = create_test_unit(std::string(entry->name), suits_stand_in(*model_));
      if (!unit || !check_program(entry->name, (*unit)->caps(), model_->program))
        continue;  // not here, or without an op
      auto executor = (*unit)->load(model_, 0);
      ASSERT_TRUE(executor) << executor.error().message;
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
      names_.emplace_back(entry->name);
      options.units.push_back({std::string(entry->name), &units_.back()->caps(), executors_.back().get()});
    }
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    for (auto& [name, tensor] : read_golden(GetParam().vectors)) {
      if (!name.ends_with("ids")) continue;
      // The smaller model of the same architecture runs every length; of the larger, whose 700 tokens on `ref` took
      // most of the time of all tests, one prompt of each kind.
      const bool large = model_->parameter_count() > 10'000'000;
      if (large && name != "chat.ids" && name != "len65.ids" && name != "len129.ids" && name != "text.ids") continue;
      if (smoke_run() && tensor.integers.size() > 70) tensor.integers.resize(70);
      prompts_[name] = tensor.integers;
    }
    ASSERT_FALSE(prompts_.empty());
  }

  Answer ask(const std::string& from, const std::string& to, std::string_view strategy,
             const std::vector<int32_t>& prompt, VerifyMode verify, const std::string& via = "") {
    Request request;
    request.tokens = prompt;
    request.max_new_tokens = kNewTokens;
    request.ignore_eos = true;
    request.prefill_unit = from;
    request.via_unit = via;
    request.decode_unit = to;
    request.strategy = strategy;
    request.verify = verify;
    // As wide as the units state; measured bounds are the matter of proof_test.
    ProofBounds bounds;
    bounds.segments.assign(model_->program.slots.size(), {1, {1, 10}});
    const double widest = tolerance(from) + tolerance(to) + (via.empty() ? 0 : 2 * tolerance(via));
    bounds.logits = {widest, widest, widest};
    request.move_bounds = request.via_bounds = bounds;
    Answer answer;
    auto ticket = engine_->submit(std::move(request));
    EXPECT_TRUE(ticket) << ticket.error().message;
    if (!ticket) return answer;
    while (true) {
      const auto event = ticket->next_event(std::chrono::minutes(5));
      if (!event) {
        ADD_FAILURE() << "no event in 5 minutes";
        return answer;
      }
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        answer.ids.push_back(token->id);
        continue;
      }
      const auto& finished = std::get<FinishedEvent>(*event);
      EXPECT_NE(finished.reason, FinishReason::kError) << finished.error.message;
      answer.stats = finished.stats;
      return answer;
    }
  }

  float tolerance(const std::string& unit) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == unit) return logit_tolerance_of(*units_[i], *model_);
    }
    return 0;
  }

  // Whether a state of one can have the memory of the other's.
  bool have_memory_alike(const std::string& from, const std::string& to) const {
    const auto state_of = [&](const std::string& unit) {
      const auto at = std::find(names_.begin(), names_.end(), unit) - names_.begin();
      auto made = executors_.at(static_cast<size_t>(at))->new_state(1);
      EXPECT_TRUE(made) << made.error().message;
      return std::move(*made);
    };
    return from != to && state_of(to)->can_adopt(*state_of(from));
  }
  bool decodes(const std::string& unit) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == unit) return units_[i]->caps().decode_seats_max > 0;
    }
    return false;
  }

  // 70 tokens of it.
  std::vector<int32_t> shortest_prompt() const {
    std::vector<int32_t> prompt;
    for (const auto& [name, tokens] : prompts_) {
      if (tokens.size() > 1 && (prompt.empty() || tokens.size() < prompt.size())) prompt = tokens;
    }
    prompt.resize(std::min<size_t>(prompt.size(), 70));
    return prompt;
  }

  // The gap of the two best logits behind prompt + `ids`, on `ref`.
  float gap_on_ref(const std::vector<int32_t>& prompt, std::span<const int32_t> ids) {
    auto unit = create_unit("ref");
    auto executor = (*unit)->load(model_, 0);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    auto state = (*executor)->new_state(all.size());
    return top2_gap(last_logits(**executor, all, 0, **state));
  }

  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::string> names_;
  std::map<std::string, std::vector<int32_t>> prompts_;
  std::unique_ptr<Engine> engine_;
};

std::vector<GoldenCase> cases_of_states() {
  std::vector<GoldenCase> cases = golden_cases();
  std::erase_if(cases, [](const GoldenCase& item) { return item.copy; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, Handoff, testing::ValuesIn(cases_of_states()), [](const auto& item) {
  std::string name = item.param.name;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

TEST_P(Handoff, EveryPairAndStrategyGivesTheTokensOfRef) {
  size_t near_ties = 0, answers = 0;
  double worst_proof = 0;
  float widest_tie = 0;
  for (const auto& [name, prompt] : prompts_) {
    const Answer wanted = ask("ref", "ref", "single", prompt, VerifyMode::kOff);
    ASSERT_EQ(wanted.ids.size(), kNewTokens) << name;
    for (const std::string& from : names_) {
      for (const std::string& to : names_) {
        if (!decodes(to)) continue;
        for (const std::string_view strategy : strategy_names()) {
          const std::string label = fmt::format("{} {} -> {} {}", name, from, to, strategy);
          const uint32_t hand_overs = find_strategy(strategy)->hand_overs;
          if (hand_overs == 0 && from != to) continue;  // refused: see SingleRefusesTwoUnits
          if (hand_overs > 1) continue;                 // see EveryTripleGivesTheTokensOfRef
          const Answer got = ask(from, to, strategy, prompt, VerifyMode::kSample);
          ++answers;
          ASSERT_EQ(got.ids.size(), kNewTokens) << label;
          EXPECT_EQ(got.stats.fallback, "") << label;
          EXPECT_EQ(got.stats.decode.ran, to) << label;
          const bool moves = hand_overs == 1 && from != to && prompt.size() > 1;
          if (moves) {
            EXPECT_EQ(got.stats.prefill.ran, from) << label;
            const bool alike = have_memory_alike(from, to);
            EXPECT_EQ(got.stats.bridge.kind, alike ? BridgeKind::kAdopt : BridgeKind::kMove) << label;
            EXPECT_TRUE(got.stats.bridge.verified) << label;
            EXPECT_EQ(got.stats.bridge.bytes == 0, alike) << label;
            EXPECT_EQ(got.stats.bridge.checked, 1u) << label;
            EXPECT_LE(got.stats.bridge.max_abs_dlogit, got.stats.bridge.logits.largest) << label;
            worst_proof = std::max(worst_proof, got.stats.bridge.max_abs_dlogit);
          }
          const auto [mine, other] = std::mismatch(got.ids.begin(), got.ids.end(), wanted.ids.begin());
          if (mine == got.ids.end()) continue;
          const size_t at = static_cast<size_t>(mine - got.ids.begin());
          const float explained = tolerance(from) + tolerance(to);
          const float gap = gap_on_ref(prompt, std::span(wanted.ids).first(at));
          widest_tie = std::max(widest_tie, gap);
          EXPECT_LE(gap, explained) << label << ": token " << at << " is " << *mine << ", on ref " << *other
                                    << ", and no near tie";
          ++near_ties;
        }
      }
    }
  }
  RecordProperty("answers", static_cast<int>(answers));
  RecordProperty("near_ties", static_cast<int>(near_ties));
  RecordProperty("max_abs_dlogit", fmt::format("{:.6f}", worst_proof));
  fmt::print("{}: {} answers, {} near ties, proof max |dlogit| {:.6f}\n", GetParam().name, answers, near_ties,
             worst_proof);
  EXPECT_EQ(engine_->usage().states, 0u);
}

TEST_P(Handoff, SingleRefusesTwoUnits) {
  Request request;
  request.tokens = {1};
  request.prefill_unit = "ref";
  request.decode_unit = "cpu";
  request.strategy = "single";
  const auto ticket = engine_->submit(std::move(request));
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, Code::kInvalidInput);
  EXPECT_NE(ticket.error().message.find("strategy"), std::string::npos) << ticket.error().message;
}

// Of each model its shortest prompt, 70 tokens of it: half of the answer by the via unit, half by the last, both
// proven.
TEST_P(Handoff, EveryTripleGivesTheTokensOfRef) {
  const std::vector<int32_t> prompt = shortest_prompt();
  ASSERT_FALSE(prompt.empty());
  const Answer wanted = ask("ref", "ref", "", prompt, VerifyMode::kOff);
  size_t answers = 0;
  for (const Strategy* strategy : strategies()) {
    if (strategy->hand_overs < 2) continue;
    for (const std::string& from : names_) {
      for (const std::string& via : names_) {
        for (const std::string& to : names_) {
          if (!decodes(via) || !decodes(to)) continue;
          const std::string label = fmt::format("{} -> {} -> {} {}", from, via, to, strategy->name);
          const Answer got = ask(from, to, strategy->name, prompt, VerifyMode::kSample, via);
          ++answers;
          ASSERT_EQ(got.ids.size(), kNewTokens) << label;
          EXPECT_EQ(got.stats.fallback, "") << label;
          EXPECT_EQ(got.stats.prefill.ran, from) << label;
          EXPECT_EQ(got.stats.via.ran, via == to ? "" : via) << label;
          EXPECT_EQ(got.stats.via_tokens, via == to ? 0u : kNewTokens / 2) << label;
          EXPECT_EQ(got.stats.decode.ran, to) << label;
          const BridgeKind kind = from == via && via == to ? BridgeKind::kAlias : BridgeKind::kMove;
          const std::string &last_from = via == to ? from : via, &last_to = to;
          EXPECT_EQ(got.stats.bridge.kind, have_memory_alike(last_from, last_to) ? BridgeKind::kAdopt : kind) << label;
          EXPECT_TRUE(got.stats.bridge.verified) << label << got.stats.bridge.unproven;
          EXPECT_EQ(got.stats.bridge.states, via == to ? 1u : 2u) << label;
          const auto [mine, other] = std::mismatch(got.ids.begin(), got.ids.end(), wanted.ids.begin());
          if (mine == got.ids.end()) continue;
          const auto at = static_cast<size_t>(mine - got.ids.begin());
          EXPECT_LE(gap_on_ref(prompt, std::span(wanted.ids).first(at)),
                    tolerance(from) + tolerance(via) + tolerance(to))
              << label << ": token " << at << " is " << *mine << ", on ref " << *other << ", and no near tie";
        }
      }
    }
  }
  RecordProperty("answers", static_cast<int>(answers));
  EXPECT_EQ(engine_->usage().states, 0u);
}

// The proof over every generated token, as `--verify-bridge all` asks for it, by each strategy that hands over once.
TEST_P(Handoff, EveryTokenProven) {
  std::set<std::string> pairs;
  std::map<std::string, std::vector<int32_t>> prompts = prompts_;
  std::erase_if(prompts, [](const auto& prompt) { return prompt.second.size() < 2 || prompt.second.size() > 70; });
  if (prompts.empty()) prompts["short"] = shortest_prompt();
  const bool large = model_->parameter_count() > 1'000'000;
  for (const auto& [name, prompt] : prompts) {
    for (const std::string& from : names_) {
      for (const std::string& to : names_) {
        if (from == to || !decodes(to)) continue;
        for (const Strategy* strategy : strategies()) {
          if (strategy->hand_overs != 1 || (large && strategy != strategies()[0])) continue;
          const std::string label = fmt::format("{} {} -> {} {}", name, from, to, strategy->name);
          const Answer got = ask(from, to, strategy->name, prompt, VerifyMode::kAll);
          EXPECT_EQ(got.stats.fallback, "") << label;
          EXPECT_EQ(got.stats.prefill.ran, from) << label;
          EXPECT_EQ(got.stats.decode.ran, to) << label;
          EXPECT_TRUE(got.stats.bridge.verified) << label << got.stats.bridge.unproven;
          EXPECT_EQ(got.stats.bridge.level, BridgeLevel::kProven) << label;
          EXPECT_GE(got.stats.bridge.checked, kNewTokens) << label;
          EXPECT_EQ(got.stats.bridge.agreed + got.stats.bridge.near_ties, got.stats.bridge.checked) << label;
          pairs.insert(from + "->" + to);
        }
      }
    }
  }
  const auto targets = static_cast<size_t>(
      std::count_if(names_.begin(), names_.end(), [this](const std::string& name) { return decodes(name); }));
  EXPECT_EQ(pairs.size(), targets * (names_.size() - 1));
  // What scripts/test_cuda.sh looks for.
  fmt::print("{}: every token proven: {}\n", GetParam().name, fmt::join(pairs, " "));
}

}  // namespace
}  // namespace baton::test
