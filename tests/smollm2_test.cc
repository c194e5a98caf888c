// A real model of others, SmolLM2-135M-Instruct in Q4_1, when scripts/fetch_smollm2.sh has fetched it: its tokenizer
// against the reference tokenizer's ids, and a question with a known answer on every unit.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "baton/api/calibration.h"
#include "baton/api/runtime.h"
#include "baton/api/units.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"

namespace baton::test {
namespace {

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(BATON_SOURCE_DIR) / "models" / "smollm2-135m-instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path_)) {
      GTEST_SKIP() << "98 MB model not fetched; scripts/fetch_smollm2.sh fetches it";
    }
  }
  std::filesystem::path path_;
};

TEST_F(SmolLm2, TokenizerEqualsTheReference) {
  auto text = load_text_model(path_);
  ASSERT_TRUE(text) << text.error().message;
  std::ifstream stream(data_folder() / "text" / "smollm2.json");
  const auto cases = nlohmann::json::parse(stream);
  ASSERT_GE(cases.size(), 40u);
  for (const auto& item : cases) {
    const auto ids = text->tokenizer->encode(item["text"].get<std::string>(), true);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, item["ids"].get<std::vector<int32_t>>()) << item["text"];
  }
}

TEST_F(SmolLm2, TheCapitalOfFranceIsParis) {
  if (smoke_run()) return;
  for (const UnitEntry* entry : unit_entries()) {
    const auto unit = entry->create({});
    if (!unit || (*unit)->caps().decode_seats_max == 0) continue;  // not on this machine, or for prefill only
    RuntimeOptions options;
    options.model = path_;
    options.units = {std::string(entry->name)};
    options.limits.tokens_max = 256;
    auto runtime = Runtime::open(options);
    ASSERT_TRUE(runtime) << runtime.error().message;
    ChatInput input;
    input.messages.push_back({{"role", "user"}, {"content", "What is the capital of France?"}});
    auto ids = (*runtime)->encode_chat(input);
    ASSERT_TRUE(ids) << ids.error().message;
    CompletionRequest request{(*runtime)->make_request(*ids), {}};
    request.request.decode_unit = entry->name;
    request.request.strategy = "single";
    request.request.max_new_tokens = 12;
    const auto completion = (*runtime)->complete(std::move(request), {}, {});
    ASSERT_TRUE(completion) << completion.error().message;
    EXPECT_NE(completion->text.find("Paris"), std::string::npos) << entry->name << ": " << completion->text;
  }
}

// The bounds of the bridge proof on a model that nobody here trained: tight enough for a forged layer to show.
TEST_F(SmolLm2, HonestStatesDifferLittle) {
  if (smoke_run()) return;
  const auto text = load_text_model(path_);
  ASSERT_TRUE(text) << text.error().message;
  const auto load = [&](const char* name) { return (*create_unit(name))->load(text->model, 2); };
  const auto ref = load("ref"), cpu = load("cpu");
  ASSERT_TRUE(ref && cpu);
  const auto honest = measure_states(**ref, **cpu, calibration_sequences(*text));
  ASSERT_TRUE(honest) << honest.error().message;
  for (const SegmentBounds& each : honest->segments) EXPECT_LT(each.rms, 0.06);
  EXPECT_LT(honest->logits.largest, 1);
  // What `bench` allows a choice: below what most of the 31st choices lie behind.
  const auto margins = measure_margins(**cpu, **cpu, **ref, calibration_sequences(*text));
  ASSERT_TRUE(margins) << margins.error().message;
  EXPECT_LT(margins->largest, 0.6);
  EXPECT_GT(margins->wrong_choice, 2 * kBoundFactor * margins->largest);
}

}  // namespace
}  // namespace baton::test
