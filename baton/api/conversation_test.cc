// Turns on checkpoints, and what is certain of the next one prefilled before it comes.
#include "baton/api/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/api/idle_prefill.h"

namespace baton {
namespace {

class Turns : public testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    options.model = std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "dictionary-3m";
    options.units = {"cpu:threads=1", "ref"};
    options.limits.tokens_max = 1024;
    options.limits.checkpoint_bytes_max = uint64_t{64} << 20;
    auto runtime = Runtime::open(options);
    ASSERT_TRUE(runtime) << runtime.error().message;
    runtime_ = *std::move(runtime);
  }
  // Prefill on `cpu`, decode on `ref`.
  Conversation conversation(ReuseMode reuse, uint64_t tenant) const {
    ConversationOptions options;
    options.context = 1024;
    options.reuse = reuse;
    options.prepare = [this, tenant](Request& request) {
      const Request made = runtime_->make_request({});
      request.prefill_unit = made.prefill_unit;
      request.decode_unit = made.decode_unit;
      request.sampler.temperature = 0;
      request.max_new_tokens = 16;
      request.tenant = tenant;
    };
    return {*runtime_, std::move(options)};
  }
  static std::function<void(Request&)> idle_on_prefill_unit(const Conversation& of) {
    return [&of](Request& request) {
      of.prepare(request);
      request.decode_unit = request.prefill_unit;
    };
  }
  static Turn ask(Conversation& of, const std::string& question) {
    auto turn = of.ask(question, {}, {});
    EXPECT_TRUE(turn && turn->completion) << (turn ? "it does not fit" : turn.error().message);
    return turn && turn->completion ? *std::move(turn) : Turn{Completion{}};
  }

  std::unique_ptr<Runtime> runtime_;
};

TEST_F(Turns, BeginWhereIdlePrefillEnded) {
  const std::string first = "What is a tree, and what grows on it?", second = "And what is a leaf of it?";
  Conversation plain = conversation(ReuseMode::kOff, 1), idle = conversation(ReuseMode::kAny, 2);
  EXPECT_EQ(ask(plain, first).completion->ids, ask(idle, first).completion->ids);

  IdlePrefill prefill(*runtime_, idle_on_prefill_unit(idle));
  std::vector<int32_t> known;
  for (const char* typed : {"", "And wh", "And what is a leaf o"}) {
    known = idle.certain(typed).value();
    ASSERT_TRUE(prefill.certain(known));
  }
  while (prefill.busy()) ASSERT_TRUE(prefill.poll(std::chrono::seconds(60)));
  EXPECT_GT(prefill.prefilled_tokens(), 0u);

  const Turn turn = ask(idle, second), alone = ask(plain, second);
  EXPECT_EQ(turn.completion->ids, alone.completion->ids);
  EXPECT_EQ(turn.prompt_tokens, alone.prompt_tokens);
  EXPECT_EQ(turn.reused_tokens, known.size());
  EXPECT_EQ(alone.reused_tokens, 0u);
  EXPECT_LT(turn.prompt_tokens - known.size(), 20u);  // " of it?" and what stands before an answer
}

TEST_F(Turns, AWordThatMayGoOnIsNotCertain) {
  Conversation talk = conversation(ReuseMode::kAny, 1);
  ask(talk, "What is a tree?");
  const auto none = talk.certain("").value(), half = talk.certain("And what").value(),
             word = talk.certain("And ").value();
  EXPECT_EQ(half, word);
  EXPECT_GT(half.size(), none.size());
  EXPECT_TRUE(std::equal(none.begin(), none.end(), half.begin()));
  EXPECT_EQ(talk.certain("An").value(), none);
}

TEST_F(Turns, IdlePrefillEndsWhenItMayNotGoOn) {
  Conversation talk = conversation(ReuseMode::kAny, 1);
  bool may = true;
  IdlePrefill prefill(*runtime_, idle_on_prefill_unit(talk), [&] { return may; });
  std::string typed;
  for (int i = 0; i < 60; ++i) typed += "It grows, and its leaves fall. ";
  ASSERT_TRUE(prefill.certain(talk.certain(typed).value()));
  ASSERT_TRUE(prefill.certain(talk.certain(typed + "What is it? ").value()));
  EXPECT_TRUE(prefill.busy());
  may = false;
  while (prefill.busy()) ASSERT_TRUE(prefill.poll(std::chrono::seconds(60)));
  const uint64_t done = prefill.prefilled_tokens();
  ASSERT_TRUE(prefill.certain(talk.certain(typed).value()));
  EXPECT_FALSE(prefill.busy());
  EXPECT_EQ(prefill.prefilled_tokens(), done);
}

}  // namespace
}  // namespace baton
