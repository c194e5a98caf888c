// States on an emulated card: pages taken, shared, copied and given back; what one sequence wrote and another sees;
// rows in any pieces; out of memory everywhere; threads; nothing left.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

#include "baton/unit/cuda/states_test.h"

namespace baton::cuda {
namespace {

TEST_F(CudaStates, TakeAPageWhenItsFirstTokenComes) {
  const auto state = make(1000);
  EXPECT_EQ(state->bytes(), pool_->bytes_for(0));
  for (uint64_t tokens = 1; tokens <= 3 * kPage; ++tokens) {
    go_on(*state, 1, 7);
    ASSERT_EQ(state->bytes(), pool_->bytes_for(tokens));
    ASSERT_EQ(pool_->memory().bytes, state->bytes());
  }
  EXPECT_TRUE(holds(*state, 7));
  ASSERT_TRUE(own(*state).make_room(900));
  EXPECT_EQ(state->bytes(), pool_->bytes_for(900));
  own(*state).advance(2);
  EXPECT_EQ(state->bytes(), pool_->bytes_for(3 * kPage + 2));
  EXPECT_EQ(pool_->bytes_for(uint64_t{1} << 62), UINT64_MAX);
  const auto none = pool_->state(uint64_t{1} << 62);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kOutOfMemory);
  EXPECT_EQ(none.error().message.rfind("test: ", 0), 0u);
}

// More pages than the first list has room for.
TEST_F(CudaStates, AListGrowsWithItsPages) {
  const auto state = make(40'000);
  for (const uint64_t more : {100, 32'000, 7'000}) go_on(*state, more, 3);
  EXPECT_EQ(state->bytes(), pool_->bytes_for(39'100));
  EXPECT_GT(pool_->bytes_for(39'100), pool_->bytes_for(0) + 611 * page_bytes() + table_bytes());
  EXPECT_TRUE(holds(*state, 3));
}

TEST_F(CudaStates, EveryTypeOfKeysAndValues) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const auto other = pool(program(), type);
    EXPECT_EQ(other->place(0).form, type == DType::kF32 ? Form::kF32 : Form::kBF16);
    auto state = std::move(*other->state(200));
    go_on(*other, *state, 150, 5);
    EXPECT_TRUE(holds(*state, 5));
  }
  EXPECT_EQ(StatePool::make(*card_, program(), DType::kQ8_0, "test", live_).error().code, Code::kUnsupported);
}

// At each position of the ring, for a state that stepped there one by one, and one that was filled there.
TEST_F(CudaStates, ColumnsOfAConvolutionAreARing) {
  Random random(2);
  const auto state = make(100);
  for (uint64_t position = 0; position <= 2 * kTaps + 1; ++position) {
    ASSERT_TRUE(holds(*state, 9)) << position;
    const auto filled = make(100);
    ASSERT_NO_FATAL_FAILURE(copy(*state, *filled, random, 3));
    ASSERT_TRUE(holds(*filled, 9)) << position;
    for (int i = 0; i < 6; ++i) go_on(*filled, 1, 9);
    ASSERT_TRUE(holds(*filled, 9)) << position;
    go_on(*state, 1, 9);
  }
}

// The columns before the start are what was written there, be they zero or not.
TEST_F(CudaStates, WhatIsWrittenBeforeTheStartComesBack) {
  for (const uint64_t position : {0, 1, 2}) {
    const auto state = make(100);
    state->begin_write(position);
    const Segment& conv = state->shape().segments[2];
    std::vector<std::byte> columns(3 * 42 * 4), back(columns.size());
    for (uint64_t i = 0; i < 3; ++i) fill_row(conv, columns.data() + i * 42 * 4, 0, i, 1);
    ASSERT_TRUE(state->write(2, {0, 3}, columns.data()));
    ASSERT_TRUE(state->read(2, {0, 3}, back.data()));
    EXPECT_EQ(back, columns);
  }
}

TEST_F(CudaStates, ForksHoldOnePageUntilOneOfThemWrites) {
  const uint64_t parts = pool_->bytes_for(0), page = page_bytes(), table = table_bytes();
  auto first = make(1000);
  go_on(*first, 2 * kPage + 10, 7);
  auto second = own(*first).fork(2 * kPage + 10);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->bytes(), first->bytes() - table);
  EXPECT_EQ(pool_->memory().bytes, 3 * page + 2 * parts + table);
  EXPECT_TRUE(holds(**second, 7));
  const auto before = read(*first);
  go_on(**second, 5, 9);
  EXPECT_EQ(pool_->memory().bytes, 4 * page + 2 * parts + 2 * table);
  EXPECT_EQ(read(*first), before);
  const auto page_of = [&](uint64_t index) {
    EXPECT_TRUE(own(*first).make_room(first->position()));
    return reinterpret_cast<const Address*>(own(*first).run(0, 0, false).pages)[index];
  };
  const uint64_t calls = emulated_calls();
  go_on(*first, 5, 7);  // alone with it now: no copy
  EXPECT_EQ(emulated_calls(), calls);
  EXPECT_NE(page_of(2), reinterpret_cast<const Address*>(own(**second).run(0, 0, false).pages)[2]);
  EXPECT_EQ(page_of(1), reinterpret_cast<const Address*>(own(**second).run(0, 0, false).pages)[1]);
  EXPECT_EQ(pool_->memory().bytes, 4 * page + 2 * parts + 2 * table);
  EXPECT_TRUE(holds(*first, 7));
  for (const size_t keys : {0, 1, 4}) {
    const auto rows = read(**second, keys);
    const uint64_t row_bytes = row_bytes_of(DType::kF16, first->shape().segments[keys].dims[2]);
    EXPECT_EQ(std::memcmp(rows.data(), before[keys].data(), (2 * kPage + 10) * row_bytes), 0);
    EXPECT_NE(rows, read(*first, keys));
  }
  {
    const auto third = own(*first).fork(first->position());
    ASSERT_TRUE(third);
    go_on(*first, 5, 7);  // a copy, of a page that is in its list
    EXPECT_TRUE(holds(*first, 7));
    EXPECT_TRUE(holds(**third, 7));
  }
  first.reset();
  EXPECT_EQ(pool_->memory().bytes, 3 * page + parts + table);
  second->reset();
  EXPECT_EQ(pool_->memory().bytes, 0u);
}

// Of what others wrote behind it, a fork's own page shows nothing.
TEST_F(CudaStates, AForkOfAnEarlierPosition) {
  const auto keys = pool(keys_only());
  auto first = std::move(*keys->state(300));
  go_on(*keys, *first, 150, 7);
  auto second = own(*first).fork(100);
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->position(), 100u);
  EXPECT_TRUE(holds(**second, 7));
  ASSERT_TRUE(own(**second).make_room(101));
  const cuda::Run run = own(**second).run(0, 1, true);
  for (SlotId slot = 0; slot < 4; ++slot) {
    const std::byte* const at = row(*keys, run, slot, 0, 100);
    EXPECT_EQ(std::count(at, at + 9 * 2, std::byte{0}), 9 * 2);
  }
  go_on(*keys, **second, 60, 7);
  EXPECT_TRUE(holds(**second, 7));
  EXPECT_TRUE(holds(*first, 7));
  const auto state = make(100);
  go_on(*state, 50, 7);
  EXPECT_TRUE(own(*state).fork(50));
  EXPECT_EQ(own(*state).fork(49).error().code, Code::kUnsupported);
}

TEST_F(CudaStates, KeysAndValuesGoBackAnywhere) {
  const auto keys = pool(keys_only());
  auto state = std::move(*keys->state(300));
  go_on(*keys, *state, 200, 7);
  for (const uint64_t to : {200, 129, 128, 127, 64, 3, 0}) {
    ASSERT_TRUE(own(*state).rewind(to));
    ASSERT_EQ(state->position(), to);
    ASSERT_EQ(state->bytes(), keys->bytes_for(to));
    ASSERT_TRUE(holds(*state, 7));
    go_on(*keys, *state, 210 - to, 7);
    ASSERT_TRUE(holds(*state, 7));
  }
  const auto other = make(100);
  go_on(*other, 50, 7);
  EXPECT_TRUE(own(*other).rewind(50));
  const Status refused = own(*other).rewind(49);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_EQ(refused.error().message,
            "test: a state at position 50 cannot go back 1 tokens to 49: its recurrent parts were kept for the last 0");
  EXPECT_TRUE(holds(*other, 7));
}

// Of a fork's pages too, whoever goes first; and of a state that was filled.
TEST_F(CudaStates, WhatASequenceWroteIsZeroForTheNext) {
  Random random(4);
  for (const int first_to_go : {0, 1}) {
    auto one = make(1000);
    go_on(*one, kPage + 40, 7);
    auto other = own(*one).fork(kPage + 40);
    ASSERT_TRUE(other);
    go_on(**other, 70, 8);
    go_on(*one, 3, 9);
    if (first_to_go == 0) one.reset();
    other->reset();
    one.reset();
    const auto next = make(1000);
    ASSERT_TRUE(is_zero(*pool_, *next, 4 * kPage));
    const auto from = make(100);
    go_on(*from, 80, 3);
    auto filled = make(100);
    copy(*from, *filled, random, 50);
    filled.reset();
    const auto after = make(100);
    ASSERT_TRUE(is_zero(*pool_, *after, 100));
  }
}

TEST_F(CudaStates, RowsInPiecesAreTheWhole) {
  Random random(1);
  for (const uint64_t position : {1, 63, 64, 65, 300}) {
    const auto state = make(400);
    go_on(*state, position, 6);
    const auto whole = read(*state);
    for (int i = 0; i < 300; ++i) {
      const size_t segment = random.below(whole.size());
      const Segment& of = state->shape().segments[segment];
      const Dims dims = dims_at(of, position);
      const uint64_t row_bytes = row_bytes_of(of.dtype, dims[2]);
      const uint64_t first = random.below(dims[0] * dims[1]), count = 1 + random.below(dims[0] * dims[1] - first);
      std::vector<std::byte> piece(count * row_bytes);
      ASSERT_TRUE(state->read(segment, {first, count}, piece.data()));
      ASSERT_EQ(std::memcmp(piece.data(), whole[segment].data() + first * row_bytes, piece.size()), 0);
      const std::byte* const shown = state->view(segment, {first, count});
      if (shown == nullptr) continue;
      ASSERT_EQ(std::memcmp(shown, piece.data(), piece.size()), 0);
    }
  }
}

TEST_F(CudaStates, RowsAreWrittenInAnyOrder) {
  Random random(3);
  for (const uint64_t position : {1, 64, 200}) {
    const auto from = make(300);
    go_on(*from, position, 6);
    for (const uint64_t most : {1, 7, 1000}) {
      auto to = make(250);
      ASSERT_NO_FATAL_FAILURE(copy(*from, *to, random, most));
      EXPECT_TRUE(holds(*to, 6));
      EXPECT_TRUE(to->searched());
      EXPECT_EQ(to->bytes(), pool_->bytes_for(position));
      go_on(*to, 40, 6);
      EXPECT_TRUE(holds(*to, 6));
    }
  }
}

// In any order: pages that are not there yet are not fetched ahead.
TEST_F(CudaStates, BeforeItIsFilledAllIsZero) {
  const auto state = make(100);
  state->begin_write(70);
  for (const size_t segment : {2, 3, 4, 5, 0, 1}) {
    const Dims dims = dims_at(state->shape().segments[segment], 70);
    std::vector<std::byte> rows(dims[0] * dims[1] * row_bytes_of(state->shape().segments[segment].dtype, dims[2]),
                                std::byte{1});
    ASSERT_TRUE(state->read(segment, {0, dims[0] * dims[1]}, rows.data()));
    EXPECT_EQ(rows, std::vector<std::byte>(rows.size())) << segment;
  }
}

// What the bridge compares is what the card holds.
TEST_F(CudaStates, WhatWasWrittenIsReadFromTheCard) {
  const auto state = make(100);
  state->begin_write(70);
  std::vector<std::byte> rows(70 * 48, std::byte{1}), back(rows.size());
  ASSERT_TRUE(state->write(0, {0, 70}, rows.data()));
  ASSERT_TRUE(state->read(0, {0, 70}, back.data()));
  EXPECT_EQ(back, rows);
  ASSERT_TRUE(state->write(0, {70, 70}, rows.data()));
  const std::byte* shown = state->view(0, {70, 70});
  ASSERT_NE(shown, nullptr);
  const auto* const table = reinterpret_cast<const Address*>(own(*state).run(0, 0, false).pages);
  std::memset(reinterpret_cast<std::byte*>(table[0]) + pool_->place(0).offset, 2, 48);
  ASSERT_TRUE(state->write(1, {0, 1}, rows.data()));
  ASSERT_TRUE(state->read(0, {0, 70}, back.data()));
  EXPECT_EQ(back[0], std::byte{2});
  EXPECT_EQ(back[48], std::byte{1});
}

// A state is read while later layers compute, at the position to come; what was fetched before is not shown behind.
TEST_F(CudaStates, LayersAreReadAtThePositionToCome) {
  const auto state = make(400);
  go_on(*state, 70, 6);
  EXPECT_TRUE(holds(*state, 6));
  CudaState& at = own(*state);
  ASSERT_TRUE(at.make_room(200));
  at.show(200);
  const cuda::Run run = at.run(0, 130, false);
  const auto write_parts = [&](const cuda::Run& to) {
    const std::vector<Segment>& segments = state->shape().segments;
    for (uint64_t token = 200 - kTaps; token < 200; ++token)
      fill_row(segments[2], row(*pool_, to, 2, 0, token % kTaps), 0, token, 6);
    for (uint64_t head = 0; head < 2; ++head) {
      for (uint64_t i = 0; i < 8; ++i) fill_row(segments[3], row(*pool_, to, 3, head, i), head, 200 * 100 + i, 6);
    }
  };
  const auto write = [&](SlotId slot, uint64_t begin) {
    const Segment& segment = state->shape().segments[static_cast<size_t>(slot)];
    for (uint64_t head = 0; head < segment.dims[0]; ++head) {
      for (uint64_t token = begin; token < 200; ++token)
        fill_row(segment, row(*pool_, run, slot, head, token), head, token, 6);
    }
  };
  for (const SlotId slot : {0, 1}) write(slot, 70);
  for (const size_t slot : {0, 1}) {
    std::vector<std::byte> piece(130 * 48);
    const auto all = wanted(state->shape().segments[slot], 200, 6);
    for (uint64_t head = 0; head < 2; ++head) {
      ASSERT_TRUE(state->read(slot, {head * 200 + 70, 130}, piece.data()));
      EXPECT_EQ(std::memcmp(piece.data(), all.data() + (head * 200 + 70) * 48, piece.size()), 0);
    }
  }
  EXPECT_EQ(emulated_waiting(), 0u);  // nothing of the next layer is asked for
  write_parts(run);
  for (const size_t slot : {2, 3}) EXPECT_TRUE(shows(*state, slot, 200, 6));
  for (const SlotId slot : {4, 5}) write(slot, 70);
  for (const size_t slot : {4, 5}) {
    std::vector<std::byte> piece(200 * 18);
    ASSERT_TRUE(state->read(slot, {0, 200}, piece.data()));
    EXPECT_EQ(piece, wanted(state->shape().segments[slot], 200, 6));
  }
  at.advance(130);
  EXPECT_EQ(read(*state, 5), wanted(state->shape().segments[5], 200, 6));
}

// Where the card has room for ever one allocation more: all is as it was each time, and at last it goes well.
TEST_F(CudaStates, OutOfMemoryChangesNothing) {
  std::unique_ptr<SequenceState> state, copied;
  uint64_t failures = 0;
  const auto check = [&](auto work) {
    Status status;
    for (uint64_t more = 0; more <= uint64_t{32} << 20; more = more == 0 ? 4096 : more * 2) {
      const uint64_t bytes = pool_->memory().bytes, position = state == nullptr ? 0 : state->position();
      emulated_set_memory(card_->held_bytes() + more);
      status = work();
      emulated_set_memory(kEmulatedBytes);
      if (status) return;
      ++failures;
      EXPECT_EQ(status.error().code, Code::kOutOfMemory) << status.error().message;
      EXPECT_EQ(pool_->memory().bytes, bytes);
      if (state == nullptr) continue;
      EXPECT_EQ(state->position(), position);
      EXPECT_EQ(state->bytes(), pool_->bytes_for(position));
      ASSERT_TRUE(holds(*state, 7));
    }
    EXPECT_TRUE(status) << status.error().message;
  };
  check([&]() -> Status {
    auto made = pool_->state(40'000);
    if (!made) return fail(made.error());
    state = std::move(*made);
    return {};
  });
  ASSERT_NE(state, nullptr);
  for (const uint64_t to : {10, 20'000, 32'768, 32'769, 39'000}) {
    check([&] { return own(*state).make_room(to); });
    go_on(*state, to - state->position(), 7);
  }
  EXPECT_GE(failures, 12u);
  check([&]() -> Status {
    BATON_TRY(copied, own(*state).fork(39'000));
    if (const Status room = own(*copied).make_room(39'001); !room) {
      copied.reset();
      return room;
    }
    return {};
  });
  ASSERT_NE(copied, nullptr);
  EXPECT_TRUE(holds(*copied, 7));
}

// While a card computes, states of any size are read: nothing but their own copies is waited for.
TEST_F(CudaStates, ReadingWaitsForNoOtherStream) {
  const auto values = card_->allocate(64, "values");
  auto stream = card_->stream();
  ASSERT_TRUE(stream->zero(values->address(), 64));
  const auto state = make(1000);
  CudaState& at = own(*state);
  ASSERT_TRUE(at.make_room(1000));
  for (const uint64_t position : {10, 1000}) {
    at.show(position);
    for (size_t i = 0; i < state->shape().segments.size(); ++i) {
      const Segment& of = state->shape().segments[i];
      const Dims dims = dims_at(of, position);
      std::vector<std::byte> all(dims[0] * dims[1] * row_bytes_of(of.dtype, dims[2]));
      ASSERT_TRUE(state->read(i, {0, dims[0] * dims[1]}, all.data()));
    }
    EXPECT_GT(emulated_waiting(), 0u) << position;
  }
  ASSERT_TRUE(stream->wait());
}

// The card is full: a state ends with the reason, what waited for the next is used first, and others go on.
TEST_F(CudaStates, AFullCard) {
  emulated_set_memory(uint64_t{6} << 20);
  auto first = make(20'000);
  const auto second = make(20'000);
  go_on(*first, 15'000, 7);
  Status status;
  while ((status = own(*second).make_room(second->position() + 500))) go_on(*second, 500, 8);
  EXPECT_EQ(status.error().code, Code::kOutOfMemory);
  EXPECT_EQ(status.error().message.rfind("test: card 0", 0), 0u) << status.error().message;
  EXPECT_NE(status.error().message.find("use a smaller context"), std::string::npos);
  EXPECT_GT(second->position(), 4000u);
  EXPECT_EQ(second->bytes(), pool_->bytes_for(second->position()));
  EXPECT_TRUE(holds(*first, 7));
  const auto none = pool_->state(30'000);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kOutOfMemory);
  EXPECT_NE(none.error().message.find("the card has 6 MiB"), std::string::npos) << none.error().message;
  first.reset();
  go_on(*second, 10'000, 8);
  EXPECT_TRUE(holds(*second, 8));
}

// A card whose work fails once: whatever is taken behind it is zero.
TEST_F(CudaStates, WhatCouldNotBeZeroedIsNotGivenOut) {
  for (const char* function : {"set_bytes", "stream_wait"}) {
    for (const bool later : {false, true}) {
      for (uint64_t nth = 1; nth <= 3; ++nth) {
        auto state = make(300);
        go_on(*state, 250, 7);
        auto other = make(300);
        emulated_fail({.function = function, .nth = nth, .code = kInvalidValue, .later = later});
        state.reset();
        const auto between = pool_->state(300);
        if (between) static_cast<void>(own(**between).make_room(70));
        emulated_reset();
        const auto next = make(300);
        ASSERT_TRUE(is_zero(*pool_, *next, 300)) << function << nth << later;
        ASSERT_TRUE(!between || !own(**between).make_room(70) || is_zero(*pool_, **between, 300));
      }
    }
  }
}

TEST_F(CudaStates, IdleMemoryIsBounded) {
  Program large;
  large.slots = {
      {SlotKind::kKeys, 0, 8, 0, 1024}, {SlotKind::kValues, 0, 8, 0, 1024}, {SlotKind::kRecurrent, 1, 16, 256, 256}};
  constexpr uint64_t kIdle = uint64_t{40} << 20;
  const auto bounded = *StatePool::make(*card_, large, DType::kF16, "test", live_, kIdle);
  std::vector<std::unique_ptr<SequenceState>> states;
  for (int i = 0; i < 14; ++i) {
    states.push_back(std::move(*bounded->state(2000)));
    ASSERT_TRUE(own(*states.back()).make_room(250));
  }
  EXPECT_GT(card_->held_bytes(), 4 * kIdle);
  states.clear();
  EXPECT_EQ(bounded->memory().bytes, 0u);
  EXPECT_LE(card_->held_bytes(), 2 * kIdle);
  EXPECT_GT(card_->held_bytes(), kIdle);
}

// One state is read and another filled by threads of their own, others are dropped, while others make room: for the
// thread sanitizer, and the counter.
TEST_F(CudaStates, AreReadFilledAndDroppedBesideSteps) {
  auto from = make(1000), kept = make(1000);
  go_on(*from, kPage + 20, 7);
  const uint64_t alone = pool_->memory().bytes;
  std::thread reader([&] {
    Random random(8);
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(holds(*kept, 5));
      const auto to = make(500);
      copy(*kept, *to, random, 200);
      EXPECT_TRUE(holds(*to, 5));
    }
  });
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<SequenceState>> forks;
    for (int i = 0; i < 4; ++i) forks.push_back(std::move(*own(*from).fork(kPage + 20)));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < forks.size(); ++i) {
      threads.emplace_back([&, i] {
        if (i % 2 == 0) go_on(*forks[i], 60, i + 1);
        EXPECT_EQ(forks[i]->position(), kPage + (i % 2 == 0 ? 80 : 20));
        forks[i].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(holds(*from, 7));
  }
  reader.join();
  EXPECT_EQ(pool_->memory().bytes, alone);
}

}  // namespace
}  // namespace baton::cuda
