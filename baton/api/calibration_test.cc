// What is measured between units, and the file it is kept in.
#include "baton/api/calibration.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "baton/api/units.h"
#include "baton/base/file.h"
#include "baton/bridge/bridge.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

fs::path tiny() { return fs::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-qwen3.5"; }

struct Loaded {
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Executor> executor;
};

class Calibration : public testing::Test {
 protected:
  void SetUp() override {
    auto text = load_text_model(tiny());
    ASSERT_TRUE(text) << text.error().message;
    text_ = *std::move(text);
    // Enough to compare by, and quick.
    sequences_ = {{5, 9, 11, 2, 40, 41, 7, 100, 3, 3, 3, 60}, {8, 1, 30}};
  }
  Loaded load(std::string_view name) {
    Loaded made;
    made.unit = *create_unit(name);
    made.executor = *made.unit->load(text_.model, 1);
    return made;
  }
  TextModel text_;
  std::vector<std::vector<int32_t>> sequences_;
};

TEST_F(Calibration, SequencesAreFixedAndFitTheContext) {
  const auto sequences = calibration_sequences(text_);
  EXPECT_EQ(calibration_sequences(text_), sequences);
  size_t longest = 0, shortest = SIZE_MAX;
  for (const auto& ids : sequences) {
    longest = std::max(longest, ids.size());
    shortest = std::min(shortest, ids.size());
    for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < text_.model->program.vocab);
  }
  EXPECT_GE(longest, 200u);
  EXPECT_LE(shortest, 20u);
  auto changed = sequences;
  changed[1][3] ^= 1;
  EXPECT_NE(digest_sequences(changed), digest_sequences(sequences));
  changed = sequences;
  changed[1].push_back(changed[2].front());  // the same ids, cut elsewhere
  changed[2].erase(changed[2].begin());
  EXPECT_NE(digest_sequences(changed), digest_sequences(sequences));
  auto small = std::make_shared<Model>();
  small->spec.context_max = 10;
  small->program.vocab = 50;
  TextModel short_context;
  short_context.model = small;
  for (const auto& ids : calibration_sequences(short_context)) EXPECT_LE(ids.size(), 10u);
}

TEST_F(Calibration, AUnitOfTheSameBitsHasNoDifferenceToItself) {
  const Loaded ref = load("ref");
  const auto honest = measure_states(*ref.executor, *ref.executor, sequences_);
  ASSERT_TRUE(honest) << honest.error().message;
  EXPECT_TRUE(honest->exact());
  EXPECT_EQ(honest->segments.size(), text_.model->program.slots.size());
}

// What one state differs by, found again by hand, lies within what was measured over its tokens.
TEST_F(Calibration, CoversTheStatesItIsMeasuredOver) {
  const Loaded ref = load("ref"), cpu = load("cpu");
  double last = -1;
  const auto honest = measure_states(*ref.executor, *cpu.executor, sequences_, [&](double share) {
    EXPECT_GT(share, last);
    last = share;
    return true;
  });
  ASSERT_TRUE(honest) << honest.error().message;
  EXPECT_EQ(last, 1);
  const auto& ids = sequences_[0];
  const auto made = ref.executor->new_state(ids.size()), own = cpu.executor->new_state(ids.size()),
             moved = cpu.executor->new_state(ids.size());
  const std::span<const int32_t> held = std::span(ids).first(5);
  ASSERT_TRUE(ref.executor->prefill(**made, held, {}));
  ASSERT_TRUE(cpu.executor->prefill(**own, held, {}));
  ASSERT_TRUE(move_state(**made, **moved));
  const StateDifference seen = compare_states(**moved, **own);
  EXPECT_TRUE(worst_part(seen, *honest).passed());
  ProofBounds half = *honest;
  half.scale(0.01);
  EXPECT_FALSE(worst_part(seen, half).passed()) << "and not by much";
  for (size_t slot = 0; slot < honest->segments.size(); ++slot) {
    const SegmentDifference step = one_step(**own)[slot];
    EXPECT_GE(honest->of(slot).rms, step.rms * 0.5) << "a bound is no finer than the type it is kept in";
  }
}

// Another executor, to which something happens on the way.
class Wrapped : public Executor {
 public:
  explicit Wrapped(Executor& right) : right_(right) {}
  const Model& model() const override { return right_.model(); }
  const StateShape& shape() const override { return right_.shape(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override {
    return right_.new_state(tokens_max);
  }
  Result<std::unique_ptr<SequenceState>> fork(const SequenceState& state, uint64_t position) override {
    return right_.fork(state, position);
  }
  Placement placement() const override { return right_.placement(); }
  std::string arithmetic() const override { return "wrapped"; }

 protected:
  Executor& right_;
};

// Gives each id the logit of the one before it.
class Shifted final : public Wrapped {
 public:
  using Wrapped::Wrapped;
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override {
    const Status done = right_.step(seats, out, context);
    shift(out);
    return done;
  }

 private:
  void shift(std::span<float> logits) const {
    const auto vocab = static_cast<size_t>(model().program.vocab);
    for (; !logits.empty(); logits = logits.subspan(vocab))
      std::rotate(logits.begin(), logits.begin() + 1, logits.begin() + static_cast<ptrdiff_t>(vocab));
  }
};

// Reads the same token everywhere.
class Deaf final : public Wrapped {
 public:
  using Wrapped::Wrapped;
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override {
    std::vector<Seat> heard(seats.begin(), seats.end());
    std::vector<std::vector<int32_t>> tokens;
    for (Seat& seat : heard) seat.tokens = tokens.emplace_back(seat.tokens.size(), 1);
    return right_.step(heard, out, context);
  }
};

TEST_F(Calibration, AUnitThatReadsOtherTokensGetsNoBounds) {
  const Loaded ref = load("ref");
  Deaf deaf(*ref.executor);
  const auto bounds = measure_states(deaf, *ref.executor, sequences_);
  ASSERT_FALSE(bounds) << largest_share(*bounds);
  EXPECT_EQ(bounds.error().code, Code::kInternal);
  EXPECT_NE(bounds.error().message.find("one of the two units is at fault"), std::string::npos);
}

TEST_F(Calibration, AUnitThatIsWrongGetsNoUsefulMargins) {
  const Loaded ref = load("ref");
  Shifted shifted(*ref.executor);
  const auto wrong = measure_margins(shifted, shifted, *ref.executor, sequences_);
  ASSERT_TRUE(wrong) << wrong.error().message;
  EXPECT_FALSE(wrong->useful()) << wrong->largest << " of " << wrong->wrong_choice;
}

TEST_F(Calibration, AnswersAgainstAReference) {
  const Loaded ref = load("ref"), cpu = load("cpu");
  const auto split = measure_margins(*ref.executor, *cpu.executor, *ref.executor, sequences_);
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_GT(split->largest, 0);
  EXPECT_LT(split->largest, 0.1);
  EXPECT_TRUE(split->useful()) << split->largest << " of " << split->wrong_choice;
  const auto same = measure_margins(*ref.executor, *ref.executor, *ref.executor, sequences_);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->largest, 0);
}

TEST_F(Calibration, CanBeStopped) {
  const Loaded ref = load("ref");
  const auto stopped = measure_states(*ref.executor, *ref.executor, sequences_, [](double) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST_F(Calibration, TellsHowFarItIs) {
  const Loaded ref = load("ref");
  const std::vector<int32_t> prompt(sequences_[0].begin(), sequences_[0].begin() + 9);
  const auto told = [&](const std::function<Result<ProofBounds>(const CalibrationProgress&)>& measure) {
    std::vector<double> shares;
    EXPECT_TRUE(measure([&](double share) { return shares.push_back(share), true; }));
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
    EXPECT_GE(shares.size(), 4u);
    return std::pair(shares.front(), shares.back());
  };
  const std::pair all(0.0, 1.0);
  EXPECT_EQ(
      told([&](const auto& progress) { return measure_states(*ref.executor, *ref.executor, sequences_, progress); }),
      all);
  const auto of_prompt = [&](const CalibrationProgress& progress) {
    return measure_states_at(*ref.executor, *ref.executor, prompt, 8, progress);
  };
  EXPECT_EQ(told(of_prompt), all);
  const auto stopped = of_prompt([](double share) { return share < 0.5; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

class Store : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("bounds-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    model_ = folder_ / "m.gguf";
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    honest_.segments = {{0.25, {0.5, 1.0 / 3}}, {1e-9, {0, 3}}};
    honest_.logits = {0.1, 0.2, 1e-17};
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  BoundsStore open(uint64_t sequences = 7, Fingerprints prints = {1, 2}) const {
    return BoundsStore::open(model_, prints, sequences);
  }
  fs::path file() const { return model_.string() + ".bounds.json"; }
  std::string text() const { return *read_file(file(), 1 << 20); }
  void put(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }

  fs::path folder_, model_;
  ProofBounds honest_;
};

TEST_F(Store, KeepsWhatWasMeasuredBesideTheModel) {
  BoundsStore store = open();
  EXPECT_EQ(store.note(), "");
  EXPECT_FALSE(store.find(BoundsStore::kStates, "a/1", "b/1"));
  ASSERT_TRUE(store.add(BoundsStore::kStates, "a/1", "b/1", honest_));
  EXPECT_EQ(store.file(), file());
  ProofBounds answers;
  answers.logits = {1, 2, 3};
  ASSERT_TRUE(store.add(BoundsStore::kMargins, "a/1", "b/1", answers));
  const BoundsStore again = open();
  EXPECT_EQ(again.note(), "");
  const auto states = again.find(BoundsStore::kStates, "a/1", "b/1");
  ASSERT_TRUE(states);
  EXPECT_EQ(states->segments, honest_.segments) << "to the last bit";
  EXPECT_EQ(states->logits, honest_.logits);
  EXPECT_EQ(again.find(BoundsStore::kMargins, "a/1", "b/1")->logits, answers.logits);
  EXPECT_FALSE(again.find(BoundsStore::kStates, "b/1", "a/1")) << "the other way is another pair";
  EXPECT_FALSE(again.find(BoundsStore::kStates, "a/2", "b/1")) << "another arithmetic";
  EXPECT_FALSE(open(8).find(BoundsStore::kStates, "a/1", "b/1")) << "other sequences";
}

TEST_F(Store, DamageAndOtherModelsAreMeasuredAgain) {
  ASSERT_TRUE(open().add(BoundsStore::kStates, "a/1", "b/1", honest_));
  const std::string good = text();
  const auto refused = [&](const std::string& bytes) {
    put(bytes);
    const BoundsStore store = open();
    EXPECT_FALSE(store.find(BoundsStore::kStates, "a/1", "b/1"));
    return store.note();
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  EXPECT_NE(refused(with("0.25", "0.75")).find("checksum does not hold"), std::string::npos);
  EXPECT_NE(refused(with("\"format\": 1", "\"format\": 2")).find("format 2 is not 1"), std::string::npos);
  EXPECT_NE(refused(good.substr(0, good.size() / 2)).find("measured again"), std::string::npos);
  EXPECT_NE(refused("").find("measured again"), std::string::npos);
  EXPECT_NE(refused("[1]").find("measured again"), std::string::npos);
  EXPECT_NE(refused("{\"format\": 1}").find("measured again"), std::string::npos);
  put(good);
  for (const Fingerprints& other : {Fingerprints{9, 2}, Fingerprints{1, 9}}) {
    const BoundsStore store = open(7, other);
    EXPECT_FALSE(store.find(BoundsStore::kStates, "a/1", "b/1"));
    EXPECT_NE(store.note().find("of another model"), std::string::npos);
  }
  // What was refused is written anew.
  put("{");
  BoundsStore store = open();
  ASSERT_TRUE(store.add(BoundsStore::kStates, "a/1", "b/1", honest_));
  EXPECT_EQ(text(), good);
}

TEST_F(Store, NumbersThatAreNoDifferencesAreRefused) {
  for (const double bad : {-1.0, 1e300 * 1e300}) {
    ProofBounds wrong = honest_;
    wrong.segments[0].head.largest = bad;
    ASSERT_TRUE(open().add(BoundsStore::kStates, "a/1", "b/1", wrong));
    const BoundsStore store = open();
    EXPECT_FALSE(store.find(BoundsStore::kStates, "a/1", "b/1")) << bad;
    EXPECT_NE(store.note(), "");
  }
}

TEST_F(Store, LeavesAFifoOfItsNameAsItIs) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  BoundsStore store = open();
  ASSERT_TRUE(store.add(BoundsStore::kStates, "a/1", "b/1", honest_));
  EXPECT_TRUE(fs::is_fifo(file()));
  EXPECT_EQ(store.file().parent_path(), folder_ / "cache" / "baton" / "bounds");
}

TEST_F(Store, GoesToTheCacheWhereTheModelsFolderCannotBeWritten) {
  model_ = folder_ / "missing" / "m.gguf";  // as good as read-only, for every user
  BoundsStore store = open();
  ASSERT_TRUE(store.add(BoundsStore::kStates, "a/1", "b/1", honest_));
  EXPECT_EQ(store.file().parent_path(), folder_ / "cache" / "baton" / "bounds");
  EXPECT_TRUE(open().find(BoundsStore::kStates, "a/1", "b/1"));
}

}  // namespace
}  // namespace baton
