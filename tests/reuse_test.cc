// Checkpoints on real units: an answer that began from one is the answer that began from nothing, to the bit where
// that is promised.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/engine/engine.h"
#include "baton/state/state_cache.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/test_names.h"

namespace baton::test {
namespace {

struct ReuseCase {
  std::string model, prefill, decode;
};
void PrintTo(const ReuseCase& item, std::ostream* out) {
  *out << item.model << " from " << item.prefill << " to " << item.decode;
}

class Reuse : public testing::TestWithParam<ReuseCase> {
 protected:
  void SetUp() override {
    auto model = load_model(data_folder() / "golden" / GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    for (const std::string& name : {GetParam().prefill, GetParam().decode}) {
      if (!options_.units.empty() && options_.units.front().name == name) continue;
      auto unit = create_unit(name);
      if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
      ASSERT_TRUE(unit) << unit.error().message;
      auto executor = (*unit)->load(*model, 2);
      ASSERT_TRUE(executor) << executor.error().message;
      options_.units.push_back({name, &(*unit)->caps(), executor->get()});
      units_.push_back(std::move(*unit));
      executors_.push_back(std::move(*executor));
    }
    Random random(5);
    for (int i = 0; i < 400; ++i)
      ids_.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>((*model)->program.vocab))));
    start(uint64_t{64} << 20);
  }

  void start(uint64_t checkpoint_bytes) {
    engine_.reset();
    options_.limits.checkpoint_bytes_max = checkpoint_bytes;
    auto engine = Engine::create(options_);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  Request request(std::vector<int32_t> tokens, ReuseMode reuse) const {
    Request made;
    made.tokens = std::move(tokens);
    made.max_new_tokens = 12;
    made.prefill_unit = GetParam().prefill;
    made.decode_unit = GetParam().decode;
    made.want_logits = true;
    made.reuse = reuse;
    return made;
  }
  struct Answer {
    std::vector<int32_t> ids;
    FinishedEvent end;
  };
  static Answer wait(Ticket& ticket) {
    Answer answer;
    while (true) {
      auto event = ticket.next_event(std::chrono::seconds(60));
      if (!event) {
        ADD_FAILURE() << "no event came";
        return answer;
      }
      if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        answer.ids.push_back(token->id);
        continue;
      }
      answer.end = std::get<FinishedEvent>(std::move(*event));
      EXPECT_EQ(answer.end.error.message, "");
      return answer;
    }
  }
  Answer ask(Request asked) {
    auto ticket = engine_->submit(std::move(asked));
    if (!ticket) {
      ADD_FAILURE() << ticket.error().message;
      return {};
    }
    return wait(*ticket);
  }
  static float logit(const Answer& of, int32_t id) { return of.end.logits.at(static_cast<size_t>(id)); }
  // The first `count` ids, then others.
  std::vector<int32_t> branch(size_t count, size_t others) const {
    std::vector<int32_t> tokens(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(count));
    tokens.insert(tokens.end(), ids_.rbegin(), ids_.rbegin() + static_cast<ptrdiff_t>(others));
    return tokens;
  }

  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<int32_t> ids_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(Reuse, ExactAnswersAreThoseOfNoReuse) {
  const Answer alone = ask(request(branch(250, 60), ReuseMode::kOff));
  EXPECT_EQ(engine_->usage().checkpoints, 0u);

  Request first = request(branch(300, 0), ReuseMode::kExact);
  first.keep_at = {250};
  const Answer cold = ask(first);
  EXPECT_EQ(cold.end.stats.reused_tokens, 0u);
  EXPECT_EQ(cold.end.stats.kept_checkpoints, 2u);  // at 192 and 256
  // `ref` takes steps of other sizes, by its speed: what they made does not count as exact.
  const bool sure = GetParam().prefill == "cpu";
  const Answer warm = ask(request(branch(250, 60), ReuseMode::kExact));
  if (sure) {
    EXPECT_EQ(warm.end.stats.reused_tokens, 192u);
  }
  EXPECT_EQ(warm.end.stats.prefill_tokens, 309u - warm.end.stats.reused_tokens);
  EXPECT_EQ(warm.end.logits, alone.end.logits);
  EXPECT_EQ(warm.ids, alone.ids);
  // Its own end was kept too: nothing but the last piece is left.
  const Answer again = ask(request(branch(250, 60), ReuseMode::kExact));
  if (sure) {
    EXPECT_EQ(again.end.stats.reused_tokens, 256u);
  }
  EXPECT_EQ(again.end.logits, alone.end.logits);
}

// Set aside amid its answer for one of a higher priority, by a checkpoint: it goes on from there, and no bit shows it.
TEST_P(Reuse, WhoWasSetAsideAnswersTheSame) {
  Request low = request(branch(150, 0), ReuseMode::kOff);
  low.max_new_tokens = 40;
  low.want_answer_state = true;
  const Answer alone = ask(low);
  EXPECT_EQ(alone.end.stats.preempted, 0u);

  options_.limits.requests_active_max = 1;
  start(uint64_t{64} << 20);
  // It stands still at the end of its prompt until the other one is there.
  std::mutex mutex;
  std::unique_lock held(mutex);
  low.seal_to = [&mutex](const SealSource&) -> Status {
    const std::scoped_lock wait(mutex);
    return {};
  };
  auto first = engine_->submit(low);
  ASSERT_TRUE(first);
  std::vector<int32_t> ids;
  const auto token = first->next_event(std::chrono::seconds(60));
  ASSERT_TRUE(token && std::holds_alternative<TokenEvent>(*token));
  ids.push_back(std::get<TokenEvent>(*token).id);
  Request high = request(branch(90, 0), ReuseMode::kOff);
  high.priority = 1;
  auto second = engine_->submit(high);
  ASSERT_TRUE(second);
  held.unlock();
  const Answer urgent = wait(*second);
  EXPECT_EQ(urgent.end.stats.preempted, 0u);
  const Answer aside = wait(*first);
  ids.insert(ids.end(), aside.ids.begin(), aside.ids.end());
  EXPECT_EQ(ids, alone.ids);
  EXPECT_EQ(aside.end.stats.preempted, 1u);
  EXPECT_GT(aside.end.stats.aside_ms, 0);
  EXPECT_EQ(aside.end.stats.recomputed_tokens, 0u);
  EXPECT_EQ(aside.end.stats.fallback, "");
  // Every byte of the state, and who made it in which steps; `ref` takes steps of other sizes, by its speed, and so
  // does `cpu` under a sanitizer.
  if (GetParam().prefill == "cpu" && GetParam().decode == "cpu" && !smoke_run()) {
    EXPECT_EQ(aside.end.answer_state, alone.end.answer_state);
  }
  EXPECT_EQ(engine_->usage().checkpoint_bytes, 0u);
}

TEST_P(Reuse, NeighboursSeeNothing) {
  Request first = request(branch(300, 0), ReuseMode::kExact);
  first.keep_at = {100, 200};
  ask(first);
  std::vector<Request> asked;
  for (size_t i = 0; i < 6; ++i) {
    asked.push_back(request(branch(130 + 20 * i, 20 + i), ReuseMode::kExact));
    asked.back().tenant = i == 5 ? 1 : 0;
  }
  std::vector<Ticket> tickets;
  for (const Request& each : asked) {
    auto ticket = engine_->submit(each);
    ASSERT_TRUE(ticket);
    tickets.push_back(std::move(*ticket));
  }
  std::vector<Answer> answers;
  for (Ticket& ticket : tickets) answers.push_back(wait(ticket));
  tickets.clear();
  start(0);
  for (size_t i = 0; i < asked.size(); ++i) {
    // Another tenant's are not there. `ref` takes shorter steps at first: what they made does not count as exact.
    const bool back = GetParam().model == "tiny-llama";
    const uint64_t alike = 130 + 20 * i, most = i == 5 ? 0u : back ? alike / 64 * 64 : alike < 192 ? 64u : 192u;
    EXPECT_LE(answers[i].end.stats.reused_tokens, most) << i;
    if (GetParam().prefill == "cpu") {
      EXPECT_EQ(answers[i].end.stats.reused_tokens, most) << i;
    }
    const Answer alone = ask(asked[i]);
    EXPECT_EQ(alone.end.stats.reused_tokens, 0u);
    EXPECT_EQ(answers[i].ids, alone.ids) << i;
    EXPECT_EQ(answers[i].end.logits, alone.end.logits) << i;
  }
}

// Keys and values are all there is: any whole piece of what was kept will do.
TEST_P(Reuse, StatesThatCanGoBackDo) {
  ask(request(branch(300, 0), ReuseMode::kExact));
  const Answer alone = ask(request(branch(210, 50), ReuseMode::kOff));
  const Answer warm = ask(request(branch(210, 50), ReuseMode::kExact));
  EXPECT_EQ(warm.end.stats.reused_tokens, GetParam().model == "tiny-llama" ? 192u : 0u);
  EXPECT_EQ(warm.end.logits, alone.end.logits);
  EXPECT_EQ(warm.ids, alone.ids);
  const Answer short_one = ask(request(branch(40, 50), ReuseMode::kAny));
  EXPECT_EQ(short_one.end.stats.reused_tokens, GetParam().model == "tiny-llama" ? 32u : 0u);
  EXPECT_EQ(short_one.ids, ask(request(branch(40, 50), ReuseMode::kOff)).ids);
}

TEST_P(Reuse, ATurnGoesOnFromTheAnswer) {
  const Answer first = ask(request(branch(100, 0), ReuseMode::kAny));
  std::vector<int32_t> turn = branch(100, 0);
  turn.insert(turn.end(), first.ids.begin(), first.ids.end());
  const size_t held = turn.size();
  turn.insert(turn.end(), ids_.begin() + 200, ids_.begin() + 230);
  const Answer second = ask(request(turn, ReuseMode::kAny));
  EXPECT_GE(second.end.stats.reused_tokens + 1, held);
  EXPECT_EQ(second.ids, ask(request(turn, ReuseMode::kOff)).ids);
}

// What was said when the user had heard enough is said: the step under way included.
TEST_P(Reuse, AStoppedAnswerIsGoneOnFrom) {
  Request first = request(branch(100, 0), ReuseMode::kAny);
  first.max_new_tokens = 800;
  auto ticket = engine_->submit(first);
  ASSERT_TRUE(ticket);
  std::vector<int32_t> turn = first.tokens;
  while (turn.size() < 103) {
    const auto event = ticket->next_event(std::chrono::seconds(60));
    ASSERT_TRUE(event);
    ASSERT_TRUE(std::holds_alternative<TokenEvent>(*event));
    turn.push_back(std::get<TokenEvent>(*event).id);
  }
  ticket->stop();
  const Answer rest = wait(*ticket);
  EXPECT_EQ(rest.end.reason, FinishReason::kStop);
  turn.insert(turn.end(), rest.ids.begin(), rest.ids.end());
  const size_t held = turn.size();
  turn.insert(turn.end(), ids_.begin() + 200, ids_.begin() + 230);
  const Answer second = ask(request(turn, ReuseMode::kAny));
  EXPECT_GE(second.end.stats.reused_tokens + 1, held);
  // When the stop comes is the machine's affair, and so how much the decode unit made: near ties of two units fall
  // either way.
  if (GetParam().prefill == GetParam().decode) {
    EXPECT_EQ(second.ids, ask(request(turn, ReuseMode::kOff)).ids);
  }
}

// It is begun from alone, and others begin from what it leaves.
TEST_P(Reuse, AStartingStateLeavesCheckpoints) {
  Request first = request(branch(90, 0), ReuseMode::kOff);
  first.want_sealed_state = true;
  const Answer saved = ask(first);
  Request second = request(branch(150, 0), ReuseMode::kAny);
  second.start_state = SealSource::borrowed(saved.end.sealed_state);
  const Answer opened = ask(second);
  EXPECT_EQ(opened.end.stats.reused_tokens, 90u);
  EXPECT_EQ(opened.end.stats.cached_tokens, 0u);
  const Answer begun = ask(request(branch(90, 40), ReuseMode::kAny));
  EXPECT_EQ(begun.end.stats.cached_tokens, 90u);
  EXPECT_EQ(begun.ids, ask(request(branch(90, 40), ReuseMode::kOff)).ids);
  EXPECT_EQ(ask(request(branch(150, 20), ReuseMode::kAny)).end.stats.cached_tokens, 144u);
  // Whoever made it: no part of what is exact.
  EXPECT_EQ(ask(request(branch(150, 30), ReuseMode::kExact)).end.stats.cached_tokens, 0u);
}

// Where prompts part is found as finely as pages are.
TEST_P(Reuse, AnyHitsAreAsFineAsSixteenTokens) {
  Request first = request(branch(300, 0), ReuseMode::kAny);
  for (uint64_t at = 16; at < 300; at += 16) first.keep_at.push_back(at + 5);
  ask(first);
  for (const size_t alike : {16u, 30u, 47u, 48u, 200u, 271u}) {
    const Answer warm = ask(request(branch(alike, 40), ReuseMode::kAny));
    EXPECT_EQ(warm.end.stats.cached_tokens, alike / 16 * 16) << alike;
  }
}

TEST_P(Reuse, BytesStayWithinTheBound) {
  ask(request(branch(200, 0), ReuseMode::kAny));
  const uint64_t two = engine_->usage().checkpoint_bytes;
  EXPECT_GT(two, 0u);
  start(two);
  for (size_t i = 0; i < 5; ++i) {
    ask(request(branch(10 * i, 150), ReuseMode::kAny));
    EXPECT_LE(engine_->usage().checkpoint_bytes, two);
    EXPECT_GT(engine_->usage().checkpoints, 0u);
  }
  EXPECT_EQ(engine_->usage().states, 0u);
}

// Each unit alone, where it decodes, and prefilling for `cpu`.
std::vector<ReuseCase> reuse_cases() {
  std::vector<ReuseCase> all = {{"tiny-llama", "cpu", "cpu"}};
  for (const UnitEntry* entry : unit_entries()) {
    const std::string name(entry->name);
    const auto unit = create_unit(name);
    if (unit && (*unit)->caps().decode_seats_max > 0) all.push_back({"tiny-qwen3.5", name, name});
    if (name != "cpu") all.push_back({"tiny-qwen3.5", name, "cpu"});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Pairs, Reuse, testing::ValuesIn(reuse_cases()), [](const auto& item) {
  return test_name(item.param.model + "_" + item.param.prefill + "_" + item.param.decode);
});

// Another engine begins from what this one left in files, and its answers do not show it.
class ReuseOfFiles : public Reuse {
 protected:
  ~ReuseOfFiles() override {
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }
  // Another engine, and the cache as another process finds it.
  void restart() {
    engine_.reset();
    const Model& model = executors_.front()->model();
    const Fingerprints prints = model.fingerprints().value();
    const StateIdentity identity{prints.model, prints.quantization, 0};
    const StateShape shape = state_shape(model.program, DType::kF32);
    cache_ = StateCache::open({folder_, room_, identity, shape, 1000, model.program.vocab, nullptr}).value();
    options_.cache = cache_.get();
    start(checkpoint_room_);
  }
  // Leaves checkpoints at 192 and 256, and those of a tenant's request in memory alone.
  void fill() {
    std::filesystem::remove_all(folder_);
    restart();
    Request first = request(branch(300, 0), ReuseMode::kExact), others = first;
    first.keep_at = {250};
    ask(first);
    others.tokens = branch(20, 280);
    others.tenant = 7;
    ask(others);
    uint64_t asked = 0;
    ASSERT_TRUE(engine_->save_checkpoints([&](uint64_t, uint64_t) { return ++asked > 0; }));
    EXPECT_EQ(asked, 2u);
    EXPECT_EQ(cache_->size(), 2u);
    EXPECT_FALSE(engine_->submit(first)) << "it has ended";
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("baton-reuse-{}", ::getpid());
  std::unique_ptr<StateCache> cache_;
  uint64_t room_ = 1 << 26, checkpoint_room_ = uint64_t{64} << 20;
};
INSTANTIATE_TEST_SUITE_P(Pairs, ReuseOfFiles, testing::ValuesIn(reuse_cases()), [](const auto& item) {
  return test_name(item.param.model + "_" + item.param.prefill + "_" + item.param.decode);
});

TEST_P(ReuseOfFiles, TheyOutliveTheEngine) {
  const Answer alone = ask(request(branch(250, 60), ReuseMode::kOff));
  fill();
  restart();
  EXPECT_EQ(cache_->size(), 2u);
  // `ref` takes steps of other sizes, by its speed: what they made does not count as exact.
  const bool sure = GetParam().prefill == "cpu";
  const Answer warm = ask(request(branch(250, 60), ReuseMode::kExact));
  if (sure) {
    EXPECT_EQ(warm.end.stats.cached_tokens, 192u);
    EXPECT_NE(warm.end.stats.cached_in, "");
  }
  EXPECT_EQ(warm.end.stats.prefill_tokens, 309u - warm.end.stats.reused_tokens);
  EXPECT_EQ(warm.end.logits, alone.end.logits);
  EXPECT_EQ(warm.ids, alone.ids);
  // It is in memory too from then on; a tenant gets nothing of either.
  const Answer again = ask(request(branch(250, 5), ReuseMode::kExact));
  EXPECT_EQ(again.end.stats.cached_in, "");
  if (sure) {
    EXPECT_EQ(again.end.stats.cached_tokens, 192u);
  }
  Request tenants = request(branch(250, 60), ReuseMode::kExact);
  tenants.tenant = 7;
  EXPECT_EQ(ask(tenants).end.stats.cached_tokens, 0u);
}

// Where not all have room, what was written before stays no longer than what is worth more.
TEST_P(ReuseOfFiles, TheMostValuableIsKept) {
  fill();
  const std::vector<CacheFile> both = list_cache(folder_).value();
  ASSERT_EQ(both.size(), 2u);
  const uint64_t larger = std::max(both[0].bytes, both[1].bytes);
  // A seal tells of the steps that made its state, which on `ref` go by its speed: sizes differ a little.
  room_ = larger + std::min(both[0].bytes, both[1].bytes) / 2;
  std::filesystem::remove_all(folder_);
  uint64_t asked = 0;
  restart();
  Request first = request(branch(300, 0), ReuseMode::kExact);
  first.keep_at = {250};
  ask(first);
  ASSERT_TRUE(engine_->save_checkpoints([&](uint64_t, uint64_t total) { return (asked += total) > 0; }));
  EXPECT_EQ(asked, 1u) << "nothing is written to be removed for the next";
  EXPECT_EQ(list_cache(folder_).value().size(), 1u);
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

// Rounded at rest: half of the bytes, on the books exactly, and never taken for exact, in memory or from a file.
TEST_P(ReuseOfFiles, RoundedOnesAreHalfAndNeverExact) {
  const StateShape shape = state_shape(executors_.front()->model().program, DType::kF32);
  const bool rounds = CheckpointMemory::rounds(shape), cpu = GetParam().prefill == "cpu";
  const Answer alone = ask(request(branch(250, 60), ReuseMode::kOff));
  std::filesystem::remove_all(folder_);
  EngineUsage usage[2];
  Request first = request(branch(300, 0), ReuseMode::kAny);
  first.keep_at = {192, 250};  // but for its rounding the first would be exact
  for (const bool bf16 : {false, true}) {
    options_.limits.checkpoint_bf16 = bf16;
    restart();
    const Answer left = ask(first);
    usage[bf16] = engine_->usage();
    EXPECT_EQ(left.end.stats.kept_rounding.has_value(), bf16 && rounds);
    if (bf16 && rounds) {
      EXPECT_GT(left.end.stats.kept_rounding->max_abs, 0);
      EXPECT_LE(left.end.stats.kept_rounding->max_rel, 1.0 / 256);
    }
  }
  EXPECT_EQ(usage[0].checkpoints, usage[1].checkpoints);
  EXPECT_EQ(usage[0].checkpoint_bytes - usage[1].checkpoint_bytes,
            rounds ? usage[1].checkpoints * section_bytes(shape, 0) / 2 : 0);
  ASSERT_TRUE(engine_->save_checkpoints());
  for (const bool from_file : {true, false}) {
    restart();
    if (!from_file) {
      std::filesystem::remove_all(folder_);
      restart();
      ask(first);
    }
    const Answer any = ask(request(branch(250, 60), ReuseMode::kAny));
    EXPECT_GE(any.end.stats.cached_tokens, 240u);
    EXPECT_EQ(any.end.stats.cached_rounding.has_value(), rounds);
    if (rounds) {
      EXPECT_EQ(any.end.stats.cached_rounding->measured, !from_file);
    }
    // Other processors round otherwise, and near ties may fall otherwise: the logits are near, and what differs is a
    // tie.
    const float off = largest_difference(any.end.logits, alone.end.logits);
    RecordProperty("largest_difference", std::to_string(off));
    EXPECT_LT(off, 0.05f * largest_difference(alone.end.logits, std::vector<float>(alone.end.logits.size())));
    if (any.ids.front() != alone.ids.front()) {
      EXPECT_LE(logit(alone, alone.ids.front()) - logit(alone, any.ids.front()), 2 * off);
    }
    // What goes on from a rounded one is not exact either.
    const Answer exact = ask(request(branch(250, 60), ReuseMode::kExact));
    EXPECT_TRUE(!rounds || exact.end.stats.cached_tokens == 0) << exact.end.stats.cached_tokens;
    EXPECT_FALSE(exact.end.stats.kept_rounding.has_value());
    EXPECT_EQ(exact.end.logits, alone.end.logits);
    if (cpu) {
      // Its own are, beside those.
      const Answer again = ask(request(branch(250, 60), ReuseMode::kExact));
      EXPECT_EQ(again.end.stats.cached_tokens, 256u);
      EXPECT_EQ(again.end.logits, alone.end.logits);
    }
  }
}

// What memory has no room for is in a file by then, though the engine goes on.
TEST_P(ReuseOfFiles, WhatIsDroppedIsInAFile) {
  const Answer alone = ask(request(branch(250, 60), ReuseMode::kOff));
  std::filesystem::remove_all(folder_);
  restart();
  ask(request(branch(300, 0), ReuseMode::kAny));
  const uint64_t one = engine_->usage().checkpoint_bytes;
  checkpoint_room_ = one * 3 / 2;
  restart();
  ask(request(branch(250, 60), ReuseMode::kAny));
  ask(request(branch(250, 60), ReuseMode::kAny));
  const auto stored = [&] {
    const auto files = list_cache(folder_).value();
    return std::any_of(files.begin(), files.end(), [](const CacheFile& file) { return file.tokens >= 256; });
  };
  for (int i = 0; i < 6000 && !stored(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(stored());
  for (size_t i = 0; i < 4; ++i) ask(request(branch(i, 290), ReuseMode::kAny));
  EXPECT_LE(engine_->usage().checkpoint_bytes, checkpoint_room_);
  const Answer back = ask(request(branch(250, 60), ReuseMode::kAny));
  EXPECT_NE(back.end.stats.cached_in, "");
  EXPECT_GE(back.end.stats.cached_tokens, 256u);
  EXPECT_EQ(back.ids, alone.ids);
}

// They are not found again and gone, and the answer is the same.
TEST_P(ReuseOfFiles, DamagedOnesAreNotUsed) {
  const Answer alone = ask(request(branch(250, 60), ReuseMode::kOff));
  fill();
  restart();
  const std::vector<CacheFile> files = list_cache(folder_).value();
  for (const CacheFile& file : files) {
    std::fstream stream(file.path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(-1, std::ios::end);
    const int last = stream.get();
    stream.seekp(-1, std::ios::end);
    stream.put(static_cast<char>(last ^ 1));
  }
  const bool exact = GetParam().prefill == "cpu";
  const Answer damaged = ask(request(branch(250, 60), exact ? ReuseMode::kExact : ReuseMode::kAny));
  EXPECT_EQ(damaged.end.stats.cached_tokens, 0u);
  EXPECT_NE(damaged.end.stats.reuse_failed.find(".state"), std::string::npos) << damaged.end.stats.reuse_failed;
  if (exact) {
    EXPECT_EQ(damaged.end.logits, alone.end.logits);
  }
  EXPECT_EQ(damaged.ids, alone.ids);
  EXPECT_EQ(cache_->size(), 1u);
  EXPECT_EQ(list_cache(folder_).value().size(), 1u);
}

}  // namespace
}  // namespace baton::test
