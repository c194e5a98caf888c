// Many clients at once on a card, emulated where there is none: mixed requests over the card alone and with the
// processor, cancels and deadlines at random moments, states forked and dropped by hand. Every answer is the one that
// its request has alone, and all memory of the card is back to the byte.
// BATON_SOAK_SECONDS=600 for a long run of so long in all, however slow the card is made (compute-sanitizer),
// BATON_SOAK_SEED=7 for other requests.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "baton/base/random.h"
#include "baton/engine/engine.h"
#include "tests/support/fake_constraint.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/state_play.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kContext = 256;
constexpr uint32_t kAnswerTokens = 20;
// Of settings whose batches share tensor cores from 5 sequences on so many that this is what happens.
constexpr size_t kClients = 8, kTensorClients = 24;
// Between the first and the second of each row of an answer that is to be the same where its bits are not: by what
// products on tensor cores add, or what a prompt's products in bf16 do (docs/cuda_inside.md).
constexpr float kGapMin = 0.02f, kWideGapMin = 0.5f;

struct Setting {
  const char *name, *unit, *model;
  bool exact;  // who decodes beside others has the bits that it has alone
};
// The tiny models are F32; a row of 16-bit weights or of codes has kernels of its own, and those models are for a card.
constexpr Setting kSettings[] = {{"PlainBF16", "cuda", "golden/dictionary-3m", true},
                                 {"PlainCodes", "cuda", "../../models/dictionary-3m.Q8_0.gguf", true},
                                 {"TensorCodes", "cuda:batch=tensor", "../../models/dictionary-3m.Q8_0.gguf", false},
                                 {"ExactF16", "cuda:kv=f16", "golden/tiny-qwen3.5", true},
                                 {"TensorF16", "cuda:kv=f16,batch=tensor", "golden/tiny-qwen3.5", false},
                                 {"ExactF32", "cuda:kv=f32,products=f32", "golden/tiny-qwen3.5", true},
                                 {"TensorF32", "cuda:kv=f32,batch=tensor", "golden/tiny-llama", false},
                                 {"ExactBF16", "cuda:kv=bf16", "golden/tiny-llama", true}};

struct Pair {
  const char *prefill, *decode, *via = "";
};
constexpr Pair kPairs[] = {{"cuda", "cuda"}, {"cuda", "cpu"},         {"cpu", "cuda"},        {"cuda", "cuda"},
                           {"cpu", "cpu"},   {"cuda", "cuda", "cpu"}, {"cpu", "cpu", "cuda"}, {"cuda", "cuda"}};

enum class Draw : uint8_t { kGreedy, kPenalties, kBans, kBias, kLogprobs, kConstraint, kSampled, kAll };
constexpr uint64_t kDraws = 8;

struct Question {
  std::vector<int32_t> tokens;
  Pair pair;
  Draw draw = Draw::kGreedy;
  uint64_t seed = 0;
  std::vector<int32_t> answer;  // alone
  std::vector<float> gaps;      // of its tokens, where it is greedy
};
// How a request ends before its answer does.
enum class End : uint8_t { kNone, kCancel, kStop, kDrop, kDeadline };

struct Counts {
  std::atomic<uint64_t> asked{0}, answered{0}, ended{0}, dropped{0}, moved{0}, proved{0}, cached{0}, compared{0};
};

bool has_asked_seconds() { return std::getenv("BATON_SOAK_SECONDS") != nullptr; }
double soak_seconds() {
  return has_asked_seconds() ? std::strtod(std::getenv("BATON_SOAK_SECONDS"), nullptr) : scaled(4, 2);
}
uint64_t soak_seed() {
  const char* asked = std::getenv("BATON_SOAK_SEED");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1;
}

class CudaSoak : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    auto model = load_model(data_folder() / GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    const bool stands_in = on_this_machine(GetParam().unit) != GetParam().unit;
    if (stands_in && !has_asked_seconds() && !suits_stand_in(*model_)) GTEST_SKIP() << "for a card";
    for (const std::string name : {"cpu:threads=2", GetParam().unit}) {
      auto unit = create_test_unit(name);
      ASSERT_TRUE(unit) << unit.error().message;
      units_.push_back(std::move(*unit));
    }
    auto cpu = units_[0]->load(model_, 2);
    ASSERT_TRUE(cpu) << cpu.error().message;
    cpu_ = std::move(*cpu);
    on_card_ = !units_[1]->caps().emulated;
  }
  void TearDown() override {
    engine_.reset();
    card_.reset();
    if (HasFailure()) fmt::print("the seed was {}: BATON_SOAK_SEED={}\n", soak_seed(), soak_seed());
  }

  static size_t clients() { return GetParam().exact ? kClients : kTensorClients; }

  // A fresh executor, clients and states by hand on it, and nothing is left of them.
  void round(uint64_t number, steady_clock::duration time) {
    const cuda::CardUse before = cuda::card_use();
    auto card = units_[1]->load(model_, 1);
    ASSERT_TRUE(card) << card.error().message;
    card_ = std::move(*card);
    ASSERT_NO_FATAL_FAILURE(take_the_most());
    ASSERT_NO_FATAL_FAILURE(start_engine());
    if (questions_.empty()) make_questions();
    ASSERT_FALSE(HasFailure());
    ASSERT_NO_FATAL_FAILURE(end_engine());
    // All that the unit keeps for later has been asked for.
    const uint64_t most = cuda::card_use().device_bytes;
    play(number, time / 5);
    EXPECT_EQ(card_->state_memory()->bytes, 0u) << "of states by hand";
    ASSERT_NO_FATAL_FAILURE(start_engine());
    const auto until = steady_clock::now() + time * 4 / 5;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < clients(); ++i) threads.emplace_back([this, i, number, until] { client(i, number, until); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_NO_FATAL_FAILURE(end_engine());
    EXPECT_LE(cuda::card_use().device_bytes, most) << "more than as many states took before: some is not given back";
    card_.reset();  // a state that is left stops the process here
    cuda::CardUse now = cuda::card_use();
    now.cards = before.cards;  // the unit keeps it
    EXPECT_EQ(now, before) << text_of(now) << "; before: " << text_of(before);
  }

  // As many states as requests can have, all full and with room to go back; and as many that draw with bans.
  void take_the_most() {
    const std::vector<int32_t> prompt(kContext - 2, 3);
    std::vector<std::unique_ptr<SequenceState>> states;
    for (size_t i = 0; i < 4 * clients(); ++i) {
      auto state = card_->new_state(kContext);
      ASSERT_TRUE(state) << state.error().message;
      if (i == 0) {
        ASSERT_TRUE(card_->prefill(**state, prompt, {}));
      } else {
        ASSERT_TRUE(move_state(*states[0], **state));
      }
      states.push_back(*std::move(state));
    }
    for (const auto& state : states) {
      const Seat seat = {.state = state.get(), .tokens = std::span(prompt).first(1), .decodes = true, .keeps = true};
      ASSERT_TRUE(card_->step({&seat, 1}, {}, {}));
    }
    std::vector<Sampler> samplers(clients(), Sampler::create({.banned_ids = {1}}, model_->program.vocab).value());
    std::vector<Draws> draws(clients());
    std::vector<Seat> seats;
    for (size_t i = 0; i < clients(); ++i) {
      draws[i].sampler = &samplers[i];
      seats.push_back({.state = states[i].get(),
                       .tokens = std::span(prompt).first(1),
                       .rows_out = 1,
                       .decodes = true,
                       .draws = &draws[i]});
    }
    std::vector<float> out(seats.size() * static_cast<size_t>(model_->program.output_width));
    ASSERT_TRUE(card_->step_on(seats, out, {}, {}));
    // All of them are the same sequence.
    for (const Draws& drawn : draws) {
      ASSERT_TRUE(drawn.status) << drawn.status.error().message;
      ASSERT_EQ(drawn.ids.size(), 1u);
      ASSERT_EQ(drawn.ids[0].id, draws[0].ids[0].id);
    }
  }
  void play(uint64_t number, steady_clock::duration time) {
    const size_t seats = GetParam().exact ? 6 : 4;  // more share tensor cores
    StatePlay game(*card_, *cpu_, kContext, seats, soak_seed() * 100 + number);
    const auto until = steady_clock::now() + time;
    do game.run(scaled(150, 100));
    while (steady_clock::now() < until && !HasFailure());
    forks_ += game.forks;
    rewinds_ += game.rewinds;
  }

  void start_engine() {
    EngineOptions options;
    options.units = {{"cpu", &units_[0]->caps(), cpu_.get()}, {"cuda", &units_[1]->caps(), card_.get()}};
    const uint64_t one = std::max(cpu_->state_bytes(kContext), card_->state_bytes(kContext));
    options.limits.tokens_max = kContext;
    options.limits.requests_active_max = clients();
    options.limits.state_bytes_max = (clients() + 6) * one;  // now and then somebody is set aside
    options.limits.checkpoint_bytes_max = 4 * one;
    options.limits.checkpoint_tokens = 64;
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  void end_engine() {
    const auto limit = steady_clock::now() + std::chrono::seconds(60);
    const auto busy = [&] { return engine_->usage().requests > 0 || engine_->usage().states > 0; };
    while (busy() && steady_clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(engine_->usage().requests, 0u);
    EXPECT_EQ(engine_->usage().states, 0u);
    EXPECT_EQ(engine_->usage().state_bytes, 0u);
    EXPECT_EQ(card_->state_memory()->bytes, 0u);
    engine_.reset();
  }

  std::vector<int32_t> ids(Random& random, uint64_t count) const {
    std::vector<int32_t> made(count);
    for (int32_t& id : made) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(model_->program.vocab)));
    return made;
  }
  // Prompts, of which some begin alike, each with the answer it has alone.
  void make_questions() {
    Random random(soak_seed());
    const std::vector<int32_t> stems[] = {{}, ids(random, 30), ids(random, 64), ids(random, 133)};
    const size_t count = soak_seconds() >= 60 ? 64 : static_cast<size_t>(scaled(20, 12));
    constexpr size_t kLeast = 12;
    const auto until = steady_clock::now() + setting_time() / 4;
    while (questions_.size() < count && !HasFailure()) {
      if (has_asked_seconds() && questions_.size() >= kLeast && steady_clock::now() > until) return;
      Question question;
      question.tokens = stems[random.below(4)];
      const std::vector<int32_t> rest = ids(random, 1 + random.below(90));
      question.tokens.insert(question.tokens.end(), rest.begin(), rest.end());
      question.pair = kPairs[questions_.size() % std::size(kPairs)];
      // Half of them greedy, which go on for themselves on the card.
      const uint64_t draw = random.below(2 * kDraws);
      question.draw = draw < kDraws ? static_cast<Draw>(draw) : Draw::kGreedy;
      question.seed = random.next();
      answer_alone(question);
      questions_.push_back(std::move(question));
    }
  }
  void answer_alone(Question& question) {
    Request request = request_of(question);
    if (question.draw == Draw::kGreedy) request.sampler.logprobs = 2;
    auto ticket = engine_->submit(std::move(request));
    ASSERT_TRUE(ticket) << ticket.error().message;
    while (true) {
      auto event = ticket->next_event(std::chrono::seconds(120));
      ASSERT_TRUE(event) << "no event came";
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        question.answer.push_back(token->id);
        if (question.draw != Draw::kGreedy) continue;
        ASSERT_TRUE(token->logprobs && token->logprobs->top.size() == 2);
        question.gaps.push_back(token->logprobs->top[0].logprob - token->logprobs->top[1].logprob);
        continue;
      }
      const auto& finished = std::get<FinishedEvent>(*event);
      ASSERT_EQ(finished.reason, FinishReason::kLength) << finished.error.message;
      break;
    }
    ASSERT_EQ(question.answer.size(), kAnswerTokens);
  }

  SamplerParams sampler_of(const Question& question) const {
    SamplerParams params;
    Random random(question.seed);
    const auto id = [&] { return ids(random, 1)[0]; };
    const Draw draw = question.draw;
    const bool all = draw == Draw::kAll;
    if (draw == Draw::kSampled || all) {
      params.temperature = 0.8f;
      params.top_k = 40;
      params.top_p = 0.95f;
      params.min_p = 0.01f;
      params.seed = question.seed;
    }
    if (draw == Draw::kPenalties || all) {
      params.repeat_penalty = 1.3f;
      params.presence_penalty = 0.2f;
      params.frequency_penalty = 0.1f;
      params.repeat_last_n = 16;
    }
    if (draw == Draw::kBans || all) params.banned_ids = {id(), id(), id()};
    if (draw == Draw::kBias) params.logit_bias = {{id(), 4.0f}};
    if (draw == Draw::kLogprobs || all) params.logprobs = 3;
    if (draw == Draw::kConstraint)
      params.constraint = std::make_shared<fake::Constraint>(question.seed, model_->program.vocab);
    return params;
  }
  Request request_of(const Question& question) const {
    Request request;
    request.tokens = question.tokens;
    request.max_new_tokens = kAnswerTokens;
    request.prefill_unit = question.pair.prefill;
    request.decode_unit = question.pair.decode;
    request.via_unit = question.pair.via;
    request.sampler = sampler_of(question);
    return request;
  }

  // What a request asks beside its question, and the answer, of which so many tokens must be those.
  struct Wish {
    Request request;
    std::vector<int32_t> answer;
    size_t certain = 0;
    FinishReason reason = FinishReason::kLength;
  };
  // All of them where it has the bits that it has alone; else as far as other bits would not show.
  size_t certain_tokens(const Question& question, ReuseMode reuse) const {
    if (GetParam().exact && reuse != ReuseMode::kAny) return question.answer.size();
    const float least = reuse == ReuseMode::kAny ? kWideGapMin : kGapMin;
    const auto close = std::find_if(question.gaps.begin(), question.gaps.end(), [&](float gap) { return gap < least; });
    return static_cast<size_t>(close - question.gaps.begin());
  }
  Wish wish_of(const Question& question, Random& random) const {
    Wish wish{request_of(question), question.answer, 0, FinishReason::kLength};
    Request& request = wish.request;
    request.tenant = random.below(2);
    request.priority = static_cast<int32_t>(random.below(2));
    const bool moves = std::string_view(request.prefill_unit) != request.decode_unit;
    const bool relays = !request.via_unit.empty();
    if (moves) request.strategy = random.below(2) == 0 ? "handoff" : "overlap";
    const uint64_t kind = random.below(8);
    if (kind < 2 && !relays) {
      if (!moves) request.strategy = "handoff";
      request.verify = kind == 0 ? VerifyMode::kSample : VerifyMode::kAll;
      ProofBounds bounds;
      bounds.segments.assign(model_->program.slots.size(), {1, {1, 10}});
      bounds.logits = {4, 4, 4};
      if (moves) request.move_bounds = bounds;
    }
    if (kind > 1 && kind < 5 && !relays) {
      request.reuse = kind < 4 ? ReuseMode::kExact : ReuseMode::kAny;
      request.keep_at = {random.below(question.tokens.size() + 1)};
    }
    wish.certain = certain_tokens(question, request.reuse);
    if (kind == 5) request.want_answer_state = true;
    if (kind == 6) request.seal_to = [](const SealSource& state) { return read_all(state); };
    if (relays) return wish;  // half of an answer, however long, is the via unit's
    request.max_new_tokens = static_cast<uint32_t>(1 + random.below(kAnswerTokens));
    wish.answer.resize(request.max_new_tokens);
    if (kind == 7 && wish.certain == question.answer.size()) {
      request.stop_ids = {wish.answer[random.below(wish.answer.size())]};
      wish.answer.erase(std::find(wish.answer.begin(), wish.answer.end(), request.stop_ids[0]), wish.answer.end());
      wish.reason = FinishReason::kStop;
    }
    return wish;
  }
  static Status read_all(const SealSource& state) {
    return state.give([](uint64_t, std::span<const std::byte>) -> Status { return {}; });
  }

  void client(size_t index, uint64_t number, steady_clock::time_point until) {
    Random random(soak_seed() * 100000 + number * kClients + index);
    do {
      const Question& question = questions_[random.below(questions_.size())];
      const uint64_t end = random.below(16);
      ask(question, wish_of(question, random), end < 5 ? static_cast<End>(end) : End::kNone, random);
    } while (steady_clock::now() < until && !HasFailure());
  }
  // One request from its submit to its end, or to what ends it.
  void ask(const Question& question, Wish wish, End end, Random& random) {
    ++counts_.asked;
    const auto now = [] { return steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); };
    if (end == End::kDeadline) wish.request.deadline_ns = now() + static_cast<int64_t>(random.below(30'000'000));
    const bool proves = wish.request.verify != VerifyMode::kOff;
    const std::string label =
        fmt::format("{} tokens, {} -> {} -> {} {}, draw {}, {} new, reuse {}, verify {}, end {}",
                    question.tokens.size(), question.pair.prefill, question.pair.via, question.pair.decode,
                    wish.request.strategy, static_cast<int>(question.draw), wish.request.max_new_tokens,
                    to_string(wish.request.reuse), to_string(wish.request.verify), static_cast<int>(end));
    auto ticket = engine_->submit(std::move(wish.request));
    ASSERT_TRUE(ticket) << ticket.error().message << ": " << label;
    // At a token, or at any moment.
    const uint64_t at = random.below(kAnswerTokens);
    const auto moment = random.below(2) == 0 ? steady_clock::time_point::max()
                                             : steady_clock::now() + std::chrono::microseconds(random.below(20'000));
    bool asked = end == End::kNone || end == End::kDeadline;
    const auto limit = steady_clock::now() + std::chrono::seconds(120);
    for (uint64_t got = 0;;) {
      if (!asked && (steady_clock::now() >= moment || (moment == steady_clock::time_point::max() && got >= at))) {
        asked = true;
        if (end == End::kDrop) return static_cast<void>(++counts_.dropped);
        end == End::kStop ? ticket->stop() : ticket->cancel();
      }
      ASSERT_LT(steady_clock::now(), limit) << "no event came: " << label;
      const auto event = ticket->next_event(asked ? milliseconds(1000) : milliseconds(1));
      if (!event) continue;
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        ASSERT_LT(got, wish.answer.size()) << label;
        if (got < wish.certain) {
          ASSERT_EQ(token->id, wish.answer[got]) << "token " << got << " of an answer is another's: " << label;
          ++counts_.compared;
        }
        ++got;
        continue;
      }
      return take(std::get<FinishedEvent>(*event), wish, end, got, proves, label);
    }
  }
  void take(const FinishedEvent& finished, const Wish& wish, End end, uint64_t got, bool proves,
            const std::string& label) {
    const RequestStats& stats = finished.stats;
    ASSERT_NE(finished.reason, FinishReason::kError) << finished.error.message << ": " << label;
    EXPECT_EQ(stats.fallback, "") << label;
    EXPECT_EQ(stats.reuse_failed, "") << label;
    counts_.cached += stats.cached_tokens > 0 ? 1 : 0;
    counts_.moved += stats.bridge.kind == BridgeKind::kMove ? 1 : 0;
    const bool whole =
        finished.reason == FinishReason::kLength || (finished.reason == FinishReason::kStop && end != End::kStop);
    if (!whole) {
      EXPECT_NE(end, End::kNone) << to_string(finished.reason) << ": " << label;
      ++counts_.ended;
      return;
    }
    ++counts_.answered;
    EXPECT_EQ(got, wish.answer.size()) << label;
    EXPECT_EQ(finished.reason, wish.reason) << label;
    if (!proves) return;
    EXPECT_FALSE(stats.bridge.proof_failed) << label;
    EXPECT_EQ(stats.bridge.unproven, "") << label;
    counts_.proved += stats.bridge.checked > 0 ? 1 : 0;
  }

  // Of those that a filter leaves.
  static double setting_seconds() { return soak_seconds() / testing::UnitTest::GetInstance()->test_to_run_count(); }
  static steady_clock::duration setting_time() {
    return std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(setting_seconds()));
  }

  // Other processes may take some meanwhile, and a driver keeps what it likes: to look at.
  std::string free_on_card() {
    const auto driver = cuda::installed_driver();
    auto card = driver ? cuda::Card::open(**driver, 0, "limits") : fail(driver.error());
    const auto bytes = card ? (*card)->free_bytes() : fail(card.error());
    return bytes ? fmt::format("the driver says {} bytes are free", *bytes) : bytes.error().message;
  }

  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::unique_ptr<Executor> cpu_, card_;
  std::unique_ptr<Engine> engine_;
  std::vector<Question> questions_;
  Counts counts_;
  uint64_t forks_ = 0, rewinds_ = 0;
  bool on_card_ = false;
};

INSTANTIATE_TEST_SUITE_P(Settings, CudaSoak, testing::ValuesIn(kSettings),
                         [](const auto& item) { return std::string(item.param.name); });

TEST_P(CudaSoak, AnswersAreThoseAloneAndNothingIsLeft) {
  const double seconds = setting_seconds();
  const auto rounds = static_cast<uint64_t>(std::clamp(seconds, 2.0, 12.0));
  const auto begin = steady_clock::now(), end = begin + setting_time();
  for (uint64_t number = 0; number < rounds && !HasFailure(); ++number) {
    const auto now = steady_clock::now();
    // What a round needs beside its clients takes from the time of those that follow; unasked, all have theirs.
    if (has_asked_seconds() && number > 0 && now >= end) break;
    const auto left = has_asked_seconds() ? std::max(end - now, steady_clock::duration::zero()) : setting_time();
    if (on_card_) fmt::print("before round {}: {}\n", number, free_on_card());
    round(number, left / static_cast<int64_t>(has_asked_seconds() ? rounds - number : rounds));
    if (!has_asked_seconds()) continue;
    fmt::print("{} round {}: {:.0f} of {:.0f} s, {} requests\n", GetParam().name, number,
               std::chrono::duration<double>(steady_clock::now() - begin).count(), seconds, counts_.asked.load());
    std::fflush(stdout);  // whoever ends this process has seen it
  }
  if (on_card_) fmt::print("behind the last: {}\n", free_on_card());
  fmt::print(
      "{}, {}{}: {} requests: {} answered, {} tokens compared, {} ended early, {} dropped; {} moved, {} proven, "
      "{} from checkpoints; by hand {} forks, {} rewinds\n",
      GetParam().name, GetParam().unit, on_card_ ? "" : " (emulated)", counts_.asked.load(), counts_.answered.load(),
      counts_.compared.load(), counts_.ended.load(), counts_.dropped.load(), counts_.moved.load(),
      counts_.proved.load(), counts_.cached.load(), forks_, rewinds_);
  for (const auto* seen : {&counts_.answered, &counts_.compared, &counts_.ended}) EXPECT_GT(*seen, 0u);
  EXPECT_GT(forks_, 0u);
}

}  // namespace
}  // namespace baton::test
