// Rows on their way from an emulated card and there: pinned memory, views that stay, stages, and how often the card is
// asked.
#include "baton/unit/cuda/state_ferry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "baton/unit/cuda/states_test.h"

namespace baton::cuda {
namespace {

// Reads and writes end with an error where there is no pinned memory for one more, and others go on.
TEST_F(CudaStates, NoPinnedMemory) {
  const auto from = make(400);
  go_on(*from, 150, 7);
  emulated_fail({.function = "host_register"});
  EXPECT_EQ(StatePool::make(*card_, program(), DType::kF16, "test", live_).error().code, Code::kOutOfMemory);
  emulated_reset();
  for (const bool first : {true, false}) {
    const auto fresh = pool(program());
    const auto other = std::move(*fresh->state(400));
    std::vector<std::byte> bytes(300 * 48);
    if (!first) {  // has what was made ahead
      go_on(*fresh, *other, 1, 5);
      ASSERT_TRUE(other->read(2, {0, 3}, std::vector<std::byte>(3 * 42 * 4).data()));
    }
    auto state = std::move(*fresh->state(400));
    emulated_fail({.function = "host_register"});
    state->begin_write(150);
    Status status = state->write(0, {0, 300}, bytes.data());
    if (status) status = state->read(0, {0, 300}, bytes.data());
    EXPECT_EQ(status.has_value(), first);
    emulated_reset();
    EXPECT_TRUE(holds(*from, 7));
  }
}

// As many are on their way as have a block beside those that stay; and a state that changes waits for them.
TEST_F(CudaStates, WindowsAheadAreAsManyAsTheirBlocks) {
  Program large;
  large.slots = {{SlotKind::kRecurrent, 0, 100, 256, 256}};
  const auto states = pool(large);
  const auto state = std::move(*states->state(100));
  go_on(*states, *state, 1, 7);
  ASSERT_FALSE(state->view_first(0, {0, 60 * 256}).empty());
  EXPECT_EQ(emulated_waiting(), 2u * (Ferry::kBlocks - Ferry::kKept));  // a copy and a record of each
  for (uint64_t window = 1; window < 21; ++window) ASSERT_FALSE(state->view_first(0, {window * 1024, 1024}).empty());
  EXPECT_EQ(emulated_waiting(), 2u * 4);  // all that there are
  go_on(*states, *state, 1, 7);
  EXPECT_EQ(emulated_waiting(), 0u);
}

// Who reads some rows here and some there has fewer thrown away.
TEST_F(CudaStates, FewWindowsAreAheadOfWhoLeavesSomeOut) {
  Program large;
  large.slots = {{SlotKind::kRecurrent, 0, 100, 256, 256}};
  const auto states = pool(large);
  const auto state = std::move(*states->state(100));
  go_on(*states, *state, 1, 7);
  const auto ahead = [&](uint64_t window) {
    EXPECT_FALSE(state->view_first(0, {window * 1024, 1024}).empty());
    const std::vector<std::byte> all = wanted(state->shape().segments[0], 1, 7);
    EXPECT_EQ(std::memcmp(state->view_first(0, {window * 1024, 1024}).data(), all.data() + (window << 20), 1 << 20), 0);
    return emulated_waiting() / 2;
  };
  EXPECT_EQ(ahead(0), Ferry::kBlocks - Ferry::kKept);
  EXPECT_EQ(ahead(3), Ferry::kAheadMiss);
  EXPECT_EQ(ahead(4), Ferry::kAheadMiss + 1);
  EXPECT_EQ(ahead(5), Ferry::kAheadMiss + 2);
  EXPECT_EQ(ahead(2), Ferry::kAheadMiss);
}

// Of a copy that fails the rest are not to be had; what was shown before may still be looked at by others.
TEST_F(CudaStates, ViewsStayWhenTheNextFails) {
  Program large;
  large.slots = {{SlotKind::kRecurrent, 0, 100, 256, 256}};
  const auto states = pool(large);
  const auto state = std::move(*states->state(100));
  go_on(*states, *state, 1, 7);
  const std::vector<std::byte> all = wanted(state->shape().segments[0], 1, 7);
  const auto shown = state->view_first(0, {0, 1024});
  ASSERT_EQ(shown.size(), uint64_t{1} << 20);
  emulated_fail({.function = "event_wait", .code = kInvalidValue});
  EXPECT_TRUE(state->view_first(0, {1024, 1024}).empty());
  std::vector<std::byte> row(1024);
  EXPECT_FALSE(state->read(0, {1024, 1}, row.data()));
  EXPECT_EQ(std::memcmp(shown.data(), all.data(), shown.size()), 0);
  emulated_reset();
  ASSERT_TRUE(state->read(0, {1024, 1}, row.data())) << "who asks again may have more luck";
  EXPECT_EQ(std::memcmp(row.data(), all.data() + (1 << 20), row.size()), 0);
}

// Some stages at a time, behind reads and in front of them; each comes back as it was sent.
TEST_F(CudaStates, StagesAreWritesOfManyAtATime) {
  Random random(3);
  const auto from = make(400);
  go_on(*from, 150, 7);
  for (int round = 0; round < 20; ++round) {
    const auto to = make(400);
    ASSERT_GT(to->stages(), 2u);
    to->begin_write(150);
    std::vector<std::vector<std::byte>> sent;
    uint64_t back = 0;
    const auto come_back = [&] {
      const auto came = to->sent_back();
      ASSERT_TRUE(came) << came.error().message;
      const auto& wanted = sent[back++];
      ASSERT_EQ(came->size(), wanted.size());
      ASSERT_EQ(std::memcmp(came->data(), wanted.data(), wanted.size()), 0);
    };
    for (size_t i = from->shape().segments.size(); i-- > 0;) {
      const std::vector<std::byte> all = read(*from, i);
      const Dims dims = dims_at(from->shape().segments[i], 150);
      const uint64_t rows = dims[0] * dims[1], row_bytes = all.size() / rows;
      for (uint64_t row = 0; row < rows;) {
        const uint64_t count = std::min(rows - row, 1 + random.below(120));
        if (sent.size() - back == to->stages()) come_back();
        const auto stage = to->stage(i, {row, count});
        ASSERT_TRUE(stage) << stage.error().message;
        sent.emplace_back(all.begin() + static_cast<ptrdiff_t>(row * row_bytes),
                          all.begin() + static_cast<ptrdiff_t>((row + count) * row_bytes));
        std::memcpy(*stage, sent.back().data(), sent.back().size());
        ASSERT_TRUE(to->send());
        row += count;
      }
      while (back < sent.size() && !HasFatalFailure()) come_back();
      ASSERT_FALSE(HasFatalFailure());
      if (i != 3) continue;
      std::vector<std::byte> seen(all.size());
      ASSERT_TRUE(to->read(i, {0, rows}, seen.data()));
      ASSERT_EQ(seen, all);
    }
    ASSERT_TRUE(to->finish_write(true));
    EXPECT_TRUE(holds(*to, 7));
  }
}

// The way there or back fails: that piece, and all behind it.
TEST_F(CudaStates, AStageThatFailsEndsTheWriting) {
  for (const char* function : {"copy_in", "copy_out", "copy_rows", "stream_wait_event", "event_wait"}) {
    const auto to = make(400);
    to->begin_write(150);
    const bool plain = std::string_view(function).rfind("copy_", 0) == 0 && std::string_view(function) != "copy_rows";
    const auto stage = plain ? to->stage(3, {0, 16}) : to->stage(0, {0, 300});
    ASSERT_TRUE(stage);
    std::memset(*stage, 0, plain ? 16 * 32 : 300 * 48);
    emulated_fail({.function = function, .code = kNotSupported});
    Status status = to->send();
    if (status) {
      if (const auto back = to->sent_back(); !back) status = fail(back.error());
    }
    EXPECT_FALSE(status) << function;
    EXPECT_FALSE(to->stage(1, {0, 300})) << function;
    emulated_reset();
  }
  const auto state = make(400);
  go_on(*state, 150, 7);
  EXPECT_TRUE(holds(*state, 7));
}

// While others that come behind them are looked at.
TEST_F(CudaStates, TheLastViewsStay) {
  Program large;
  large.slots = {
      {SlotKind::kKeys, 0, 3, 0, 512}, {SlotKind::kValues, 0, 3, 0, 512}, {SlotKind::kRecurrent, 1, 9, 256, 256}};
  const auto states = pool(large);
  const auto state = std::move(*states->state(3000));
  go_on(*states, *state, 2900, 7);
  ASSERT_GE(state->views_kept(), 2u);
  struct Seen {
    std::span<const std::byte> values;
    const std::byte* wanted;
  };
  std::vector<std::vector<std::byte>> all;
  std::vector<Seen> seen;
  for (size_t i = 0; i < state->shape().segments.size(); ++i) {
    const Segment& segment = state->shape().segments[i];
    all.push_back(wanted(segment, 2900, 7));
    const Dims dims = dims_at(segment, 2900);
    const uint64_t row_bytes = row_bytes_of(segment.dtype, dims[2]);
    for (uint64_t row = 0; row < dims[0] * dims[1];) {
      const auto values = state->view_first(i, {row, dims[0] * dims[1] - row});
      ASSERT_FALSE(values.empty());
      seen.push_back({values, all.back().data() + row * row_bytes});
      for (size_t k = seen.size() - std::min<size_t>(seen.size(), state->views_kept()); k < seen.size(); ++k)
        ASSERT_EQ(std::memcmp(seen[k].values.data(), seen[k].wanted, seen[k].values.size()), 0) << k;
      row += values.size() / row_bytes;
    }
  }
  EXPECT_GT(seen.size(), 15u);
}

// A state as that of Qwen3.5-0.8B with 2,048 tokens, 44 MB: what the card is asked for, all together.
TEST_F(CudaStates, AStateGoesByFewCopies) {
  Program qwen;
  for (int32_t layer = 0; layer < 24; ++layer) {
    if (layer % 4 == 3) {
      qwen.slots.push_back({SlotKind::kKeys, layer, 2, 0, 256});
      qwen.slots.push_back({SlotKind::kValues, layer, 2, 0, 256});
    } else {
      qwen.slots.push_back({SlotKind::kConv, layer, 0, 3, 6144});
      qwen.slots.push_back({SlotKind::kRecurrent, layer, 16, 128, 128});
    }
  }
  const auto states = pool(qwen);
  const auto from = std::move(*states->state(2100)), to = std::move(*states->state(2100));
  go_on(*states, *from, 2048, 7);
  const auto walk = [&](const SequenceState& state, auto visit) {
    const uint64_t calls = emulated_calls();
    for (size_t i = 0; i < state.shape().segments.size(); ++i) {
      const Segment& segment = state.shape().segments[i];
      ASSERT_TRUE(for_pieces(dims_at(segment, 2048), segment.dtype, [&](RowRange rows) { return visit(i, rows); }));
    }
    copies_ = emulated_calls() - calls;
  };
  uint64_t bytes = 0;
  walk(*from, [&](size_t i, RowRange rows) -> Status {
    EXPECT_NE(from->view(i, rows), nullptr);
    bytes += rows.count * row_bytes_of(from->shape().segments[i].dtype, from->shape().segments[i].dims[2]);
    return {};
  });
  EXPECT_GT(bytes, uint64_t{45'000'000});
  EXPECT_LE(copies_, 2u * 3 * 60);  // windows: a copy, a record and a wait, and for each of them for which card
  to->begin_write(2048);
  const uint64_t calls = emulated_calls();
  std::vector<std::byte> all;
  for (size_t i = 0; i < to->shape().segments.size(); ++i) {
    all = read(*from, i);
    const Dims dims = dims_at(to->shape().segments[i], 2048);
    ASSERT_TRUE(to->write(i, {0, dims[0] * dims[1]}, all.data()));
    std::vector<std::byte> back(all.size());
    ASSERT_TRUE(to->read(i, {0, dims[0] * dims[1]}, back.data()));
    ASSERT_EQ(back, all);
  }
  EXPECT_LE(emulated_calls() - calls, 2u * 550);
  ASSERT_TRUE(to->finish_write());
  EXPECT_TRUE(holds(*to, 7));
}

}  // namespace
}  // namespace baton::cuda
