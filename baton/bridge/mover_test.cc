// A move by several threads is that by one: the same bytes at the receiver, and of all that is wrong the same error,
// that of the first row.
#include "baton/bridge/mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "baton/bridge/bridge.h"
#include "tests/support/fake_state.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::FakeLayout;
using test::FakeOrder;
using test::FakeState;

constexpr uint64_t kMoved = 130;

// Keys and values of 260 KB in F32, recurrent parts of 384 KiB.
Program moved_program() { return fake_program(4, 2, 3, 170, 128, 256, 3, 13); }

// A receiver whose writes are shared, and that forgets a bit of some rows.
class Shared final : public SequenceState {
 public:
  explicit Shared(const FakeLayout& layout) : SequenceState(kMoved, test::stray_states()), right_(layout, kMoved) {
    right_.begin_write(kMoved);
  }
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }
  const std::vector<std::vector<std::byte>>& memory() const { return right_.memory(); }
  std::vector<std::pair<size_t, uint64_t>> damaged;  // segment, row
  std::atomic<uint64_t> writes{0};
  bool shares = true;
  std::function<Status(size_t segment, RowRange rows)> on_write;

 private:
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    ++writes;
    if (on_write) BATON_OK(on_write(segment, rows));
    const uint64_t row_bytes = row_bytes_of(shape().segments[segment].dtype, dims[2]);
    std::vector<std::byte> changed(in, in + rows.count * row_bytes);
    for (const auto& [where, row] : damaged) {
      if (where == segment && row >= rows.first && row < rows.first + rows.count)
        changed[(row - rows.first) * row_bytes] ^= std::byte{1};
    }
    return right_.write(segment, rows, changed.data());
  }
  Result<bool> share_row_writes(uint64_t) override { return shares; }

  FakeState right_;
};

// A receiver with stages: what was sent arrives when it comes back, and a place that is used again holds no numbers.
class Staged final : public SequenceState {
 public:
  Staged(const FakeLayout& layout, uint64_t piece, uint32_t stages)
      : SequenceState(kMoved, test::stray_states()), right_(layout, kMoved), piece_(piece), stages_(stages) {
    right_.begin_write(kMoved);
    places_.resize(stages);
  }
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }
  uint64_t piece_bytes() const override { return piece_; }
  uint32_t stages() const override { return stages_; }
  const std::vector<std::vector<std::byte>>& memory() const { return right_.memory(); }
  std::vector<std::pair<size_t, uint64_t>> damaged;  // segment, row
  std::optional<uint64_t> lost_send, lost_back;
  uint64_t staged = 0, sent = 0, came = 0, most = 0, most_unsent = 0;
  bool reached = false;  // senders are
  bool reaches(const SequenceState&) override { return reached; }

 private:
  struct Place {
    size_t segment;
    RowRange rows;
    std::vector<std::byte> there, back;
    const SequenceState* from = nullptr;
    uint64_t first = 0;
  };
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t segment, const Dims&, RowRange rows, const std::byte* in) override {
    return right_.write(segment, rows, in);
  }
  Result<std::byte*> stage_rows(size_t segment, const Dims& dims, RowRange rows) override {
    BATON_CHECK(staged - came < stages_);
    Place& place = places_[staged++ % stages_];
    most = std::max(most, staged - came);
    most_unsent = std::max(most_unsent, staged - sent);
    const uint64_t row_bytes = row_bytes_of(shape().segments[segment].dtype, dims[2]);
    EXPECT_LE(rows.count * row_bytes, std::max(piece_, row_bytes));
    place.segment = segment, place.rows = rows;
    place.there.assign(rows.count * row_bytes, std::byte{0xff});
    place.back.assign(rows.count * row_bytes, std::byte{0xff});
    place.from = nullptr;
    return place.there.data();
  }
  Status stage_row_copy(size_t segment, const Dims& dims, RowRange rows, const SequenceState& from,
                        uint64_t first) override {
    BATON_OK(stage_rows(segment, dims, rows));
    Place& place = places_[(staged - 1) % stages_];
    place.from = &from, place.first = first;
    return {};
  }
  Status send_rows() override {
    BATON_CHECK(sent < staged);
    if (sent == lost_send) return fail(Code::kDevice, "the way there is lost");
    Place& place = places_[sent++ % stages_];
    const uint64_t row_bytes = place.there.size() / place.rows.count;
    if (place.from != nullptr)
      BATON_OK(place.from->read(place.segment, {place.first, place.rows.count}, place.there.data()));
    place.back = place.there;
    for (const auto& [where, row] : damaged) {
      if (where == place.segment && row >= place.rows.first && row < place.rows.first + place.rows.count)
        place.back[(row - place.rows.first) * row_bytes] ^= std::byte{1};
    }
    return right_.write(place.segment, place.rows, place.back.data());
  }
  Result<std::span<const std::byte>> back_rows() override {
    BATON_CHECK(came < sent);
    if (came == lost_back) return fail(Code::kDevice, "the way back is lost");
    return std::span<const std::byte>(places_[came++ % stages_].back);
  }

  FakeState right_;
  const uint64_t piece_;
  const uint32_t stages_;
  std::vector<Place> places_;
};

// A sender whose last few views stay, and turn into what is no number when there are more.
class Showing final : public SequenceState {
 public:
  Showing(const FakeState& right, uint32_t kept)
      : SequenceState(kMoved, test::stray_states()), right_(right), kept_(kept), shown_(kept == kAllViews ? 0 : kept) {
    set_position(right.position());
  }
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }
  uint32_t views_kept() const override { return kept_; }
  mutable uint64_t looks = 0;
  uint64_t no_memory_at = UINT64_MAX;  // of the looks

 private:
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t, const Dims&, RowRange, const std::byte*) override { return {}; }
  std::span<const std::byte> view_rows(size_t segment, const Dims& dims, RowRange rows) const override {
    if (looks == no_memory_at) throw std::bad_alloc();
    if (kept_ == kAllViews) shown_.emplace_back();
    std::vector<std::byte>& here = kept_ == kAllViews ? shown_.back() : shown_[looks % kept_];
    ++looks;
    std::fill(here.begin(), here.end(), std::byte{0xff});
    rows.count = std::min<uint64_t>(rows.count, 150 + looks % 7);
    here.resize(rows.count * row_bytes_of(shape().segments[segment].dtype, dims[2]));
    EXPECT_TRUE(right_.read(segment, rows, here.data()));
    return here;
  }

  const FakeState& right_;
  const uint32_t kept_;
  mutable std::vector<std::vector<std::byte>> shown_;
};

class Moves : public testing::Test {
 protected:
  void SetUp() override { from_.fill(6, kMoved); }
  // Without a crew, then with one: the same.
  std::string error_of(Crew* crew, const FakeLayout& layout,
                       const std::vector<std::pair<size_t, uint64_t>>& damaged) const {
    Shared to(layout);
    to.damaged = damaged;
    const auto moved = move_state(from_, to, crew);
    return moved ? "" : std::string(to_string(moved.error().code)) + ": " + moved.error().message;
  }
  FakeState from_{fake_layout(moved_program(), kMoved, {}), kMoved};
};

TEST_F(Moves, ByACrewGiveTheSameState) {
  for (const DType kv : {DType::kF32, DType::kF16}) {
    const FakeLayout layout = fake_layout(moved_program(), kMoved, {{1, 0, 2}, kv, DType::kF32, 3});
    Shared alone(layout), unshared(layout);
    unshared.shares = false;
    ASSERT_TRUE(move_state(from_, alone));
    for (const uint32_t threads : {1u, 2u, 5u}) {
      Crew crew(threads);
      Shared to(layout);
      const auto moved = move_state(from_, to, &crew);
      ASSERT_TRUE(moved) << moved.error().message;
      EXPECT_EQ(moved->bytes, section_bytes(from_.shape(), kMoved));
      EXPECT_EQ(to.position(), kMoved);
      EXPECT_TRUE(to.searched());
      EXPECT_EQ(to.memory(), alone.memory());
    }
    Crew crew(3);
    ASSERT_TRUE(move_state(from_, unshared, &crew));
    EXPECT_EQ(unshared.memory(), alone.memory());
    EXPECT_EQ(unshared.writes, alone.writes);
  }
}

// Many wrong values and rows, anywhere: the first of them all is told.
TEST_F(Moves, ByACrewTellTheFirstError) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {{0, 1, 2}, DType::kF16});
  Crew crew(4);
  size_t damages = 0, numbers = 0;
  for (int seed = 0; seed < scaled(40, 6); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    from_.fill(6, kMoved);
    std::vector<std::pair<size_t, uint64_t>> damaged;
    for (uint64_t i = 0; i <= random.below(6); ++i) {
      const size_t segment = random.below(from_.shape().segments.size());
      const Dims dims = dims_at(from_.shape().segments[segment], kMoved);
      const Dims at{random.below(dims[0]), random.below(dims[1]), random.below(dims[2])};
      constexpr float kWrong[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                  1e30f};
      const uint64_t which = random.below(4);
      which < 3 ? from_.set(segment, at, kWrong[which])
                : static_cast<void>(damaged.emplace_back(segment, at[0] * dims[1] + at[1]));
    }
    const std::string alone = error_of(nullptr, layout, damaged);
    damages += alone.find("come back") != std::string::npos ? 1 : 0;
    numbers += alone.find("make it again") != std::string::npos ? 1 : 0;
    for (int again = 0; again < 3; ++again) ASSERT_EQ(error_of(&crew, layout, damaged), alone) << seed;
  }
  EXPECT_GT(damages, 0u);
  EXPECT_GT(numbers, 0u);
}

// Of two writes at a time that fail the later rows' ends last, and what the other said stays. A sender whose views stay
// lets several write at a time.
TEST_F(Moves, ByACrewTellTheFirstErrorThoughTheNextComesLater) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {{0, 1, 2}, DType::kF16});
  // The recurrent parts of a layer, which a crew moves.
  const auto& segments = from_.shape().segments;
  const auto size = [](const Segment& segment) { return dims_at(segment, kMoved); };
  const auto largest = std::max_element(segments.begin(), segments.end(), [&](const Segment& a, const Segment& b) {
    return size(a)[0] * size(a)[1] * size(a)[2] < size(b)[0] * size(b)[1] * size(b)[2];
  });
  const auto many = static_cast<size_t>(largest - segments.begin());
  Crew crew(4);
  int met = 0;
  for (int again = 0; again < 5; ++again) {
    Shared to(layout);
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<uint64_t> entered;  // rows of the first two of a segment that has many pieces
    bool told = false;
    to.on_write = [&](size_t segment, RowRange rows) -> Status {
      std::unique_lock lock(mutex);
      if (segment != many || entered.size() == 2) return {};
      const size_t own = entered.size();
      entered.push_back(rows.first);
      changed.notify_all();
      if (!changed.wait_for(lock, std::chrono::seconds(5), [&] { return entered.size() == 2; })) return {};
      if (entered[own] < entered[1 - own]) {
        told = true;
        changed.notify_all();
        return fail(Code::kDevice, "the first");
      }
      changed.wait_for(lock, std::chrono::seconds(5), [&] { return told; });
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return fail(Code::kDevice, "the second");
    };
    const auto moved = move_state(Showing(from_, SequenceState::kAllViews), to, &crew);
    if (moved) continue;  // one came alone
    EXPECT_EQ(moved.error().message, "the first");
    ++met;
  }
  EXPECT_GT(met, 0);
}

// A segment of values that the receiver's type keeps nothing of comes before what is wrong behind it.
TEST_F(Moves, ByACrewLookAtSegmentsAsAWhole) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {{0, 1, 2}, DType::kF16});
  Crew crew(4);
  FakeState& from = from_;
  const auto shrink = [&](float last) {
    from.for_each_index(2, [&](const Dims& at) { from.set(2, at, 1e-9f); });
    from.set(2, {2, kMoved - 1, 169}, last);
  };
  shrink(1e-9f);
  from.set(3, {0, 0, 0}, std::nanf(""));
  const std::string small = error_of(&crew, layout, {});
  EXPECT_NE(small.find("layer 1 keys: all values are too small"), std::string::npos) << small;
  EXPECT_EQ(small, error_of(nullptr, layout, {}));
  shrink(std::nanf(""));
  const std::string both = error_of(&crew, layout, {});
  EXPECT_NE(both.find("layer 1 keys: value 66299 is nan"), std::string::npos) << both;
  shrink(1.0f);
  const std::string number = error_of(&crew, layout, {});
  EXPECT_NE(number.find("layer 1 values: value 0"), std::string::npos) << number;
  from.set(3, {0, 0, 0}, 1.0f);
  EXPECT_EQ(error_of(&crew, layout, {}), "");
}

TEST_F(Moves, AnErrorStopsTheOthers) {
  from_.set(0, {0, 0, 0}, std::nanf(""));
  Crew crew(3);
  Shared to(fake_layout(moved_program(), kMoved, {}));
  Showing from(from_, 2);
  const auto moved = move_state(from, to, &crew);
  ASSERT_FALSE(moved);
  EXPECT_NE(moved.error().message.find("layer 0 conv: value 0"), std::string::npos) << moved.error().message;
  EXPECT_EQ(to.position(), 0u);
  EXPECT_LE(from.looks, 3u);
}

TEST_F(Moves, ByACrewReadNoViewThatIsGone) {
  Shared alone(fake_layout(moved_program(), kMoved, {}));
  ASSERT_TRUE(move_state(from_, alone));
  Crew crew(3);
  for (const uint32_t kept : {1u, 2u, 3u, 40u}) {
    Shared to(fake_layout(moved_program(), kMoved, {}));
    Showing from(from_, kept);
    const auto moved = move_state(from, to, &crew);
    ASSERT_TRUE(moved) << moved.error().message;
    EXPECT_GT(from.looks, 10u);
    EXPECT_EQ(to.memory(), alone.memory());
  }
}

TEST_F(Moves, ByStagesGiveTheSameState) {
  for (const DType kv : {DType::kF32, DType::kF16}) {
    const FakeLayout layout = fake_layout(moved_program(), kMoved, {{1, 0, 2}, kv, DType::kF32, 3});
    Shared alone(layout);
    ASSERT_TRUE(move_state(from_, alone));
    for (const uint32_t stages : {2u, 3u, 6u, 12u}) {
      for (const uint64_t piece : {uint64_t{20'000}, uint64_t{150'000}, uint64_t{4} << 20}) {
        Crew crew(3);
        Staged to(layout, piece, stages);
        Showing from(from_, SequenceState::kAllViews);
        const auto moved = move_state(from, to, &crew);
        ASSERT_TRUE(moved) << moved.error().message;
        EXPECT_EQ(to.memory(), alone.memory());
        EXPECT_EQ(to.came, to.staged);
        EXPECT_EQ(to.most, stages - (stages > 2 ? 1 : 0));
        EXPECT_EQ(to.most_unsent, 1 + std::max(1u, stages / 4)) << "filled while the one before is sent";
        // Of one whose views go.
        Staged other(layout, piece, stages);
        const auto again = move_state(Showing(from_, 2), other, &crew);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(other.staged, to.staged);
        EXPECT_EQ(other.memory(), alone.memory());
      }
    }
  }
}

// Of values, of rows that do not come back, and of the ways there and back: that of the first stage.
TEST_F(Moves, ByStagesTellTheFirstError) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {{0, 1, 2}, DType::kF16});
  Crew crew(4), other(2);
  std::map<std::string, int> kinds;
  for (int seed = 0; seed < scaled(60, 10); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    from_.fill(6, kMoved);
    std::vector<std::pair<size_t, uint64_t>> damaged;
    std::optional<uint64_t> lost[2];
    for (uint64_t i = 0; i <= random.below(3); ++i) {
      const size_t segment = random.below(from_.shape().segments.size());
      const Dims dims = dims_at(from_.shape().segments[segment], kMoved);
      const Dims at{random.below(dims[0]), random.below(dims[1]), random.below(dims[2])};
      const uint64_t which = random.below(4);
      if (which == 0) from_.set(segment, at, std::numeric_limits<float>::quiet_NaN());
      if (which == 1) damaged.emplace_back(segment, at[0] * dims[1] + at[1]);
      if (which > 1) lost[which - 2] = random.below(12);
    }
    std::vector<std::string> errors;
    for (Crew* const by : {&crew, &other, &crew, &crew}) {
      const uint32_t kept = errors.size() == 3 ? 2 : SequenceState::kAllViews;
      Staged to(layout, 100'000, 4);
      to.damaged = damaged;
      to.lost_send = lost[0], to.lost_back = lost[1];
      const auto moved = move_state(Showing(from_, kept), to, by);
      ASSERT_FALSE(moved) << seed;
      EXPECT_EQ(to.position(), 0u);
      errors.push_back(moved.error().message);
    }
    ASSERT_EQ(std::count(errors.begin(), errors.end(), errors[0]), 4) << seed << errors[0] << errors[1];
    for (const char* kind : {"come back", "make it again", "way there", "way back"})
      kinds[kind] += errors[0].find(kind) != std::string::npos ? 1 : 0;
  }
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, 0) << kind;
}

// Rows that the receiver takes itself are searched and compared by what the sender shows, while that stays.
TEST_F(Moves, ByStagesThatReachGiveTheSameState) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {});
  Shared alone(layout);
  ASSERT_TRUE(move_state(from_, alone));
  Crew crew(3);
  for (const uint32_t kept : {1u, 2u, 4u, 40u}) {
    for (Crew* const by : {&crew, static_cast<Crew*>(nullptr)}) {
      Staged to(layout, 100'000, 6);
      to.reached = true;
      const auto moved = move_state(Showing(from_, kept), to, by);
      ASSERT_TRUE(moved) << moved.error().message;
      EXPECT_EQ(to.memory(), alone.memory());
      EXPECT_EQ(moved->peer_bytes, kept > 1 ? moved->bytes : 0);
      EXPECT_EQ(to.came, to.staged);
    }
  }
}
// The error of the first row, as one who moves by the host has it; and nothing is left on its way.
TEST_F(Moves, ByStagesThatReachTellTheFirstError) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {});
  Crew crew(4);
  std::map<std::string, int> kinds;
  for (int seed = 0; seed < scaled(60, 10); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    from_.fill(6, kMoved);
    std::vector<std::pair<size_t, uint64_t>> damaged;
    for (uint64_t i = 0; i <= random.below(3); ++i) {
      const size_t segment = random.below(from_.shape().segments.size());
      const Dims dims = dims_at(from_.shape().segments[segment], kMoved);
      const Dims at{random.below(dims[0]), random.below(dims[1]), random.below(dims[2])};
      random.below(2) == 0 ? from_.set(segment, at, std::numeric_limits<float>::quiet_NaN())
                           : static_cast<void>(damaged.emplace_back(segment, at[0] * dims[1] + at[1]));
    }
    std::string errors[2];
    for (const bool reached : {true, false}) {
      Staged to(layout, 100'000, 6);
      to.reached = reached;
      to.damaged = damaged;
      const auto moved = move_state(Showing(from_, 4), to, &crew);
      ASSERT_FALSE(moved) << seed;
      EXPECT_EQ(to.position(), 0u);
      EXPECT_EQ(to.came, to.sent);
      errors[reached] = to_string(moved.error().code);
      for (const char* kind : {"come back", "make it again"})
        kinds[kind] += reached && moved.error().message.find(kind) != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(errors[0], errors[1]);
  }
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, 0) << kind;
}

// What ends it otherwise, too.
TEST_F(Moves, ByStagesThatReachLeaveNothingOnItsWay) {
  Crew crew(3);
  for (uint64_t look = 0; look < 9; ++look) {
    Staged to(fake_layout(moved_program(), kMoved, {}), 100'000, 6);
    to.reached = true;
    Showing from(from_, 4);
    from.no_memory_at = look;
    const auto moved = move_state(from, to, &crew);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, Code::kOutOfMemory);
    EXPECT_EQ(to.sent > 0, look > 1);
    EXPECT_EQ(to.came, to.sent);
  }
}

// Layer by layer, each a move of its own: all of each is searched, sent and compared, by helpers and without.
TEST_F(Moves, AStreamByStagesGivesTheSameState) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {});
  Shared alone(layout);
  ASSERT_TRUE(move_state(from_, alone));
  for (const bool reached : {false, true}) {
    for (const uint32_t threads : {1u, 3u}) {
      for (size_t damaged = 0; damaged <= from_.shape().segments.size(); ++damaged) {
        Crew crew(threads);
        Staged to(layout, 100'000, 6);
        to.reached = reached;
        if (damaged < from_.shape().segments.size()) to.damaged.emplace_back(damaged, 1);
        Showing from(from_, 4);
        const auto stream = StateStream::begin(from, to, kMoved, StreamSource::kStays, &crew);
        ASSERT_TRUE(stream);
        Status moved;
        for (int32_t layer = 0; layer < 4 && moved; ++layer) {
          moved = (*stream)->move(from, kMoved, {&layer, 1});
          const bool wrong = !to.damaged.empty() && from.shape().segments[damaged].layer == layer;
          EXPECT_EQ(moved.has_value(), !wrong) << layer;
        }
        EXPECT_TRUE(!moved || to.memory() == alone.memory());
      }
    }
  }
}

TEST_F(Moves, AStageThatIsWrongIsNotSent) {
  from_.set(0, {0, 0, 0}, std::nanf(""));
  Crew crew(3);
  Staged to(fake_layout(moved_program(), kMoved, {}), 100'000, 4);
  EXPECT_FALSE(move_state(Showing(from_, SequenceState::kAllViews), to, &crew));
  EXPECT_EQ(to.sent, 0u);
}

// As a step makes them, by layers.
TEST_F(Moves, AStreamWithACrewGivesTheSameState) {
  const FakeLayout layout = fake_layout(moved_program(), kMoved, {{0, 1, 2}, DType::kF16});
  Shared alone(layout), to(layout);
  ASSERT_TRUE(move_state(from_, alone));
  Crew crew(3);
  auto stream = StateStream::begin(from_, to, kMoved, StreamSource::kStays, &crew);
  ASSERT_TRUE(stream);
  for (const uint64_t position : {uint64_t{64}, uint64_t{100}, kMoved}) {
    from_.set_position(position);
    for (int32_t layer = 0; layer < 4; ++layer) ASSERT_TRUE((*stream)->move(from_, position, {&layer, 1}));
    ASSERT_TRUE((*stream)->move(from_, position));
  }
  ASSERT_TRUE((*stream)->finish(from_));
  EXPECT_EQ((*stream)->report().bytes, section_bytes(from_.shape(), kMoved));
  EXPECT_EQ(to.memory(), alone.memory());
}

}  // namespace
}  // namespace baton
