// Windows, scores and their statistics: by hand on a unit that answers from a table, and on the bundled small model.
#include "baton/tools/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numbers>

#include "baton/api/units.h"
#include "baton/base/file.h"
#include "baton/base/random.h"
#include "tests/support/state_values.h"

namespace baton {
namespace {

using Logit = std::function<float(int32_t token, uint64_t position, int32_t id)>;

// Logits behind a token depend on the token and its position alone.
class TableExecutor final : public Executor {
 public:
  TableExecutor(int32_t vocab, Logit logit) : logit_(std::move(logit)) {
    model_.spec.name = "table";
    model_.spec.vocab = model_.program.vocab = model_.program.output_width = vocab;
  }
  const Model& model() const override { return model_; }
  const StateShape& shape() const override { return shape_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override {
    return std::make_unique<test::EmptyState>(tokens_max, live_);
  }
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext&) override {
    const uint64_t vocab = model_.program.vocab;
    for (const Seat& seat : seats) {
      auto& state = static_cast<test::EmptyState&>(*seat.state);
      for (size_t i = 0; i < seat.tokens.size(); ++i) {
        if (state.position() == 0) first_tokens.push_back(seat.tokens[i]);
        if (i + seat.rows_out >= seat.tokens.size()) {
          for (uint64_t id = 0; id < vocab; ++id)
            out[id] = logit_(seat.tokens[i], state.position(), static_cast<int32_t>(id));
          out = out.subspan(vocab);
        }
        state.advance(1);
      }
    }
    return {};
  }
  Placement placement() const override { return {"table", "a table"}; }
  std::string arithmetic() const override { return "table"; }

  std::vector<int32_t> first_tokens;  // of each window

 private:
  Model model_;
  const StateShape shape_;
  Logit logit_;
};

const std::vector<double> kSkewed = {0.5, 0.25, 0.125, 0.125};
float skewed(int32_t, uint64_t, int32_t id) { return static_cast<float>(std::log(kSkewed[id])) + 7; }
float uniform(int32_t, uint64_t, int32_t) { return -3; }

PerplexityOptions windows_of(uint32_t window) { return {.window = window, .counted_from = peer_counted_from(window)}; }

TEST(Perplexity, WindowsAsPeersCountThem) {
  EXPECT_EQ(peer_counted_from(512), 257u);
  // The logit of the id that equals the position is high: only the counted positions' scores can be seen.
  TableExecutor executor(
      16, [](int32_t, uint64_t position, int32_t id) { return id == static_cast<int32_t>(position) ? 20.0f : 0.0f; });
  // Windows of 8: logits behind tokens 4, 5, 6 predict tokens 5, 6, 7; the last 3 tokens fill no window.
  std::vector<int32_t> ids(19, 9);
  for (const uint64_t window : {0, 1}) {
    for (int32_t i = 5; i < 8; ++i) ids[8 * window + i] = i - 1;
  }
  Executor* const models[] = {&executor};
  const auto scores = score_windows(models, nullptr, ids, windows_of(8));
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_EQ(scores->windows, 2u);
  EXPECT_EQ(scores->per_window, 3u);
  EXPECT_FALSE(scores->reference);
  ASSERT_EQ(scores->models[0].nll.size(), 6u);
  const double expected = std::log(1 + 15 * std::exp(-20.0));
  for (const double nll : scores->models[0].nll) EXPECT_NEAR(nll, expected, 1e-12);
  EXPECT_EQ(executor.first_tokens, (std::vector<int32_t>{9, 9}));

  PerplexityOptions options = windows_of(8);
  options.window_start = 3;
  options.windows_max = 1;
  const auto with_bos = score_windows(models, nullptr, ids, options);
  ASSERT_TRUE(with_bos);
  EXPECT_EQ(with_bos->windows, 1u);
  EXPECT_EQ(executor.first_tokens.back(), 3);
}

TEST(Perplexity, OfLogitsThatAreNoNumbersIsAnError) {
  TableExecutor flat(4, uniform),
      broken(4, [](int32_t, uint64_t position, int32_t id) { return position == 5 && id == 2 ? NAN : 0.0f; });
  const std::vector<int32_t> ids = {0, 1, 2, 3, 0, 1, 2, 3};
  Executor* const good[] = {&flat};
  Executor* const bad[] = {&broken};
  for (const auto& scores :
       {score_windows(bad, nullptr, ids, windows_of(8)), score_windows(good, &broken, ids, windows_of(8))}) {
    ASSERT_FALSE(scores);
    EXPECT_EQ(scores.error().code, Code::kCorrupt);
    EXPECT_NE(scores.error().message.find("token 5: logit 2 is nan"), std::string::npos) << scores.error().message;
  }
}

TEST(Perplexity, ScoresByHand) {
  TableExecutor flat(4, uniform), reference(4, skewed),
      opposed(4, [](int32_t, uint64_t, int32_t id) { return static_cast<float>(std::log(kSkewed[3 - id])); });
  const std::vector<int32_t> ids = {0, 1, 2, 3, 0, 1, 2, 3};
  Executor* const models[] = {&flat, &opposed, &reference};
  TableExecutor twin(4, skewed);
  const auto scores = score_windows(models, &twin, ids, windows_of(8));
  ASSERT_TRUE(scores) << scores.error().message;
  constexpr double kLn2 = std::numbers::ln2;
  for (size_t i = 0; i < 3; ++i) {  // tokens 5, 6, 7 are 1, 2, 3
    EXPECT_NEAR(scores->reference->nll[i], -std::log(kSkewed[i + 1]), 1e-6);
    EXPECT_NEAR(scores->models[0].nll[i], 2 * kLn2, 1e-12);
    // sum p log(p / (1/4)) = 2 ln 2 - 1.75 ln 2
    EXPECT_NEAR(scores->models[0].kld[i], 0.25 * kLn2, 1e-6);
    EXPECT_EQ(scores->models[0].same_top[i], 1);  // all equal: the lowest id
    // 1/2 ln 4 + 1/4 ln 2 - 1/8 ln 2 - 1/8 ln 4
    EXPECT_NEAR(scores->models[1].kld[i], (1 + 0.25 - 0.125 - 0.25) * kLn2, 1e-6);
    EXPECT_EQ(scores->models[1].same_top[i], 0);
    EXPECT_EQ(scores->models[2].kld[i], 0.0);
    EXPECT_EQ(scores->models[2].nll[i], scores->reference->nll[i]);
    EXPECT_EQ(scores->models[2].same_top[i], 1);
  }
}

// A large vocabulary goes through a window in pieces of a few tokens.
TEST(Perplexity, PiecesOfAWindow) {
  constexpr int32_t kVocab = 1 << 20;
  const auto logit = [](int32_t token, uint64_t position, int32_t id) {
    return id == (token * 7 + static_cast<int32_t>(position)) % kVocab ? 12.0f : -1.0f;
  };
  TableExecutor model(kVocab, logit), reference(kVocab, logit);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 16; ++i) ids.push_back(i * i % 13);
  Executor* const models[] = {&model};
  PerplexityOptions options{.window = 16, .counted_from = 2, .threads = 2};
  const auto scores = score_windows(models, &reference, ids, options);
  ASSERT_TRUE(scores) << scores.error().message;
  const double log_sum = std::log(std::exp(12.0) + (kVocab - 1) * std::exp(-1.0));
  for (size_t i = 0; i < 14; ++i) {
    const int32_t position = static_cast<int32_t>(i) + 1;
    const bool hit = ids[i + 2] == (ids[i + 1] * 7 + position) % kVocab;
    EXPECT_NEAR(scores->models[0].nll[i], log_sum - (hit ? 12 : -1), 1e-6) << i;
    EXPECT_EQ(scores->models[0].kld[i], 0.0);
  }
}

TEST(Perplexity, ErrorsSayWhatToDo) {
  TableExecutor four(4, uniform), five(5, uniform);
  const std::vector<int32_t> ids(7, 1);
  Executor* const models[] = {&four};
  const auto short_text = score_windows(models, nullptr, ids, windows_of(8));
  ASSERT_FALSE(short_text);
  EXPECT_EQ(short_text.error().code, Code::kInvalidInput);
  EXPECT_NE(short_text.error().message.find("7 tokens do not fill a window of 8"), std::string::npos);
  const auto mismatch = score_windows(models, &five, ids, windows_of(4));
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().code, Code::kMismatch);
  EXPECT_FALSE(score_windows(models, nullptr, ids, {.window = 4, .counted_from = 4}));
  EXPECT_FALSE(score_windows(models, nullptr, ids, {.window = 4, .counted_from = 0}));
  const auto stopped = score_windows(models, nullptr, ids, windows_of(4), [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(PerplexityStats, ByHand) {
  const std::vector<double> nll = {1, 2, 3, 6};
  const Measured ppl = perplexity_of(nll, 2);
  // mean 3, mean of squares 12.5, (12.5 - 9) / 3
  EXPECT_NEAR(ppl.value, std::exp(3.0), 1e-12);
  EXPECT_NEAR(ppl.error, std::exp(3.0) * std::sqrt(3.5 / 3), 1e-12);
  // windows 1.5 and 4.5: variance by n - 1 is 4.5, over 2 windows
  EXPECT_NEAR(ppl.error_windows, std::exp(3.0) * 1.5, 1e-12);
  EXPECT_LT(perplexity_of(nll, 4).error_windows, 0);

  TokenScores reference{.nll = nll, .kld = {}, .same_top = {}};
  const double half = std::log(2.0);
  TokenScores model{.nll = {1, 2 + half, 3, 6 + half}, .kld = {0, 0.3, 0.1, 0.2}, .same_top = {1, 1, 0, 1}};
  const PairedQuality quality = compare_scores(model, reference, 2);
  EXPECT_NEAR(quality.log_ratio.value, half / 2, 1e-12);
  EXPECT_NEAR(quality.ratio.value, std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(quality.log_ratio.error, std::sqrt(half * half / 4 / 3), 1e-12);
  EXPECT_NEAR(quality.log_ratio.error_windows, 0, 1e-12);  // both windows lose the same
  EXPECT_NEAR(quality.delta_ppl.value, std::exp(3 + half / 2) - std::exp(3.0), 1e-12);
  EXPECT_NEAR(quality.kld.value, 0.15, 1e-12);
  EXPECT_NEAR(quality.kld_median, 0.15, 1e-12);
  EXPECT_NEAR(quality.kld_max, 0.3, 1e-12);
  EXPECT_NEAR(quality.kld_p99, 0.2 + 0.97 * 0.1, 1e-12);
  EXPECT_NEAR(quality.kld_p999, 0.2 + 0.997 * 0.1, 1e-12);
  EXPECT_NEAR(quality.top1.value, 0.75, 1e-12);
  EXPECT_NEAR(quality.top1.error, std::sqrt(0.75 * 0.25 / 3), 1e-12);
  const double d1 = -0.5 * std::exp(-2.0), d3 = -0.5 * std::exp(-6.0);
  EXPECT_NEAR(quality.delta_p.value, (d1 + d3) / 4, 1e-12);
  EXPECT_NEAR(quality.rms_delta_p.value, std::sqrt((d1 * d1 + d3 * d3) / 4), 1e-12);
  // The squares 0, d1^2, 0, d3^2: the error of their mean, times d(sqrt x)/dx.
  const double s1 = d1 * d1, s3 = d3 * d3, mean = (s1 + s3) / 4;
  const double error = std::sqrt(((s1 * s1 + s3 * s3) / 4 - mean * mean) / 3);
  EXPECT_NEAR(quality.rms_delta_p.error, error / (2 * std::sqrt(mean)), 1e-12);
}

// var(a) + var(b) - 2 cov(a, b), each scaled by its PPL: what llama.cpp prints for the difference.
TEST(PerplexityStats, PairedErrorIsThatOfThePeers) {
  Random random(5);
  TokenScores reference, model;
  double a = 0, b = 0, aa = 0, bb = 0, ab = 0;
  constexpr size_t kTokens = 1000;
  for (size_t i = 0; i < kTokens; ++i) {
    const double x = std::fabs(random.normal()) * 3, y = x + 0.05 * random.normal() + 0.01;
    reference.nll.push_back(x);
    model.nll.push_back(y);
    model.kld.push_back(0);
    model.same_top.push_back(1);
    a += y, b += x, aa += y * y, bb += x * x, ab += x * y;
  }
  const double n = kTokens;
  const double var_a = (aa / n - a / n * a / n) / (n - 1), var_b = (bb / n - b / n * b / n) / (n - 1);
  const double cov = (ab / n - a / n * b / n) / (n - 1);
  const double ppl_a = std::exp(a / n), ppl_b = std::exp(b / n);
  const PairedQuality quality = compare_scores(model, reference, 100);
  EXPECT_NEAR(quality.log_ratio.error, std::sqrt(var_a + var_b - 2 * cov), 1e-9);
  EXPECT_NEAR(quality.delta_ppl.error,
              std::sqrt(ppl_a * ppl_a * var_a + ppl_b * ppl_b * var_b - 2 * ppl_a * ppl_b * cov), 1e-9);
  EXPECT_LT(quality.delta_ppl.error, 0.1 * quality.ppl.error);  // what pairing is for
}

TEST(PerplexityStats, OfAModelWithItself) {
  const std::vector<double> nll = {0.1, 5, 0.7, 2.3};
  const TokenScores model{.nll = nll, .kld = {0, 0, 0, 0}, .same_top = {1, 1, 1, 1}};
  const PairedQuality quality = compare_scores(model, model, 2);
  for (const Measured& measured : {quality.delta_ppl, quality.log_ratio, quality.kld, quality.rms_delta_p}) {
    EXPECT_EQ(measured.value, 0);
    EXPECT_EQ(measured.error, 0);
    EXPECT_EQ(measured.error_windows, 0);
  }
  EXPECT_EQ(quality.ratio.value, 1);
  EXPECT_EQ(quality.top1.value, 1);
}

// One BOS before the text, and on the first place of each window; no EOS, and one newline less.
TEST(Perplexity, TextBeginsWithOneBos) {
  const std::filesystem::path folder = std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/golden/dictionary-3m";
  const auto json = read_file(folder / "tokenizer.json", 1 << 24);
  ASSERT_TRUE(json) << json.error().message;
  auto spec = tokenizer_spec_from_json(*json, "");
  ASSERT_TRUE(spec) << spec.error().message;
  const auto file = std::filesystem::path(testing::TempDir()) / "perplexity_bos.txt";
  std::ofstream(file) << "A compiler reads text.\n\n";
  for (const bool bos : {false, true}) {
    spec->add_bos = spec->add_eos = bos;
    spec->bos_id = 8189;
    spec->eos_id = 8191;
    auto tokenizer = Tokenizer::create(*spec);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    TextModel model;
    model.tokenizer = std::move(*tokenizer);
    const auto plain = model.tokenizer->encode("A compiler reads text.\n", false);
    const auto text = read_perplexity_text(model, file);
    ASSERT_TRUE(text) << text.error().message;
    std::vector<int32_t> expected = *plain;
    if (bos) expected.insert(expected.begin(), 8189);
    EXPECT_EQ(text->ids, expected);
    EXPECT_EQ(text->window_start, bos ? 8189 : -1);
  }
  std::filesystem::remove(file);
}

// The bf16 model with itself and with its Q8_0 copy, on held-out text.
TEST(Perplexity, OfTheBundledModels) {
  const std::filesystem::path root(BATON_SOURCE_DIR);
  const auto unit = create_unit("cpu");
  ASSERT_TRUE(unit) << unit.error().message;
  std::vector<TextModel> texts;
  std::vector<std::unique_ptr<Executor>> executors;
  for (const auto& path : {root / "tests/data/golden/dictionary-3m", root / "tests/data/golden/dictionary-3m",
                           root / "models/dictionary-3m.Q8_0.gguf"}) {
    auto text = load_text_model(path);
    ASSERT_TRUE(text) << text.error().message;
    auto executor = (*unit)->load(text->model, 1);
    ASSERT_TRUE(executor) << executor.error().message;
    texts.push_back(std::move(*text));
    executors.push_back(std::move(*executor));
  }
  EXPECT_TRUE(check_same_vocabulary(texts[2], texts[0]));
  auto llama = load_model(root / "tests/data/golden/tiny-llama");
  ASSERT_TRUE(llama) << llama.error().message;
  TextModel other;
  other.model = *llama;
  const Status mismatch = check_same_vocabulary(other, texts[0]);
  ASSERT_FALSE(mismatch);
  EXPECT_EQ(mismatch.error().code, Code::kMismatch);

  const auto text = read_perplexity_text(texts[0], root / "tests/data/golden/heldout.txt");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->window_start, -1);
  PerplexityOptions options = windows_of(128);
  options.windows_max = 8;
  uint64_t reported = 0;
  options.on_window = [&](uint64_t done, uint64_t total, double ppl) {
    EXPECT_EQ(done, ++reported);
    EXPECT_EQ(total, 8u);
    EXPECT_GT(ppl, 1);
  };
  Executor* const models[] = {executors[1].get(), executors[2].get()};
  const auto scores = score_windows(models, executors[0].get(), text->ids, options);
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_EQ(reported, 8u);
  const PairedQuality same = compare_scores(scores->models[0], *scores->reference, scores->per_window);
  EXPECT_EQ(same.kld.value, 0);
  EXPECT_EQ(same.kld_max, 0);
  EXPECT_EQ(same.delta_ppl.value, 0);
  EXPECT_EQ(same.delta_ppl.error, 0);
  EXPECT_EQ(same.top1.value, 1);
  const PairedQuality quantized = compare_scores(scores->models[1], *scores->reference, scores->per_window);
  EXPECT_GT(quantized.kld.value, 0);
  EXPECT_LT(quantized.kld.value, 0.01);
  EXPECT_GT(quantized.top1.value, 0.95);
  EXPECT_NEAR(quantized.ratio.value, 1, 0.02);
}

}  // namespace
}  // namespace baton
