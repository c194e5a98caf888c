// Turns on checkpoints, and what is certain of the next one prefilled before it comes.
#include "baton/api/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "baton/api/idle_prefill.h"
#include "baton/base/temporary_folder.h"

namespace baton {
namespace {

class Turns : public testing::Test {
 protected:
  static std::filesystem::path golden() {
    return std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "dictionary-3m";
  }
  void SetUp() override { open(golden()); }
  void open(const std::filesystem::path& model) {
    runtime_.reset();
    RuntimeOptions options;
    options.model = model;
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

// What follows a stop string begins from a checkpoint: the answer is complete, not cancelled.
TEST_F(Turns, AStopStringKeepsWhatWasSaid) {
  const Conversation options = conversation(ReuseMode::kOff, 1);
  CompletionRequest asked{.request = runtime_->make_request({}), .stops = {}};
  options.prepare(asked.request);
  for (int i = 0; i < 40; ++i) asked.request.tokens.push_back(300 + i), asked.request.tokens.push_back(700 + i);
  asked.request.max_new_tokens = 400;
  asked.request.stop_ids.clear();
  const auto whole = runtime_->complete(asked, {}, {});
  ASSERT_TRUE(whole) << whole.error().message;
  ASSERT_EQ(whole->ids.size(), 400u);

  asked.request.tenant = 2;
  asked.request.reuse = ReuseMode::kAny;
  asked.stops = {whole->text.substr(whole->text.find_first_not_of(' ') + 8, 3)};
  const auto cut = runtime_->complete(asked, {}, {});
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->ended, Ended::kStopString);
  ASSERT_LT(cut->ids.size(), 100u);

  const size_t prompt = asked.request.tokens.size();
  asked.request.tokens.insert(asked.request.tokens.end(), whole->ids.begin(), whole->ids.end());
  asked.request.max_new_tokens = 1;
  asked.stops.clear();
  const auto next = runtime_->complete(asked, {}, {});
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_GT(next->stats.reused_tokens, prompt);
}

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

// A question that stood for a moment before it was sent: nothing is left but the token that every turn processes
// itself.
TEST_F(Turns, AQuestionThatIsSentAsItStoodReplaysOneToken) {
  const std::string first = "What is a tree, and what grows on it?", second = "And what is a leaf of it?";
  Conversation plain = conversation(ReuseMode::kOff, 1), idle = conversation(ReuseMode::kAny, 2);
  EXPECT_EQ(ask(plain, first).completion->ids, ask(idle, first).completion->ids);
  IdlePrefill prefill(*runtime_, idle_on_prefill_unit(idle));
  ASSERT_TRUE(prefill.certain(idle.certain(second).value()));
  while (prefill.busy()) ASSERT_TRUE(prefill.poll(std::chrono::seconds(60)));
  ASSERT_TRUE(prefill.certain(idle.if_sent(second).value()));
  while (prefill.busy()) ASSERT_TRUE(prefill.poll(std::chrono::seconds(60)));

  const Turn turn = ask(idle, second), alone = ask(plain, second);
  EXPECT_EQ(turn.completion->ids, alone.completion->ids);
  EXPECT_EQ(turn.prompt_tokens, alone.prompt_tokens);
  EXPECT_EQ(turn.reused_tokens, turn.prompt_tokens - 1);
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

// While an answer decodes.
class Answers : public Turns {
 protected:
  // The model with a template that writes what stands before an answer in another way than into the history, and drops
  // thinking there: an answer's own checkpoint has nothing of the next prompt.
  void rewrite() {
    auto folder = TemporaryFolder::create("answers");
    ASSERT_TRUE(folder) << folder.error().message;
    folder_.emplace(*std::move(folder));
    for (const auto& file : std::filesystem::directory_iterator(golden())) {
      const auto name = file.path().filename();
      if (name != "tokenizer_config.json") std::filesystem::create_symlink(file.path(), folder_->path() / name);
    }
    auto config = nlohmann::json::parse(std::ifstream(golden() / "tokenizer_config.json"));
    config["chat_template"] =
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
        "{%- if m.role == 'assistant' and '</think>' in m.content %}{{- m.content.split('</think>')[-1].lstrip('\n') }}"
        "{%- else %}{{- m.content }}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '\n</think>\n\n' }}{%- endif %}"
        "{%- endif %}";
    std::ofstream(folder_->path() / "tokenizer_config.json") << config.dump();
    open(folder_->path());
  }
  // Answers of exactly so many tokens. What is certain of them is prefilled at once: the answer waits.
  Conversation talk(uint64_t tenant, bool thinking, std::vector<std::string> stops, IdlePrefill* prefill) {
    ConversationOptions options;
    options.context = 1024;
    options.thinking = thinking;
    options.stops = std::move(stops);
    options.prepare = [tenant](Request& request) {
      request.sampler.temperature = 0;
      request.sampler.banned_ids.insert(request.sampler.banned_ids.end(), request.stop_ids.begin(),
                                        request.stop_ids.end());
      request.max_new_tokens = 2 * kAnswerPiece + 20;
      request.tenant = tenant;
    };
    if (prefill != nullptr) {
      options.on_certain = [this, prefill](std::vector<int32_t> tokens) {
        told_.push_back(tokens);
        ASSERT_TRUE(prefill->certain(std::move(tokens)));
        while (prefill->busy()) ASSERT_TRUE(prefill->poll(std::chrono::seconds(60)));
      };
    }
    return {*runtime_, std::move(options)};
  }
  static std::function<void(Request&)> beside(uint64_t tenant) {
    return [tenant](Request& request) {
      request.tenant = tenant;
      request.decode_unit = request.prefill_unit;
    };
  }

  std::optional<TemporaryFolder> folder_;
  std::vector<std::vector<int32_t>> told_;
};

TEST_F(Answers, ArePrefilledWhileTheyDecode) {
  rewrite();
  Conversation plain = talk(1, false, {}, nullptr);
  IdlePrefill prefill(*runtime_, beside(2));
  Conversation idle = talk(2, false, {}, &prefill);
  const Turn first = ask(idle, "What is a tree?");
  EXPECT_EQ(ask(plain, "What is a tree?").completion->ids, first.completion->ids);
  ASSERT_EQ(told_.size(), 2u);
  const uint64_t while_decoding = prefill.prefilled_tokens();
  EXPECT_GE(while_decoding, kAnswerPiece);
  EXPECT_LE(while_decoding, told_.back().size());

  // Each is a beginning of what is certain when the answer has ended: only the rest is left.
  const auto known = idle.certain("").value();
  told_.push_back(known);
  for (size_t i = 1; i < told_.size(); ++i) {
    EXPECT_LT(told_[i - 1].size(), told_[i].size());
    EXPECT_TRUE(std::equal(told_[i - 1].begin(), told_[i - 1].end(), told_[i].begin()));
  }
  ASSERT_TRUE(prefill.certain(known));
  while (prefill.busy()) ASSERT_TRUE(prefill.poll(std::chrono::seconds(60)));
  EXPECT_EQ(prefill.prefilled_tokens() - while_decoding, known.size() - told_[1].size());
  const Turn second = ask(idle, "And a leaf?"), alone = ask(plain, "And a leaf?");
  EXPECT_EQ(second.completion->ids, alone.completion->ids);
  EXPECT_EQ(second.reused_tokens, known.size());
}

TEST_F(Answers, OfThinkingThatMayBeDroppedNothingIsCertain) {
  rewrite();
  IdlePrefill prefill(*runtime_, beside(1));
  Conversation talking = talk(1, true, {}, &prefill);
  const Turn turn = ask(talking, "What is a tree?");
  EXPECT_GT(turn.completion->ids.size(), kAnswerPiece);
  for (const auto& tokens : told_) EXPECT_LT(tokens.size(), turn.prompt_tokens);
}

TEST_F(Answers, AreNotPrefilledWhereTheirOwnCheckpointHoldsThem) {
  IdlePrefill prefill(*runtime_, beside(1));
  Conversation held = talk(1, false, {}, &prefill);
  ask(held, "What is a tree?");
  EXPECT_TRUE(told_.empty());
  // One that a stop string may end leaves none there.
  IdlePrefill other(*runtime_, beside(2));
  Conversation stops = talk(2, false, {"no such words"}, &other);
  const Turn turn = ask(stops, "What is a tree?");
  ASSERT_EQ(told_.size(), 2u);
  std::vector<int32_t> said = std::move(told_[1]);
  said.erase(said.begin(), said.begin() + static_cast<ptrdiff_t>(turn.prompt_tokens));
  ASSERT_GE(said.size(), kAnswerPiece);
  EXPECT_TRUE(std::equal(said.begin(), said.end(), turn.completion->ids.begin()));
  EXPECT_GE(other.prefilled_tokens(), kAnswerPiece);
}

}  // namespace
}  // namespace baton
