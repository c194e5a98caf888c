// Divisors by hand; whole models against transformers are in tests/containers_test.cc.
#include "baton/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/model/config_reader.h"
#include "baton/model/model.h"

namespace baton {
namespace {

Result<ModelSpec> read(const char* text, int32_t rotary, int32_t context) {
  const Json config = Json::parse(text);
  ModelSpec spec;
  spec.rotary = rotary;
  spec.context_max = context;
  BATON_OK(read_rope(ConfigReader(config, "config.json"), "config.json", 10000.0f, spec));
  return spec;
}

std::vector<float> divisors(const ModelSpec& spec) {
  return rope_divisors(spec.rope_scaling, spec.rope_theta, spec.rotary);
}

// Llama 3.1: theta 500000, head 128. Frequency 30 makes 8192 * 500000^(-60/128) / 2 pi = 2.77855 turns, so (2.77855 -
// 1) / 3 = 0.592849 of it is kept: 1 / (0.407151 / 8 + 0.592849).
TEST(Rope, Llama3ByHand) {
  const auto spec = read(R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})",
                         128, 131072);
  ASSERT_TRUE(spec) << spec.error().message;
  const std::vector<float> got = divisors(*spec);
  ASSERT_EQ(got.size(), 64u);
  EXPECT_EQ(got[0], 1.0f);
  EXPECT_EQ(got[28], 1.0f);  // 4.19 turns
  EXPECT_NEAR(got[29], 1.2074839f, 1e-5f);
  EXPECT_NEAR(got[30], 1.5534146f, 1e-5f);
  EXPECT_NEAR(got[33], 3.6842525f, 1e-5f);
  EXPECT_EQ(got[35], 8.0f);  // 0.997 turns
  EXPECT_EQ(got[63], 8.0f);
  EXPECT_EQ(spec->rope_scaling.magnitude, 1.0f);
}

TEST(Rope, LinearDividesAllAndNeedsNothingElse) {
  const auto spec = read(R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})", 16, 512);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(divisors(*spec), std::vector<float>(8, 4.0f));
  EXPECT_EQ(spec->rope_theta, 10000.0f);
}

// theta 10000, 64 dims, 2048 tokens: 32 turns at 64 ln(2048 / 64 pi) / 2 ln 10000 = 8.06, 1 turn at 20.1; rounded
// outwards 8 and 21. At 15 the ramp is 7/13: 1 / (7/13 / 4 + 6/13).
TEST(Rope, YarnByHand) {
  const auto spec = read(R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
      "original_max_position_embeddings": 2048}})",
                         64, 8192);
  ASSERT_TRUE(spec) << spec.error().message;
  const std::vector<float> got = divisors(*spec);
  EXPECT_EQ(got[8], 1.0f);
  EXPECT_NEAR(got[9], 1.0612245f, 1e-6f);
  EXPECT_NEAR(got[15], 1.6774194f, 1e-6f);
  EXPECT_EQ(got[21], 4.0f);
  EXPECT_NEAR(spec->rope_scaling.magnitude, 0.1 * std::log(4.0) + 1, 1e-6);
}

// The factor of yarn and longrope may be left to the two lengths; the field beside the object wins over the one inside.
TEST(Rope, FactorFromTheTwoLengths) {
  const auto spec = read(R"({"original_max_position_embeddings": 1024, "rope_scaling": {"type": "yarn",
      "original_max_position_embeddings": 4096}})",
                         16, 8192);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->rope_scaling.factor, 8.0f);
  EXPECT_EQ(spec->rope_scaling.original, 1024);
  EXPECT_FALSE(read(R"({"rope_scaling": {"type": "linear"}})", 16, 8192));
}

TEST(Rope, WhatCannotBeAppliedIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rope_type": "dynamic", "factor": 2.0})", "'dynamic'"},
      {R"({"rope_type": "proportional", "factor": 2.0})", "'proportional'"},
      {R"({"rope_type": "yarn", "factor": 2.0, "spiral": 3})", "'spiral'"},
      {R"({"rope_type": "longrope", "short_mscale": 1.2, "short_factor": [1, 1], "long_factor": [2, 2]})",
       "'short_mscale'"},
      {R"({"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [2]})", "'long_factor' has 1 values"},
      {R"({"rope_type": "longrope", "short_factor": [1, 0], "long_factor": [2, 2]})", "'short_factor'[1] is 0"},
      {R"({"rope_type": "longrope", "long_factor": [2, 2]})", "'short_factor' is missing"},
      {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})", "must be above"},
      {R"({"rope_type": "linear", "factor": 0.5})", "'factor' is 0.5"},
      {R"({"full_attention": {"rope_type": "default"}})", "'full_attention'"},
  };
  for (const auto& [object, word] : cases) {
    const auto spec = read((std::string(R"({"rope_scaling": )") + object + "}").c_str(), 4, 512);
    ASSERT_FALSE(spec) << object;
    EXPECT_NE(spec.error().message.find(word), std::string::npos) << spec.error().message;
    EXPECT_NE(spec.error().message.find("config.json"), std::string::npos) << spec.error().message;
  }
}

}  // namespace
}  // namespace baton
