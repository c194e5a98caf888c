// Many clients at once on real units: every answer is the one that its prompt has alone, memory is back where it was,
// bounds hold. Then the same while things fail (baton/base/fault.h): who is hit restarts or ends with its reason, and
// nobody else notices. BATON_SOAK_SECONDS=600 for a long run, which also looks at the memory of the process.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <numeric>
#include <thread>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "baton/api/units.h"
#include "baton/base/fault.h"
#include "baton/base/random.h"
#include "baton/engine/engine.h"
#include "baton/state/seal_file.h"
#include "baton/state/state_cache.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"

namespace baton::test {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kContext = 512;
constexpr size_t kAnswerTokens = 16;
// Between the first and the second of each row of an answer, so that what two units differ by decides nothing.
constexpr float kGapMin = 0.02f;

struct Question {
  std::vector<int32_t> tokens, answer;
};

struct Counts {
  std::atomic<uint64_t> asked{0}, answered{0}, cancelled{0}, dropped{0}, refused{0}, errors{0};
  std::atomic<uint64_t> cached{0}, kept{0}, moved{0}, adopted{0}, sealed{0}, opened{0}, proved{0}, restarts{0},
      fallbacks{0};
  std::atomic<uint64_t> wrong{0}, bounds_broken{0}, state_bytes_most{0}, checkpoint_bytes_most{0};
};

// What clients ask for, and may meet.
struct Load {
  size_t clients = 16;
  size_t requests_each = 0;  // of a client; 0: until `until`
  steady_clock::time_point until = {};
  bool faults = false;  // requests may end with an error
  uint64_t seed = 1;
};

class Soak : public testing::Test {
 protected:
  static constexpr const char* kUnits[] = {"ref", "cpu", "cpu:threads=1"};

  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / fmt::format("baton-soak-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    auto model = load_model(data_folder() / "golden" / "tiny-qwen3.5");
    ASSERT_TRUE(model) << model.error().message;
    for (const char* name : kUnits) {
      auto unit = create_unit(name);
      ASSERT_TRUE(unit) << unit.error().message;
      auto executor = (*unit)->load(*model, 2);
      ASSERT_TRUE(executor) << executor.error().message;
      options_.units.push_back({name, &(*unit)->caps(), executor->get()});
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
    }
    const uint64_t one = std::max(executors_[0]->state_bytes(kContext), executors_[1]->state_bytes(kContext));
    options_.limits.tokens_max = kContext;
    options_.limits.requests_active_max = 8;
    options_.limits.state_bytes_max = 14 * one;
    options_.limits.checkpoint_bytes_max = 4 * one;
    options_.limits.checkpoint_tokens = 64;
    make_questions();
  }
  void TearDown() override {
    disarm_faults();
    engine_.reset();
    cache_.reset();
    executors_.clear();  // a state that is left stops the process here
    std::filesystem::remove_all(folder_);
  }

  // Prompts that begin alike, each with the answer it has alone.
  void make_questions() {
    Random random(11);
    const auto vocab = static_cast<uint64_t>(executors_[0]->model().program.vocab);
    const auto ids = [&](size_t count) {
      std::vector<int32_t> made(count);
      for (int32_t& id : made) id = static_cast<int32_t>(random.below(vocab));
      return made;
    };
    const std::vector<int32_t> stems[] = {{}, ids(30), ids(70), ids(133)};
    const size_t wanted = smoke_run() ? 12 : 40;
    for (int tries = 0; questions_.size() < wanted; ++tries) {
      ASSERT_LT(tries, 4000) << "answers of this model are too close to each other";
      Question question;
      question.tokens = stems[random.below(4)];
      const std::vector<int32_t> rest = ids(1 + random.below(60));
      question.tokens.insert(question.tokens.end(), rest.begin(), rest.end());
      if (answer_alone(question)) questions_.push_back(std::move(question));
    }
  }
  // False: a near tie.
  bool answer_alone(Question& question) {
    Executor& executor = *executors_[1];
    auto state = executor.new_state(kContext);
    if (!state) return false;
    std::vector<float> logits = last_logits(executor, question.tokens, 0, **state);
    while (true) {
      if (top2_gap(logits) < kGapMin) return false;
      question.answer.push_back(argmax(logits));
      if (question.answer.size() == kAnswerTokens) return true;
      if (!executor.decode(**state, question.answer.back(), logits)) return false;
    }
  }

  // Executors hold memory from their load on that the system gives when it is first touched: the largest steps there
  // are touch all of it.
  void touch_scratch() {
    const size_t count = options_.limits.requests_active_max, width = kContext - 1;
    const std::vector<int32_t> prompt(width, 3);
    for (const auto& executor : executors_) {
      std::vector<std::unique_ptr<SequenceState>> states;
      std::vector<Seat> seats;
      for (size_t i = 0; i < count; ++i) {
        auto state = executor->new_state(kContext);
        ASSERT_TRUE(state) << state.error().message;
        seats.push_back({.state = state->get(), .tokens = prompt, .rows_out = 1});
        states.push_back(std::move(*state));
      }
      std::vector<float> out(count * static_cast<size_t>(executor->model().program.output_width));
      ASSERT_TRUE(executor->step(seats, out, {}));
      for (Seat& seat : seats) {
        seat.tokens = std::span(prompt).first(1);
        seat.decodes = true;
      }
      ASSERT_TRUE(executor->step(seats, out, {}));
    }
  }

  // False: a thread was refused.
  bool start_engine() {
    const Fingerprints prints = executors_[0]->model().fingerprints().value();
    auto cache = StateCache::open({folder_ / "cache",
                                   uint64_t{8} << 20,
                                   {prints.model, prints.quantization, 0},
                                   state_shape(executors_[0]->model().program, DType::kF32),
                                   kContext,
                                   executors_[0]->model().program.vocab,
                                   nullptr});
    if (!cache) return false;
    cache_ = *std::move(cache);
    options_.cache = cache_.get();
    auto engine = Engine::create(options_);
    if (!engine) return false;
    engine_ = *std::move(engine);
    return true;
  }
  // The books are back at their beginning, and the checkpoints in the folder where they can be.
  void end_engine() {
    const auto limit = steady_clock::now() + std::chrono::seconds(60);
    // Requests whose tickets were dropped end a little later, and a cancel does not wait for the step under way.
    const auto busy = [&] { return engine_->usage().requests > 0 || engine_->usage().states > 0; };
    while (busy() && steady_clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const EngineUsage usage = engine_->usage();
    EXPECT_EQ(usage.requests, 0u);
    EXPECT_EQ(usage.states, 0u);
    EXPECT_EQ(usage.state_bytes, 0u);
    const Status saved = engine_->save_checkpoints();
    if (!saved) last_error_ = saved.error().message;
    engine_.reset();
    options_.cache = nullptr;
  }

  Request make_request(const Question& question, uint64_t kind, Random& random) const {
    Request request;
    request.tokens = question.tokens;
    request.max_new_tokens = static_cast<uint32_t>(1 + random.below(kAnswerTokens));
    request.decode_unit = kind == 6 ? "ref" : "cpu";
    const bool hands_over = kind == 2 || kind == 4 || kind == 8;
    // Of the third unit, whose bits are those of `cpu`, the memory changes hands.
    const char* const from = kind == 4 && random.below(2) == 0 ? kUnits[2] : "ref";
    request.prefill_unit = hands_over ? from : kind == 6 ? "cpu" : request.decode_unit;
    constexpr ReuseMode kModes[] = {ReuseMode::kOff, ReuseMode::kExact, ReuseMode::kOff, ReuseMode::kAny,
                                    ReuseMode::kAny, ReuseMode::kOff,   ReuseMode::kOff, ReuseMode::kExact,
                                    ReuseMode::kAny, ReuseMode::kOff};
    request.reuse = kModes[kind];
    request.tenant = random.below(3);
    if (request.reuse != ReuseMode::kOff) request.keep_at = {random.below(question.tokens.size() + 1)};
    if (kind == 9) {  // the state that is handed over is compared with another, bit by bit
      request.strategy = "handoff";
      request.verify = VerifyMode::kAll;
    }
    if (kind == 6 && random.below(2) == 0) {
      request.strategy = "relay";
      request.prefill_unit = "cpu";
      request.via_unit = "cpu";
    }
    return request;
  }

  // One request from its submit to its end: the tokens that came are checked, whatever the end.
  std::optional<FinishedEvent> ask(Request request, const std::vector<int32_t>& expected, std::optional<size_t> cancel,
                                   bool drops, const Load& load) {
    ++counts_.asked;
    auto ticket = engine_->submit(std::move(request));
    if (!ticket) {
      ++counts_.refused;
      note(ticket.error().message);
      EXPECT_TRUE(load.faults) << ticket.error().message;
      return std::nullopt;
    }
    size_t got = 0;
    while (true) {
      if (cancel && got >= *cancel) {
        if (drops) {
          ++counts_.dropped;
          return std::nullopt;
        }
        ticket->cancel();
        cancel.reset();
      }
      auto event = ticket->next_event(std::chrono::seconds(120));
      if (!event) {
        ADD_FAILURE() << "no event came";
        return std::nullopt;
      }
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        const bool right = got < expected.size() && token->id == expected[got];
        if (!right && counts_.wrong++ == 0) ADD_FAILURE() << "token " << got << " of an answer is another's";
        ++got;
        continue;
      }
      auto finished = std::get<FinishedEvent>(*std::move(event));
      take(finished, got, expected.size(), load);
      return finished;
    }
  }
  void take(const FinishedEvent& finished, size_t got, size_t expected, const Load& load) {
    const RequestStats& stats = finished.stats;
    counts_.cached += stats.cached_tokens > 0 ? 1 : 0;
    counts_.kept += stats.kept_checkpoints;
    counts_.moved += stats.bridge.kind == BridgeKind::kMove ? 1 : 0;
    counts_.adopted += stats.bridge.kind == BridgeKind::kAdopt ? 1 : 0;
    counts_.proved += stats.bridge.checked > 0 ? 1 : 0;
    counts_.restarts += stats.restarted_at > 0 ? 1 : 0;
    counts_.fallbacks += stats.fallback.empty() ? 0 : 1;
    EXPECT_TRUE(load.faults || stats.fallback.empty()) << stats.fallback;
    if (finished.reason == FinishReason::kCancelled) {
      ++counts_.cancelled;
    } else if (finished.reason == FinishReason::kError) {
      ++counts_.errors;
      note(finished.error.message);
      EXPECT_TRUE(load.faults) << finished.error.message;
      EXPECT_NE(finished.error.message, "");
    } else {
      ++counts_.answered;
      EXPECT_EQ(got, expected);
    }
  }
  void note(const std::string& message) {
    const std::scoped_lock lock(mutex_);
    last_error_ = message;
  }

  // Its state goes into a file, and another request on from it.
  void ask_with_file(const Question& question, Request request, const std::filesystem::path& file, const Load& load) {
    request.seal_to = [file](const SealSource& state) { return write_seal_file(file, state); };
    const uint32_t count = request.max_new_tokens;
    const auto first = ask(request, first_of(question.answer, 0, count), std::nullopt, false, load);
    if (!first || first->reason == FinishReason::kError || count == kAnswerTokens) return;
    ++counts_.sealed;
    auto source = seal_file_source(file);
    if (!source) {
      EXPECT_TRUE(load.faults) << source.error().message;
      return note(source.error().message);
    }
    Request second;
    second.tokens = question.tokens;
    second.tokens.insert(second.tokens.end(), question.answer.begin(), question.answer.begin() + count);
    second.max_new_tokens = static_cast<uint32_t>(kAnswerTokens) - count;
    second.decode_unit = second.prefill_unit = count % 2 == 0 ? "ref" : "cpu";
    second.start_state = *std::move(source);
    const auto end = ask(std::move(second), first_of(question.answer, count, kAnswerTokens - count), {}, false, load);
    counts_.opened += end && end->stats.reused_tokens > 0 ? 1 : 0;
  }
  static std::vector<int32_t> first_of(const std::vector<int32_t>& ids, size_t from, size_t count) {
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(from);
    return {begin, begin + static_cast<ptrdiff_t>(count)};
  }

  void client(size_t index, const Load& load) {
    Random random(load.seed * 1000 + index);
    const auto file = folder_ / fmt::format("state-{}", index);
    for (size_t i = 0; load.requests_each == 0 ? steady_clock::now() < load.until : i < load.requests_each; ++i) {
      const uint64_t kind = (index * 7 + i) % 10;
      const Question& question = questions_[random.below(questions_.size())];
      Request request = make_request(question, kind, random);
      if (kind == 3 && random.below(2) == 0) {  // the turn after an answer
        request.tokens.insert(request.tokens.end(), question.answer.begin(), question.answer.begin() + 9);
        request.max_new_tokens = std::min<uint32_t>(request.max_new_tokens, kAnswerTokens - 9);
        ask(request, first_of(question.answer, 9, request.max_new_tokens), std::nullopt, false, load);
        continue;
      }
      if (kind == 5) {
        ask_with_file(question, std::move(request), file, load);
        continue;
      }
      const std::vector<int32_t> expected = first_of(question.answer, 0, request.max_new_tokens);
      const bool ends_early = kind >= 7 && kind < 9;
      std::optional<size_t> cancel;
      if (ends_early) cancel = random.below(kAnswerTokens);
      ask(std::move(request), expected, cancel, ends_early && random.below(3) == 0, load);
    }
  }
  void clients(const Load& load) {
    std::atomic<bool> done{false};
    std::thread watch([&] {
      while (!done) {
        const EngineUsage usage = engine_->usage();
        counts_.state_bytes_most = std::max<uint64_t>(counts_.state_bytes_most, usage.state_bytes);
        counts_.checkpoint_bytes_most = std::max<uint64_t>(counts_.checkpoint_bytes_most, usage.checkpoint_bytes);
        const bool within = usage.state_bytes <= options_.limits.state_bytes_max &&
                            usage.checkpoint_bytes <= options_.limits.checkpoint_bytes_max;
        counts_.bounds_broken += within ? 0 : 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    std::vector<std::thread> threads;
    for (size_t i = 0; i < load.clients; ++i) threads.emplace_back([this, i, &load] { client(i, load); });
    for (std::thread& thread : threads) thread.join();
    done = true;
    watch.join();
  }
  void print() const {
    std::cout << fmt::format(
        "{} requests: {} answered, {} cancelled, {} dropped, {} refused, {} errors; {} from checkpoints, {} kept, {} "
        "moved, {} adopted, {} sealed, {} opened, {} proved, {} restarts from checkpoints, {} fall-backs; {} wrong, "
        "most state "
        "bytes {} of {}, most checkpoint bytes {} of {}\n",
        counts_.asked.load(), counts_.answered.load(), counts_.cancelled.load(), counts_.dropped.load(),
        counts_.refused.load(), counts_.errors.load(), counts_.cached.load(), counts_.kept.load(), counts_.moved.load(),
        counts_.adopted.load(), counts_.sealed.load(), counts_.opened.load(), counts_.proved.load(),
        counts_.restarts.load(), counts_.fallbacks.load(), counts_.wrong.load(), counts_.state_bytes_most.load(),
        options_.limits.state_bytes_max, counts_.checkpoint_bytes_most.load(), options_.limits.checkpoint_bytes_max);
  }

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  EngineOptions options_;
  std::unique_ptr<StateCache> cache_;
  std::unique_ptr<Engine> engine_;
  std::vector<Question> questions_;
  Counts counts_;
  std::mutex mutex_;
  std::string last_error_;
};

// For a look at the process from outside: what the allocator keeps for each thread is not what the engine uses.
void allocate_from_one_heap() {
#if defined(__GLIBC__)
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

// Bytes that are resident, by a line of /proc/self/status ("VmRSS:", "RssAnon:"); what the allocator keeps for later is
// given back first.
double resident_bytes(std::string_view line) {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
  std::ifstream status("/proc/self/status");
  for (std::string text; std::getline(status, text);) {
    if (text.starts_with(line)) return 1024 * std::strtod(text.c_str() + line.size(), nullptr);
  }
  return 0;
}

// What the program holds of its one heap: tells growth of it from the allocator's and the system's.
double allocated_bytes() {
#if defined(__GLIBC__)
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
#else
  return 0;
#endif
}

// Engines one after the other, each with what the one before left in the folder.
TEST_F(Soak, EveryAnswerIsTheOneItHasAlone) {
  const char* asked = std::getenv("BATON_SOAK_SECONDS");
  const double seconds = asked != nullptr ? std::strtod(asked, nullptr) : 0;
  const size_t rounds = seconds >= 60 ? 30 : 2;
  if (seconds >= 60) {
    allocate_from_one_heap();
    ASSERT_NO_FATAL_FAILURE(touch_scratch());
  }
  std::vector<double> resident, anonymous;
  for (size_t round = 0; round < rounds && counts_.wrong == 0; ++round) {
    ASSERT_TRUE(start_engine());
    const auto time = std::chrono::duration<double>(seconds / static_cast<double>(rounds));
    Load load;
    load.clients = scaled(16, 8);
    if (asked == nullptr) load.requests_each = scaled(10, 6);
    load.until = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(time);
    load.seed = round + 1;
    clients(load);
    end_engine();
    EXPECT_EQ(last_error_, "");
    resident.push_back(resident_bytes("VmRSS:"));
    anonymous.push_back(resident_bytes("RssAnon:"));
    if (seconds >= 60)
      std::cout << fmt::format("round {}: {:.2f} MiB resident, {:.2f} of no file, {:.3f} allocated\n", round,
                               resident.back() / 1048576, anonymous.back() / 1048576, allocated_bytes() / 1048576);
  }
  print();
  EXPECT_EQ(counts_.wrong, 0u);
  EXPECT_EQ(counts_.bounds_broken, 0u);
  for (const auto* seen :
       {&counts_.answered, &counts_.cached, &counts_.kept, &counts_.moved, &counts_.adopted, &counts_.sealed})
    EXPECT_GT(*seen, 0u);
  if (seconds < 300) return;
  const auto mean = [](auto first, auto last) { return std::accumulate(first, last, 0.0) / double(last - first); };
  const double early = mean(resident.begin() + 5, resident.begin() + 10),
               late = mean(resident.end() - 5, resident.end());
  std::cout << fmt::format("resident: {:.1f} MiB early, {:.1f} MiB at the end, {:+.2f} %\n", early / 1048576,
                           late / 1048576, 100 * (late / early - 1));
  EXPECT_LT(late / early, 1.01);
}

#if defined(BATON_FAULTS)
class SoakWithFaults : public Soak {
 protected:
  void run_with(FaultPoint point, FaultPlan plan) {
    const std::string name = fmt::format("{} {}", to_string(point), plan.at > 0 ? "once" : "every 16th time");
    SCOPED_TRACE(name);
    counts_.errors = counts_.refused = counts_.answered = 0;
    std::filesystem::remove_all(folder_ / "cache");
    arm_fault(point, plan);
    bool saved = true;
    // What is in files is read by the next; more where few come by the point.
    const uint64_t rounds = to_string(point).starts_with("file.") || point == FaultPoint::kThreadStart ? 2 : 1;
    for (uint64_t round = 0; round < rounds || (faults_fired(point) == 0 && round < 10); ++round) {
      for (int tries = 0; !start_engine(); ++tries) ASSERT_LT(tries, 3);
      Load load;
      load.clients = scaled(16, 6);
      load.requests_each = 4;
      load.faults = true;
      load.seed = round + 1;
      last_error_.clear();
      clients(load);
      // Of one that fires again the questions themselves may lose a second one.
      if (point == FaultPoint::kStepLost && plan.at > 0 && faults_fired(point) == 1) expect_two_units_answer();
      end_engine();
      saved = saved && last_error_.empty();
    }
    const uint64_t fired = faults_fired(point);
    EXPECT_GT(fired, 0u) << "reached " << faults_reached(point);
    EXPECT_EQ(fired, plan.at > 0 ? 1u : faults_reached(point) / plan.every);
    EXPECT_EQ(counts_.wrong, 0u);
    // What hits one work ends one request at most; a unit that is lost ends all that ask for it.
    const bool lost = point == FaultPoint::kStepLost;
    EXPECT_TRUE(counts_.answered > 0 || lost) << "the others go on";
    EXPECT_TRUE(lost || counts_.refused == 0) << last_error_;
    EXPECT_TRUE(lost || counts_.errors <= fired) << counts_.errors << " errors: " << last_error_;
    std::cout << fmt::format("{}: reached {}, fired {}; {} answered, {} errors, {} refused\n", name,
                             faults_reached(point), fired, counts_.answered.load(), counts_.errors.load(),
                             counts_.refused.load())
              << std::flush;
    disarm_faults();
  }
  // One of the three is lost, and the others are not.
  void expect_two_units_answer() {
    size_t answered = 0;
    for (const char* unit : kUnits) {
      Request request;
      request.tokens = questions_[0].tokens;
      request.max_new_tokens = 4;
      request.prefill_unit = request.decode_unit = unit;
      Load load;
      load.faults = true;
      const auto end = ask(std::move(request), first_of(questions_[0].answer, 0, 4), std::nullopt, false, load);
      answered += end && end->reason == FinishReason::kLength ? 1 : 0;
    }
    EXPECT_EQ(answered, std::size(kUnits) - 1);
  }
};

TEST_F(SoakWithFaults, EachFiredOnce) {
  for (const FaultPoint point : fault_points()) run_with(point, {.at = 1});
  print();
}

TEST_F(SoakWithFaults, EachFiredEvery16thTime) {
  for (const FaultPoint point : fault_points()) run_with(point, {.every = 16});
  EXPECT_GT(counts_.restarts, 0u) << "from checkpoints";
  print();
}
#endif

}  // namespace
}  // namespace baton::test
