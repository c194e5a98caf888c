// The words of the figures: what is known of the bridge must be plain in them.
#include <gtest/gtest.h>

#include "baton/cli/command.h"
#include "baton/cli/figures.h"

namespace baton::cli {
namespace {

Completion carried(BridgeLevel level) {
  Completion completion;
  BridgeStats& bridge = completion.stats.bridge;
  bridge.kind = BridgeKind::kMove;
  bridge.bytes = 1000;
  bridge.level = level;
  bridge.verified = level != BridgeLevel::kNone;
  return completion;
}

TEST(Figures, SayTheLevelOfTheBridge) {
  const std::string none = figures_text(carried(BridgeLevel::kNone), "m"),
                    sealed = figures_text(carried(BridgeLevel::kSealed), "m"),
                    proven = figures_text(carried(BridgeLevel::kProven), "m");
  EXPECT_NE(none.find("NOT verified"), std::string::npos) << none;
  EXPECT_NE(sealed.find("sealed: every piece arrived as it was read"), std::string::npos) << sealed;
  Completion opened = carried(BridgeLevel::kSealed);
  opened.stats.bridge.kind = BridgeKind::kOpen;
  EXPECT_NE(figures_text(opened, "m").find("sealed: checksums and fingerprints hold"), std::string::npos);
  EXPECT_EQ(sealed.find("NOT"), std::string::npos);
  EXPECT_EQ(sealed.find("proof"), std::string::npos) << "none was asked for";
  EXPECT_NE(proven.find("proven"), std::string::npos) << proven;
}

TEST(Figures, AFailedProofIsPlain) {
  Completion completion = carried(BridgeLevel::kNone);
  BridgeStats& bridge = completion.stats.bridge;
  bridge.proof_failed = true;
  bridge.states = 1;
  bridge.between = "ref -> cpu";
  bridge.worst_at = "layer 3 keys head 1: rms 0.5 of 0.02 allowed";
  completion.stats.fallback = "the bridge proof failed";
  const std::string text = figures_text(completion, "m");
  EXPECT_NE(text.find("FAILED: ref -> cpu"), std::string::npos) << text;
  EXPECT_NE(text.find("layer 3 keys head 1: rms 0.5 of 0.02 allowed"), std::string::npos) << text;
  const OrderedJson json = figures_json(completion)["bridge"];
  EXPECT_EQ(json["proof"]["result"], "failed");
  EXPECT_EQ(json["level"], "none");
  EXPECT_EQ(json["verified"], false);
  EXPECT_TRUE(json["proof"]["logits"].is_null());
}

TEST(Figures, WhatCouldNotBeProvenIsNeitherTrueNorFalse) {
  Completion completion = carried(BridgeLevel::kSealed);
  completion.stats.bridge.unproven = "no bounds";
  completion.stats.bridge.verified = false;
  const OrderedJson json = figures_json(completion)["bridge"];
  EXPECT_TRUE(json["verified"].is_null());
  EXPECT_EQ(json["unproven"], "no bounds");
  EXPECT_NE(figures_text(completion, "m").find("NOT MADE: no bounds"), std::string::npos);
}

TEST(Figures, ThePromptCountsAsFarAsItWasProcessed) {
  Completion completion;
  completion.context_tokens = 4096;
  completion.stats.prompt_tokens = 2620;
  completion.stats.reused_tokens = 20;
  completion.stats.prefill_tokens = 1664;
  completion.reason = FinishReason::kCancelled;
  EXPECT_EQ(figures_json(completion)["context_used"], 1684);
  completion.stats.generated_tokens = 3;
  EXPECT_EQ(figures_json(completion)["context_used"], 2623);
  completion.reason = FinishReason::kLength;
  completion.stats.generated_tokens = 0;
  EXPECT_EQ(figures_json(completion)["context_used"], 2620);
}

}  // namespace
}  // namespace baton::cli
