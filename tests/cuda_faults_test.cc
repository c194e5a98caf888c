// Requests on a card that is lost, has no memory or refuses a call amid them, beside others on the processor: who is
// hit goes on elsewhere or ends with its reason, nobody else notices, and all memory is back to the byte. On the
// emulated card.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/engine.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "tests/support/card_memory.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"

namespace baton::test {
namespace {

using cuda::EmulatedFault;
using cuda::EmulatedUse;

constexpr const char* kCard = "cuda:driver=emulated,products=f32,kv=f32";
constexpr uint64_t kContext = 256;
constexpr uint32_t kAnswerTokens = 10;
// Between the first and the second of each row of an answer: what two units differ by decides nothing.
constexpr float kGapMin = 0.02f;

struct Question {
  std::vector<int32_t> tokens, answer;
};
// Where a request runs.
struct Way {
  const char *prefill, *decode, *strategy;
  const char* via = "";
  ReuseMode reuse = ReuseMode::kOff;
  bool decodes_on_card() const { return std::string_view(decode) == "cuda"; }
  bool on_card() const {
    return std::string_view(prefill) == "cuda" || std::string_view(via) == "cuda" || decodes_on_card();
  }
  std::string text() const { return fmt::format("{} -> {} by {}", prefill, decode, strategy); }
};
constexpr Way kWays[] = {{"cuda", "cuda", "single"}, {"cuda", "cpu", "handoff"}, {"cpu", "cuda", "handoff"},
                         {"cuda", "cpu", "overlap"}, {"cpu", "cuda", "overlap"}, {"cpu", "cpu", "single"}};

constexpr Way kOnCpu = {"cpu", "cpu", "single"};
// At which a card is lost, as errors and fall-backs tell.
constexpr const char* kMoments[] = {"asking for its free memory",
                                    "allocating for ",
                                    "prefill on 'cuda': card 0 (emulated card): baton_",
                                    "decode on 'cuda': card 0 (emulated card): baton_list",
                                    "decode on 'cuda': card 0 (emulated card): waiting for an event",
                                    "the hand-over: card 0 (emulated card): copying rows from the card",
                                    "the hand-over: card 0 (emulated card): copying rows to the card"};

struct Outcome {
  std::vector<int32_t> ids;
  FinishedEvent finished;
  bool ended = false;
  bool right = false;  // as `ended`, and the whole answer
};

class CudaFaults : public testing::Test {
 protected:
  void SetUp() override {
    cuda::emulated_reset();
    auto model = load_model(data_folder() / "golden" / "tiny-qwen3.5");
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    for (const char* name : {"cpu:threads=1", kCard}) {
      auto unit = create_unit(name);
      ASSERT_TRUE(unit) << unit.error().message;
      units_.push_back(std::move(*unit));
    }
    auto cpu = units_[0]->load(model_, 1);
    ASSERT_TRUE(cpu) << cpu.error().message;
    cpu_ = std::move(*cpu);
    make_questions(4);
  }
  void TearDown() override {
    drop_engine();
    EXPECT_EQ(cuda::emulated_misuse(), "");
    units_.clear();
    EXPECT_TRUE(cuda::emulated_use() == EmulatedUse());
    cuda::emulated_reset();
  }

  // A page is full when the prompts are: what is made of them comes in two steps.
  void make_questions(size_t count) {
    Random random(11);
    for (int tries = 0; questions_.size() < count; ++tries) {
      ASSERT_LT(tries, 400) << "answers of this model are too close to each other";
      Question question;
      for (size_t i = 0; i < 67 + 5 * questions_.size(); ++i)
        question.tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(model_->program.vocab))));
      if (answer_alone(question)) questions_.push_back(std::move(question));
    }
  }
  // False: a near tie.
  bool answer_alone(Question& question) const {
    auto state = cpu_->new_state(kContext);
    if (!state) return false;
    std::vector<float> logits = last_logits(*cpu_, question.tokens, 0, **state);
    while (true) {
      if (top2_gap(logits) < kGapMin) return false;
      question.answer.push_back(argmax(logits));
      if (question.answer.size() == kAnswerTokens) return true;
      if (!cpu_->decode(**state, question.answer.back(), logits)) return false;
    }
  }

  // A fresh executor on the card, which may have been lost before.
  void start(EngineLimits limits = {}) {
    auto card = units_[1]->load(model_, 1);
    ASSERT_TRUE(card) << card.error().message;
    card_ = std::move(*card);
    EngineOptions options;
    options.units = {{"cpu", &units_[0]->caps(), cpu_.get()}, {"cuda", &units_[1]->caps(), card_.get()}};
    if (units_.size() > 2) {
      auto other = units_[2]->load(model_, 1);
      ASSERT_TRUE(other) << other.error().message;
      other_card_ = std::move(*other);
      options.units.push_back({"cuda:1", &units_[2]->caps(), other_card_.get()});
    }
    options.limits = limits;
    options.limits.tokens_max = kContext;
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  void drop_engine() {
    engine_.reset();
    card_.reset();  // a state that is left stops the process here
    other_card_.reset();
  }
  // The books, and the card's memory, are as they were before the engine.
  void end() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto busy = [&] { return engine_->usage().requests > 0 || engine_->usage().states > 0; };
    while (busy() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine_->usage().requests, 0u);
    EXPECT_EQ(engine_->usage().states, 0u);
    EXPECT_EQ(engine_->usage().state_bytes, 0u);
    EXPECT_EQ(card_->state_memory()->bytes, 0u);
    drop_engine();
    const EmulatedUse use = cuda::emulated_use();
    EXPECT_EQ(use.device_bytes, 0u);
    EXPECT_EQ(use.host_bytes, 0u);
    EXPECT_EQ(use.streams + use.events + use.graphs, 0u);
    EXPECT_EQ(cuda::emulated_misuse(), "");
    cuda::emulated_reset();
  }

  Request request_of(const Question& question, const Way& way) const {
    Request request;
    request.tokens = question.tokens;
    request.max_new_tokens = kAnswerTokens;
    request.ignore_eos = true;
    request.prefill_unit = way.prefill;
    request.decode_unit = way.decode;
    request.via_unit = way.via;
    request.strategy = way.strategy;
    request.reuse = way.reuse;
    return request;
  }
  static Outcome read(Ticket& ticket, const Question& question) {
    Outcome outcome;
    while (true) {
      auto event = ticket.next_event(std::chrono::seconds(60));
      if (!event) {
        ADD_FAILURE() << "no event came: it hangs";
        return outcome;
      }
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        outcome.ids.push_back(token->id);
        continue;
      }
      outcome.finished = std::get<FinishedEvent>(*std::move(event));
      outcome.ended = true;
      break;
    }
    EXPECT_LE(outcome.ids.size(), question.answer.size());
    EXPECT_TRUE(std::equal(outcome.ids.begin(), outcome.ids.end(), question.answer.begin())) << "a wrong token";
    outcome.right = outcome.finished.reason == FinishReason::kLength && outcome.ids == question.answer;
    return outcome;
  }
  // One request of each way, all at once.
  std::vector<Outcome> ask(std::span<const Way> ways) {
    std::vector<Ticket> tickets;
    std::vector<Outcome> outcomes;
    for (size_t i = 0; i < ways.size(); ++i) {
      auto ticket = engine_->submit(request_of(question(i), ways[i]));
      EXPECT_TRUE(ticket) << ticket.error().message;
      if (!ticket) return {};
      tickets.push_back(*std::move(ticket));
    }
    for (size_t i = 0; i < tickets.size(); ++i) outcomes.push_back(read(tickets[i], question(i)));
    return outcomes;
  }
  // A new request that needs the card is refused, or ends, with the reason.
  void expect_lost() {
    for (int i = 0; i < 2; ++i) {
      auto ticket = engine_->submit(request_of(question(0), kWays[0]));
      // Where the bridge alone has seen it, the first one finds out.
      const Error error = ticket ? read(*ticket, question(0)).finished.error : ticket.error();
      EXPECT_TRUE(i == 0 || !ticket);
      EXPECT_EQ(error.code, Code::kUnavailable) << error.message;
      EXPECT_NE(error.message.find("'cuda'"), std::string::npos) << error.message;
      EXPECT_NE(error.message.find("CUDA_ERROR"), std::string::npos) << error.message;
    }
  }
  uint64_t bytes_of_a_state() {
    auto card = units_[1]->load(model_, 1);
    return card ? (*card)->state_bytes(question(3).tokens.size() + kAnswerTokens) : 0;
  }
  const Question& question(size_t i) const { return questions_[i % questions_.size()]; }

  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::unique_ptr<Executor> cpu_, card_, other_card_;
  std::unique_ptr<Engine> engine_;
  std::vector<Question> questions_;
};

// In what was said of it.
std::string said(const Outcome& outcome) {
  return outcome.finished.stats.fallback + "\n" + outcome.finished.error.message;
}
bool names(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

// Each way alone, and a card that is lost at one call or another.
TEST_F(CudaFaults, ALostCardEndsWhatRestsOnIt) {
  std::map<std::string, int> moments;
  for (const Way& way : kWays) {
    if (!way.on_card()) continue;
    std::vector<EmulatedFault> faults = {{.function = "memory_allocate", .nth = 2}, {.function = "launch_together"},
                                         {.function = "event_wait", .nth = 3},      {.function = "copy_rows"},
                                         {.function = "copy_in", .nth = 4},         {.function = "launch", .nth = 30}};
    const auto stride = static_cast<uint64_t>(scaled(67, 500));
    for (uint64_t nth = 2; nth < 500; nth += stride) faults.push_back({.nth = nth, .later = nth % 4 < 2});
    for (EmulatedFault& fault : faults) {
      SCOPED_TRACE(fmt::format("{}, call {} of {}", way.text(), fault.nth, fault.function));
      ASSERT_NO_FATAL_FAILURE(start());
      fault.code = cuda::kIllegalAddress;
      fault.lost = true;
      cuda::emulated_fail(fault);
      const Outcome outcome = ask({&way, 1}).at(0);
      const std::string text = said(outcome);
      const bool hit = names(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
      if (way.decodes_on_card() && hit) {
        EXPECT_EQ(outcome.finished.error.code, Code::kUnavailable) << text;
        EXPECT_TRUE(names(outcome.finished.error.message, "'cuda'")) << text;
        EXPECT_TRUE(names(outcome.finished.error.message, "CUDA_ERROR_ILLEGAL_ADDRESS")) << text;
      } else {
        EXPECT_TRUE(outcome.right) << text;
      }
      for (const char* moment : kMoments) moments[moment] += names(text, moment) ? 1 : 0;
      if (hit) expect_lost();
      EXPECT_TRUE(ask({&kOnCpu, 1}).at(0).right);
      ASSERT_NO_FATAL_FAILURE(end());
    }
  }
  for (const char* moment : kMoments) EXPECT_GT(moments[moment], 0) << "no card was lost at: " << moment;
}

// All ways at once, twice: those that are not on the card know nothing of it.
TEST_F(CudaFaults, OthersDoNotNoticeALostCard) {
  std::vector<Way> ways(std::begin(kWays), std::end(kWays));
  ways.insert(ways.end(), std::begin(kWays), std::end(kWays));
  ways[0].reuse = ways[5].reuse = ReuseMode::kExact;
  ways.push_back({"cpu", "cpu", "relay", "cuda"});
  ways.push_back({"cuda", "cuda", "relay", "cpu"});
  uint64_t ended = 0, fell_back = 0;
  for (int round = 0; round < scaled(8, 3); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(start({.checkpoint_bytes_max = uint64_t{1} << 20, .checkpoint_tokens = 64}));
    cuda::emulated_fail({.nth = static_cast<uint64_t>(100 + 190 * round), .code = cuda::kLaunchFailed, .lost = true});
    const std::vector<Outcome> outcomes = ask(ways);
    ASSERT_EQ(outcomes.size(), ways.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      const FinishedEvent& finished = outcomes[i].finished;
      EXPECT_TRUE(ways[i].on_card() || finished.stats.fallback.empty()) << finished.stats.fallback;
      if (finished.reason == FinishReason::kError) {
        ++ended;
        EXPECT_TRUE(ways[i].decodes_on_card() || ways[i].via == std::string_view("cuda")) << ways[i].text();
        EXPECT_EQ(finished.error.code, Code::kUnavailable) << finished.error.message;
        EXPECT_TRUE(names(finished.error.message, "'cuda'")) << finished.error.message;
        EXPECT_TRUE(names(finished.error.message, "CUDA_ERROR_LAUNCH_FAILED")) << finished.error.message;
      } else {
        EXPECT_TRUE(outcomes[i].right);
        fell_back += names(finished.stats.fallback, "CUDA_ERROR_LAUNCH_FAILED") ? 1 : 0;
      }
    }
    expect_lost();
    ASSERT_NO_FATAL_FAILURE(end());
  }
  EXPECT_GT(ended, 0u);
  EXPECT_GT(fell_back, 0u);
}

// One call that fails: at most one request ends, and the unit goes on.
TEST_F(CudaFaults, ACallThatFailsIsOneRequests) {
  uint64_t ended = 0, fell_back = 0;
  constexpr const char* kFunctions[] = {"event_wait",  "copy_rows", "launch",          "copy_in",
                                        "stream_wait", "copy_out",  "launch_together", "host_allocate"};
  for (const char* function : std::span(kFunctions).first(static_cast<size_t>(scaled(8, 3)))) {
    for (uint64_t nth = 1; nth <= 6; nth += static_cast<uint64_t>(scaled(5, 9))) {
      SCOPED_TRACE(fmt::format("{} {}", function, nth));
      ASSERT_NO_FATAL_FAILURE(start());
      cuda::emulated_fail({.function = function, .nth = nth, .code = cuda::kInvalidValue, .later = nth > 1});
      const std::vector<Outcome> outcomes = ask(kWays);
      ASSERT_EQ(outcomes.size(), std::size(kWays));
      int errors = 0;
      for (size_t i = 0; i < outcomes.size(); ++i) {
        const FinishedEvent& finished = outcomes[i].finished;
        EXPECT_TRUE(kWays[i].on_card() || finished.stats.fallback.empty()) << finished.stats.fallback;
        if (outcomes[i].right) {
          EXPECT_FALSE(names(finished.stats.fallback, "do not come back")) << finished.stats.fallback;
          fell_back += finished.stats.fallback.empty() ? 0 : 1;
          continue;
        }
        ++errors;
        EXPECT_EQ(finished.error.code, Code::kDevice) << finished.error.message;
        EXPECT_TRUE(names(finished.error.message, "on 'cuda': card 0")) << finished.error.message;
        EXPECT_TRUE(names(finished.error.message, "CUDA_ERROR_INVALID_VALUE")) << finished.error.message;
      }
      EXPECT_LE(errors, 1);
      ended += static_cast<uint64_t>(errors);
      cuda::emulated_fail({.nth = UINT64_MAX});
      for (const Outcome& outcome : ask({&kWays[0], 1})) {
        EXPECT_TRUE(outcome.right) << said(outcome);
        EXPECT_EQ(outcome.finished.stats.fallback, "");
      }
      ASSERT_NO_FATAL_FAILURE(end());
    }
  }
  EXPECT_GT(ended, 0u);
  EXPECT_GT(fell_back, 0u);
}

// Who finds no memory once begins again, and is answered.
TEST_F(CudaFaults, NoMemoryForACallIsOneBeginning) {
  uint64_t fell_back = 0;
  for (uint64_t nth = 1; nth < 900; nth += static_cast<uint64_t>(scaled(113, 450))) {
    SCOPED_TRACE(nth);
    ASSERT_NO_FATAL_FAILURE(start());
    cuda::emulated_fail({.nth = nth, .code = cuda::kNoMemory});
    for (const Outcome& outcome : ask(kWays)) {
      EXPECT_TRUE(outcome.right) << said(outcome);
      fell_back += outcome.finished.stats.fallback.empty() ? 0 : 1;
    }
    ASSERT_NO_FATAL_FAILURE(end());
  }
  EXPECT_GT(fell_back, 0u);
}

// More than the card holds. Without a bound somebody ends with the reason, and his memory is the others'; with one
// they wait for each other.
TEST_F(CudaFaults, AFullCard) {
  const std::vector<Way> ways(static_cast<size_t>(scaled(6, 4)), kWays[0]);
  for (const bool bounded : {false, true}) {
    SCOPED_TRACE(bounded);
    const uint64_t one = bytes_of_a_state();
    EngineLimits limits;
    if (bounded) limits.state_bytes_max = 2 * one;
    ASSERT_NO_FATAL_FAILURE(start(limits));
    // What does not grow has no pages.
    cuda::emulated_set_memory(cuda::emulated_use().device_bytes + 5 * one / 2);
    int right = 0, ended = 0;
    for (const Outcome& outcome : ask(ways)) {
      if (outcome.right) {
        ++right;
        EXPECT_TRUE(!bounded || outcome.finished.stats.fallback.empty()) << outcome.finished.stats.fallback;
        continue;
      }
      ++ended;
      EXPECT_EQ(outcome.finished.error.code, Code::kOutOfMemory) << said(outcome);
      EXPECT_TRUE(names(outcome.finished.error.message, "on 'cuda': ")) << said(outcome);
      EXPECT_TRUE(names(outcome.finished.error.message, "no memory for")) << said(outcome);
      EXPECT_TRUE(names(outcome.finished.error.message, "; use a smaller context") ||
                  names(outcome.finished.error.message, "; run fewer sequences at once"))
          << said(outcome);
    }
    EXPECT_GE(right, 2);
    EXPECT_EQ(ended > 0, !bounded);
    EXPECT_TRUE(ask({ways.data(), 1}).at(0).right) << "there is room now";
    ASSERT_NO_FATAL_FAILURE(end());
  }
}

// Of two cards one is lost; what the other does is nothing of it.
TEST_F(CudaFaults, AnotherCardGoesOn) {
  auto other = create_unit(fmt::format("{},device=1", kCard));
  ASSERT_TRUE(other) << other.error().message;
  units_.push_back(std::move(*other));
  ASSERT_NO_FATAL_FAILURE(start());
  // The next call is for the first card: nothing else is under way.
  cuda::emulated_fail({.function = "memory_info", .code = cuda::kEccError, .lost = true});
  const Outcome lost = ask({&kWays[0], 1}).at(0);
  EXPECT_TRUE(names(lost.finished.error.message, "CUDA_ERROR_ECC_UNCORRECTABLE")) << said(lost);
  constexpr Way kOther[] = {{"cuda:1", "cuda:1", "single"}, {"cuda:1", "cpu", "overlap"}, {"cpu", "cuda:1", "overlap"}};
  for (const Outcome& outcome : ask(kOther)) {
    EXPECT_TRUE(outcome.right) << said(outcome);
    EXPECT_EQ(outcome.finished.stats.fallback, "");
  }
  expect_lost();
  end();
}

// Of a state in two directions, each call in turn: it arrives whole, or the reason is told. The blocks that rows come
// in were another state's before.
TEST_F(CudaFaults, AMoveThatFailsSaysWhy) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::vector<std::unique_ptr<SequenceState>> made;
  for (size_t i = 0; i < 2; ++i) {
    auto state = card_->new_state(kContext);
    ASSERT_TRUE(state) << state.error().message;
    ASSERT_TRUE(card_->prefill(**state, question(3 * i).tokens, {}));
    made.push_back(*std::move(state));
  }
  const auto fork_of = [&](size_t i) { return card_->fork(*made[i], made[i]->position()).value(); };
  const auto move_to_cpu = [&](const SequenceState& from) {
    auto to = cpu_->new_state(kContext).value();
    const auto moved = move_state(from, *to);
    EXPECT_TRUE(moved) << moved.error().message;
    return to;
  };
  auto there = move_to_cpu(*made[1]);
  const std::vector<std::byte> wanted = state_bytes(*there);
  for (const bool out : {true, false}) {
    int failures = 0;
    for (const char* function : {"copy_in", "copy_out", "copy_rows", "stream_wait"}) {
      for (uint64_t nth = 1; nth <= 12; ++nth) {
        SCOPED_TRACE(fmt::format("{} {} {}", out ? "out" : "in", function, nth));
        move_to_cpu(*fork_of(0));
        const auto source = fork_of(1);
        const auto to = (out ? *cpu_ : *card_).new_state(kContext).value();
        cuda::emulated_fail({.function = function, .nth = nth, .code = cuda::kInvalidValue, .later = nth % 3 == 0});
        const auto moved = move_state(out ? *source : *there, *to);
        cuda::emulated_fail({.nth = UINT64_MAX});
        if (!moved) {
          ++failures;
          EXPECT_EQ(moved.error().code, Code::kDevice);
          EXPECT_TRUE(names(moved.error().message, "card 0 (emulated card): ")) << moved.error().message;
          EXPECT_TRUE(names(moved.error().message, "CUDA_ERROR_INVALID_VALUE")) << moved.error().message;
        } else if (!out) {
          EXPECT_EQ(state_bytes(*move_to_cpu(*to)), wanted);
        } else {
          EXPECT_EQ(state_bytes(*to), wanted);
        }
        ASSERT_EQ(state_bytes(*move_to_cpu(*source)), wanted) << "another time it goes well";
      }
    }
    EXPECT_GT(failures, 10);
  }
  made.clear();
  there.reset();
  end();
}

// The engine forks nothing: by hand.
TEST_F(CudaFaults, AForkOnALostCard) {
  ASSERT_NO_FATAL_FAILURE(start());
  {
    auto state = card_->new_state(kContext);
    ASSERT_TRUE(state) << state.error().message;
    ASSERT_TRUE(card_->prefill(**state, question(0).tokens, {}));
    for (const char* function : {"memory_info", "copy", "stream_wait"}) {
      cuda::emulated_fail({.function = function, .code = cuda::kInvalidValue});
      auto none = card_->fork(**state, (*state)->position());
      ASSERT_FALSE(none) << function;
      EXPECT_EQ(none.error().code, Code::kDevice) << none.error().message;
    }
    cuda::emulated_fail({.function = "copy", .code = cuda::kLaunchFailed, .lost = true});
    for (int i = 0; i < 2; ++i) {
      auto none = card_->fork(**state, (*state)->position());
      ASSERT_FALSE(none);
      EXPECT_EQ(none.error().code, Code::kUnavailable) << none.error().message;
    }
  }
  end();
}

}  // namespace
}  // namespace baton::test
