// Arithmetic of the prediction: sizes against published parameter counts, kernels against the source's inventory, the
// split of the published rows, and what the summary must explain.
#include "baton/bench/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/pipeline_report.h"
#include "baton/bench/stats.h"

namespace baton {
namespace {

TEST(Shapes, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(parameters(*model_shape("qwen3.5-0.8b")), 752'393'024u);
  EXPECT_EQ(parameters(*model_shape("qwen3.5-2b")), 1'881'825'088u);
  EXPECT_EQ(parameters(*model_shape("qwen3.5-9b")), 8'953'803'264u);
  EXPECT_EQ(parameters(*model_shape("qwen3-4b")), 4'022'468'096u);
  EXPECT_EQ(model_shape("qwen3.5-1b"), nullptr);
}

TEST(Shapes, KernelsOfTheSmallModelAreTheSources) {
  const auto work = engine_work(*model_shape("qwen3.5-0.8b"));
  ASSERT_TRUE(work.has_value()) << work.error().message;
  EXPECT_EQ(work->body.size(), 72u);  // 3 a layer
  EXPECT_EQ(work->head.size(), 16u);  // 15 of 16384 rows and one of 2560
  uint64_t bytes = 0, flops = 0;
  for (const auto* kernels : {&work->body, &work->head}) {
    for (const KernelWork& kernel : *kernels) bytes += kernel.weight_bytes, flops += kernel.flops;
  }
  // Everything but the two projections of 16 values a layer that stay on the host.
  const uint64_t on_host = 18 * 2 * 1024 * 16;
  EXPECT_EQ(bytes, 2 * (matrix_parameters(*model_shape("qwen3.5-0.8b")) - on_host));
  EXPECT_GE(flops, 32 * bytes);  // one multiplication and addition for each value of 2 bytes and column
  // 18 x (1024 -> 8192, 2048 -> 1024) + 6 x (1024 -> 5120, 2048 -> 1024) + 24 x (1024 -> 1024).
  EXPECT_EQ(work->copied_values, 18u * (9216 + 3072) + 6 * (6144 + 3072) + 24 * 2048);
}

TEST(Shapes, StateIsAsTheSourcesFile) {
  // ANELMS of the 0.8B: 71.5 MB with its logits.
  const ModelShape& shape = *model_shape("qwen3.5-0.8b");
  EXPECT_NEAR(static_cast<double>(state_bytes(shape, 2048, 4) + shape.vocab * 4), 71.5e6, 0.1e6);
  EXPECT_EQ(state_bytes(shape, 1, 2) - state_bytes(shape, 0, 2), 12'288u);
}

TEST(Predict, AtMostHalfOfTheRowsCalibrate) {
  const auto rows = published_rows();
  const auto used = std::count_if(rows.begin(), rows.end(), [](const PublishedRow& row) { return row.calibrates; });
  EXPECT_LE(2 * static_cast<size_t>(used), rows.size());
  for (const PublishedRow& row : rows) {
    EXPECT_GT(row.value, 0);
    EXPECT_NE(model_shape(row.shape), nullptr) << row.shape;
    EXPECT_NE(apple::chip_preset(row.chip), nullptr) << row.chip;
    EXPECT_TRUE(row.doubt.empty() || !row.calibrates) << row.doubt;
  }
}

// The fit must find what made the rows: published values cannot be changed here, so its own predictions of the
// calibration rows are checked for being near, and for being better than the figures it starts from.
TEST(Predict, CalibrationRowsAreMet) {
  const auto rows = compare_published();
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  std::vector<double> calibrated, predicted;
  for (const Comparison& item : *rows) {
    EXPECT_NEAR(item.deviation, item.predicted / item.row.value - 1, 1e-12);
    if (item.row.calibrates) calibrated.push_back(std::fabs(item.deviation));
    if (!item.row.calibrates && item.row.doubt.empty()) predicted.push_back(std::fabs(item.deviation));
  }
  EXPECT_LT(quantile(calibrated, 0.5), 0.08);
  EXPECT_LT(quantile(predicted, 0.5), 0.25);
  EXPECT_GT(quantile(predicted, 0.9), 0.2);  // and it is known not to be better
}

TEST(Predict, EveryLargeDeviationHasAReason) {
  const auto rows = compare_published();
  ASSERT_TRUE(rows.has_value());
  int large = 0;
  for (const Comparison& item : *rows) {
    if (std::fabs(item.deviation) <= kDeviationStated) continue;
    ++large;
    EXPECT_FALSE(explanation(item.row).empty()) << item.row.source << " " << item.row.shape << " " << item.row.pipeline
                                                << " " << item.row.tokens << " " << item.deviation;
  }
  EXPECT_GT(large, 0);
  const std::string text = published_text(*rows);
  EXPECT_NE(text.find("two sources disagree"), std::string::npos);
  EXPECT_NE(text.find("calibrates"), std::string::npos);
  EXPECT_EQ(published_json(*rows).size(), rows->size());
}

TEST(Predict, TimesAreSumsOfTheParts) {
  auto predictor = Predictor::create("m2-ultra");
  ASSERT_TRUE(predictor.has_value()) << predictor.error().message;
  const ModelShape& shape = *model_shape("qwen3.5-0.8b");
  const auto at = [&](std::string_view pipeline, uint32_t tokens) {
    return predictor->times(pipeline, shape, GpuWeights::kBf16, tokens).value();
  };
  const auto ms = [&](std::string_view pipeline, uint32_t tokens) {
    return tokens / at(pipeline, tokens).prefill_tps * 1e3;
  };
  // A second chunk of 32 tokens costs the body once more and the host's work of 32 tokens.
  const auto work = engine_work(shape).value();
  double body = 0;
  apple::ChipPreset chip = predictor->chip();
  chip.weights_gb_s = predictor->figures().engine_gb_s;
  for (const KernelWork& kernel : work.body) body += apple::evaluate_ms(chip, kernel.weight_bytes, kernel.flops);
  const double host = (ms("ane-batch", 32) - ms("ane-batch", 31));
  EXPECT_GT(host, 0);
  EXPECT_NEAR(ms("ane-batch", 33) - ms("ane-batch", 32), body + host, 0.1);
  EXPECT_NEAR(ms("ane", 20), 2 * ms("ane", 10), 0.01 * ms("ane", 20));
  EXPECT_NEAR(1e3 / at("ane", 10).decode_tps, ms("ane", 1), 0.01 * ms("ane", 1));
  EXPECT_EQ(at("ane", 10).bridge_bytes, 0u);
  EXPECT_GT(at("ane-hybrid", 10).bridge_bytes, 70'000'000u);
  EXPECT_NEAR(at("ane-hybrid", 10).ttft_ms, at("ane", 10).ttft_ms + at("ane-hybrid", 10).bridge_ms, 1e-6);
  EXPECT_LT(at("ane-batch", 74).joules.value(), at("gpu", 74).joules.value() * 1.5);
  EXPECT_GT(*at("gpu", 410).watts, *at("ane", 410).watts);
  EXPECT_GT(at("gpu", 6).decode_tps,
            predictor->times("gpu", *model_shape("qwen3.5-9b"), GpuWeights::kBf16, 6)->decode_tps);
}

TEST(Predict, OtherChipsScaleAndSayWhatTheyDoNotKnow) {
  const ModelShape& shape = *model_shape("qwen3.5-0.8b");
  auto small = Predictor::create("m1"), large = Predictor::create("m4-max"), unknown = Predictor::create("m5");
  ASSERT_TRUE(small && large && unknown);
  EXPECT_LT(small->times("gpu", shape, GpuWeights::kBf16, 410)->decode_tps,
            large->times("gpu", shape, GpuWeights::kBf16, 410)->decode_tps);
  EXPECT_FALSE(small->times("ane", shape, GpuWeights::kBf16, 6)->joules.has_value());
  EXPECT_FALSE(unknown->times("gpu", shape, GpuWeights::kBf16, 6).has_value());
  EXPECT_TRUE(unknown->times("ane", shape, GpuWeights::kBf16, 6).has_value());
  EXPECT_FALSE(small->times("coreml-hybrid", shape, GpuWeights::kBf16, 513).has_value());
  const auto none = Predictor::create("m9");
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("m2-ultra"), std::string::npos);
}

}  // namespace
}  // namespace baton
