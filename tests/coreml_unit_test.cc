// The `coreml` unit as `baton units` knows it: not available without Core ML, and with device=emulator its
// packages in the interpreter, through the real engine: prefill there, decode on each unit that decodes, the same
// tokens as `ref` up to near ties, every row proven.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "baton/api/units.h"
#include "baton/engine/engine.h"
#include "tests/support/golden.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;
constexpr uint32_t kNewTokens = 12;

TEST(CoreMlUnit, NotHereIsSaidWithTheReason) {
#if defined(__APPLE__)
  GTEST_SKIP() << "this system may have Core ML";
#endif
  const auto unit = create_unit("coreml");
  ASSERT_FALSE(unit);
  EXPECT_EQ(unit.error().code, Code::kUnsupported);
  EXPECT_NE(unit.error().message.find("macOS"), std::string::npos) << unit.error().message;
}

TEST(CoreMlUnit, WrongSettingsAreNamed) {
  for (const char* wrong : {"device=yes", "units=npu", "lengths=64+x", "lengths=60", "timeout=0"}) {
    const auto unit = create_unit(std::string("coreml:") + wrong);
    ASSERT_FALSE(unit) << wrong;
    EXPECT_EQ(unit.error().code, Code::kInvalidInput);
    EXPECT_NE(unit.error().message.find(wrong), std::string::npos) << unit.error().message;
  }
}

TEST(CoreMlUnit, TheEmulatorHasNoUnitsToChoose) {
  for (const char* wrong : {"units=cpu", "timeout=5"}) {
    const auto unit = create_unit(std::string("coreml:device=emulator,") + wrong);
    ASSERT_FALSE(unit) << wrong;
    EXPECT_EQ(unit.error().code, Code::kInvalidInput);
    EXPECT_NE(unit.error().message.find(std::string(wrong, 0, 5)), std::string::npos) << unit.error().message;
  }
}

class Emulated : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("baton-coreml-unit-{}", getpid());
    auto model = load_model(GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    EngineOptions options;
    for (const char* name : {"ref", "cpu", "coreml"}) {
      const std::string words = fmt::format(":device=emulator,lengths=32+64,cache={}", folder_.string());
      auto unit = create_unit(name == std::string("coreml") ? name + words : name);
      ASSERT_TRUE(unit) << unit.error().message;
      if (const Status can = check_program(name, (*unit)->caps(), model_->program); !can)
        GTEST_SKIP() << can.error().message;
      auto executor = (*unit)->load(model_, 2);
      ASSERT_TRUE(executor) << executor.error().message;
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
      options.units.push_back({name, &units_.back()->caps(), executors_.back().get()});
    }
    engine_ = std::move(*Engine::create(std::move(options)));
  }
  void TearDown() override {
    engine_.reset();
    fs::remove_all(folder_);
  }

  Result<Ticket> submit(const std::string& from, const std::string& to, const std::vector<int32_t>& prompt) {
    Request request;
    request.tokens = prompt;
    request.max_new_tokens = kNewTokens;
    request.ignore_eos = true;
    request.prefill_unit = from;
    request.decode_unit = to;
    request.strategy = from == to ? "single" : "handoff";
    request.verify = from == to ? VerifyMode::kOff : VerifyMode::kAll;
    // As wide as the units state; measured bounds are the matter of proof_test.
    ProofBounds bounds;
    bounds.segments.assign(model_->program.slots.size(), {1, {1, 10}});
    double widest = 0;
    for (const auto& unit : units_) widest = std::max<double>(widest, unit->caps().logit_tolerance(main_type(*model_)));
    bounds.logits = {2 * widest, 2 * widest, 2 * widest};
    request.move_bounds = bounds;
    return engine_->submit(std::move(request));
  }
  std::pair<std::vector<int32_t>, RequestStats> ask(const std::string& from, const std::string& to,
                                                    const std::vector<int32_t>& prompt) {
    std::pair<std::vector<int32_t>, RequestStats> answer;
    auto ticket = submit(from, to, prompt);
    EXPECT_TRUE(ticket) << ticket.error().message;
    while (ticket) {
      const auto event = ticket->next_event(std::chrono::minutes(5));
      if (!event) {
        ADD_FAILURE() << "no event in 5 minutes";
        break;
      }
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        answer.first.push_back(token->id);
        continue;
      }
      const auto& finished = std::get<FinishedEvent>(*event);
      EXPECT_NE(finished.reason, FinishReason::kError) << finished.error.message;
      answer.second = finished.stats;
      break;
    }
    return answer;
  }

  fs::path folder_;
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<Engine> engine_;
};

std::vector<GoldenCase> small_cases() {
  std::vector<GoldenCase> cases = golden_cases();
  std::erase_if(cases, [](const GoldenCase& item) { return item.copy || item.name.starts_with("dictionary-28m"); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, Emulated, testing::ValuesIn(small_cases()), [](const auto& item) {
  std::string name = item.param.name;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

TEST_P(Emulated, PrefillsForTheUnitsThatDecode) {
  double worst = 0;
  for (auto& [name, tensor] : read_golden(GetParam().vectors)) {
    if (!name.ends_with("ids") || tensor.integers.size() < 2 || tensor.integers.size() > 140) continue;
    const std::vector<int32_t>& prompt = tensor.integers;
    const auto wanted = ask("ref", "ref", prompt);
    for (const char* to : {"ref", "cpu"}) {
      const auto [ids, stats] = ask("coreml", to, prompt);
      const std::string label = fmt::format("{} coreml -> {}", name, to);
      EXPECT_EQ(stats.fallback, "") << label;
      EXPECT_EQ(stats.prefill.ran, "coreml") << label;
      EXPECT_TRUE(stats.prefill.evidence.starts_with("emulated")) << stats.prefill.evidence;
      EXPECT_EQ(stats.prefill.warning, "");
      EXPECT_TRUE(stats.bridge.verified) << label;
      EXPECT_GE(stats.bridge.checked, kNewTokens) << label;
      EXPECT_EQ(stats.bridge.agreed + stats.bridge.near_ties, stats.bridge.checked) << label;
      EXPECT_LE(stats.bridge.max_abs_dlogit, stats.bridge.logits.largest) << label;
      worst = std::max(worst, stats.bridge.max_abs_dlogit);
      if (stats.bridge.near_ties == 0) {
        EXPECT_EQ(ids, wanted.first) << label;
      }
    }
  }
  EXPECT_GT(worst, 0) << "nothing was compared";
  fmt::print("{}: proof max |dlogit| {:.5f}\n", GetParam().name, worst);
}

TEST_P(Emulated, LogitsThroughTheHostsHead) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3,
                                    8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5, 0, 2, 8};
  const auto vocab = static_cast<size_t>(model_->program.vocab);
  std::vector<std::vector<float>> logits(2, std::vector<float>(3 * vocab));
  for (size_t i = 0; i < 2; ++i) {
    Executor& executor = *executors_[i == 0 ? 0 : 2];
    auto state = executor.new_state(ids.size());
    ASSERT_TRUE(executor.prefill(**state, ids, logits[i]));
    auto copy = executor.fork(**state, ids.size());
    ASSERT_TRUE(copy);
    EXPECT_EQ((*copy)->position(), ids.size());
  }
  EXPECT_LE(max_abs_difference(logits[1], logits[0]), units_[2]->caps().logit_tolerance(main_type(*model_)));
}

TEST_P(Emulated, DecodeThereIsRefusedBeforeAnythingRuns) {
  const auto ticket = submit("coreml", "coreml", {1, 2, 3});
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, Code::kUnsupported);
  EXPECT_NE(ticket.error().message.find("another one"), std::string::npos) << ticket.error().message;
}

}  // namespace
}  // namespace baton::test
