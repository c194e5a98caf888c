// Rows from one emulated card to another without the host: each byte where it belongs, and what is wrong with one seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "baton/unit/cuda/states_test.h"

namespace baton::cuda {
namespace {

class CudaPeers : public CudaStates {
 protected:
  void SetUp() override {
    CudaStates::SetUp();
    other_card_ = *Card::open(emulated_driver(), 1);
    other_pool_ = other_pool(program());
  }
  void TearDown() override {
    other_pool_.reset();
    EXPECT_EQ(other_card_->held_bytes(), 0u);
    other_card_.reset();
    CudaStates::TearDown();
  }
  std::unique_ptr<StatePool> other_pool(const Program& of, DType kv_type = DType::kF16) {
    auto made = StatePool::make(*other_card_, of, kv_type, "other", live_);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::unique_ptr<SequenceState> there(uint64_t tokens_max) { return std::move(*other_pool_->state(tokens_max)); }

  // Of a segment of a receiver of `tokens` tokens, `rows` of the sender at `position`: so many at a time, each compared
  // with what comes back. The first error; kCorrupt: a piece that is not what it was.
  static Status bring(const SequenceState& from, uint64_t position, SequenceState& to, uint64_t tokens, size_t segment,
                      RowRange rows, Random& random, uint64_t most) {
    const Segment& of = from.shape().segments[segment];
    const uint64_t row_bytes = row_bytes_of(of.dtype, of.dims[2]);
    const uint64_t each = has_tokens_dim(of.kind) ? position : of.dims[1];
    const uint64_t each_there = has_tokens_dim(of.kind) ? tokens : of.dims[1];
    std::vector<std::vector<std::byte>> sent;
    uint64_t back = 0;
    const auto come_back = [&]() -> Status {
      BATON_TRY(const auto came, to.sent_back());
      const auto& seen = sent[back++];
      if (came.size() == seen.size() && std::memcmp(came.data(), seen.data(), seen.size()) == 0) return {};
      return fail(Code::kCorrupt, "a piece that is not what it was");
    };
    for (uint64_t done = 0; done < rows.count;) {
      const uint64_t row = rows.first + done, head = row / each;
      uint64_t count = std::min(rows.count - done, 1 + random.below(most));
      if (each != each_there) count = std::min(count, each - row % each);
      const auto values = from.view_first(segment, {row, count});
      if (values.empty()) return fail(Code::kDevice, "no view");
      count = values.size() / row_bytes;
      if (sent.size() - back == std::min(to.stages(), from.views_kept())) BATON_OK(come_back());
      BATON_OK(to.stage_copy(segment, {head * each_there + row % each, count}, from, row));
      BATON_OK(to.send());
      sent.emplace_back(values.begin(), values.end());
      done += count;
    }
    while (back < sent.size()) BATON_OK(come_back());
    return {};
  }
  static Status bring_all(const SequenceState& from, SequenceState& to, Random& random, uint64_t most) {
    to.begin_write(from.position());
    for (size_t i = 0; i < from.shape().segments.size(); ++i) {
      const Dims dims = dims_at(from.shape().segments[i], from.position());
      BATON_OK(bring(from, from.position(), to, from.position(), i, {0, dims[0] * dims[1]}, random, most));
    }
    return to.finish_write(true);
  }
  static uint64_t bytes_of(const SequenceState& state) {
    uint64_t bytes = 0;
    for (const Segment& segment : state.shape().segments) {
      const Dims dims = dims_at(segment, state.position());
      bytes += dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]);
    }
    return bytes;
  }

  std::shared_ptr<Card> other_card_;
  std::unique_ptr<StatePool> other_pool_;
};

// At any length, in pieces of any length; pages that lie one behind the other and such as do not.
TEST_F(CudaPeers, RowsGoFromCardToCard) {
  Random random(5);
  for (const uint64_t tokens : {1, 2, 3, 63, 64, 65, 130, 300, 390}) {
    for (const uint64_t most : {1, 50, 5000}) {
      SCOPED_TRACE(tokens * 10000 + most);
      const auto before = make(400), from = make(400), behind = make(400);
      go_on(*before, 70, 1);
      for (uint64_t done = 0; done < tokens;) {  // pages of two states in turns
        const uint64_t count = std::min(tokens - done, 1 + random.below(150));
        go_on(*from, count, 7);
        if (behind->position() + count <= 400) go_on(*behind, count, 8);
        done += count;
      }
      const auto to = there(400);
      ASSERT_TRUE(to->reaches(*from));
      const uint64_t peers = emulated_peer_bytes();
      const Status brought = bring_all(*from, *to, random, most);
      ASSERT_TRUE(brought) << brought.error().message;
      EXPECT_TRUE(holds(*to, 7));
      EXPECT_TRUE(holds(*from, 7));
      EXPECT_GE(emulated_peer_bytes() - peers, bytes_of(*from));
      go_on(*other_pool_, *to, 5, 7);
      EXPECT_TRUE(holds(*to, 7));
    }
  }
}

// Of a sender that is still being made, and so of other rows a head.
TEST_F(CudaPeers, RowsOfTokensSoFarGoWhereTheyWillBe) {
  Random random(6);
  const auto from = make(400), to = there(400);
  to->begin_write(200);
  for (uint64_t moved = 0; moved < 200;) {
    const uint64_t count = std::min(200 - moved, 30 + random.below(60)), position = moved + count;
    go_on(*from, count, 7);
    for (size_t i = 0; i < from->shape().segments.size(); ++i) {
      const Segment& segment = from->shape().segments[i];
      const Dims dims = dims_at(segment, position);
      const bool grows = has_tokens_dim(segment.kind);
      if (!grows && position < 200) continue;
      for (uint64_t head = 0; head < (grows ? dims[0] : 1); ++head) {
        const RowRange rows = grows ? RowRange{head * position + moved, count} : RowRange{0, dims[0] * dims[1]};
        const Status brought = bring(*from, position, *to, 200, i, rows, random, 40);
        ASSERT_TRUE(brought) << brought.error().message;
      }
    }
    moved = position;
  }
  ASSERT_TRUE(to->finish_write(true));
  EXPECT_TRUE(holds(*to, 7));
}

// Whole pages by few copies, whatever the number of heads.
TEST_F(CudaPeers, AStateGoesByFewCopies) {
  Program large;
  large.slots = {{SlotKind::kKeys, 0, 2, 0, 256},
                 {SlotKind::kValues, 0, 2, 0, 256},
                 {SlotKind::kConv, 1, 0, 3, 6144},
                 {SlotKind::kRecurrent, 1, 16, 128, 128}};
  const auto states = pool(large), others = other_pool(large);
  const auto from = std::move(*states->state(2100)), to = std::move(*others->state(2100));
  go_on(*states, *from, 2048, 7);
  ASSERT_TRUE(to->reaches(*from));
  to->begin_write(2048);
  const uint64_t calls = emulated_calls();
  for (size_t i = 0; i < 4; ++i) {
    const Dims dims = dims_at(from->shape().segments[i], 2048);
    const uint64_t most = (uint64_t{1} << 20) / row_bytes_of(from->shape().segments[i].dtype, dims[2]);
    for (uint64_t row = 0; row < dims[0] * dims[1];) {
      const uint64_t count = std::min(most, dims[0] * dims[1] - row);
      const auto values = from->view_first(i, {row, count});
      ASSERT_EQ(values.size(), count * row_bytes_of(from->shape().segments[i].dtype, dims[2]));
      ASSERT_TRUE(to->stage_copy(i, {row, count}, *from, row));
      ASSERT_TRUE(to->send());
      const auto back = to->sent_back();
      ASSERT_TRUE(back);
      ASSERT_EQ(std::memcmp(back->data(), values.data(), values.size()), 0);
      row += count;
    }
  }
  EXPECT_LE(emulated_calls() - calls, 2u * 100);
  ASSERT_TRUE(to->finish_write(true));
  EXPECT_TRUE(holds(*to, 7));
}

// A byte that changes between the cards is seen in what comes back, wherever it is.
TEST_F(CudaPeers, AForgedByteIsSeen) {
  Random random(8);
  const auto from = make(400);
  go_on(*from, 200, 7);
  uint64_t forged = 0;
  for (const char* function : {"copy_peer", "copy_rows_peer"}) {
    for (uint64_t nth = 1; nth < 200; nth += 3) {
      const auto to = there(400);
      emulated_fail({.function = function, .nth = nth, .damages = true});
      const Status brought = bring_all(*from, *to, random, 300);
      if (brought) {  // so many there are not
        EXPECT_TRUE(holds(*to, 7));
        break;
      }
      ++forged;
      EXPECT_EQ(brought.error().code, Code::kCorrupt);
    }
    emulated_reset();
  }
  EXPECT_GT(forged, 5u);
}

// That piece, and all behind it; the sender is as it was.
TEST_F(CudaPeers, ACopyThatFailsEndsTheWriting) {
  Random random(9);
  const auto from = make(400);
  go_on(*from, 200, 7);
  for (const char* function : {"copy_peer", "copy_rows_peer", "event_record", "stream_wait_event"}) {
    for (const bool later : {false, true}) {
      SCOPED_TRACE(function);
      const auto to = there(400);
      ASSERT_TRUE(to->reaches(*from));
      emulated_fail({.function = function, .nth = 2, .code = kNotSupported, .later = later});
      const Status brought = bring_all(*from, *to, random, 300);
      ASSERT_FALSE(brought);
      EXPECT_EQ(brought.error().code, Code::kDevice) << brought.error().message;
      emulated_reset();
      EXPECT_TRUE(holds(*from, 7));
    }
  }
  EXPECT_FALSE(other_card_->lost());
}

// Which of the two is lost shows: what the other does goes on.
TEST_F(CudaPeers, ALostSenderIsNotTheReceiversFault) {
  const auto memory = card_->allocate(256, "values"), there = other_card_->allocate(256, "values");
  auto stream = other_card_->stream();
  ASSERT_TRUE(*other_card_->reach(*card_));
  emulated_fail({.function = "memory_info", .code = kEccError, .lost = true});
  EXPECT_FALSE(card_->free_bytes());
  const Status copied = stream->copy_rows_from(*card_, there->address(), 64, memory->address(), 64, 32, 4);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, Code::kUnavailable);
  EXPECT_NE(copied.error().message.find("card 0 (emulated card): copying rows to card 1: 128 bytes"), std::string::npos)
      << copied.error().message;
  EXPECT_FALSE(other_card_->lost());
  EXPECT_TRUE(stream->zero(there->address(), 256));
  EXPECT_TRUE(stream->wait());
}
TEST_F(CudaPeers, ALostReceiverIsItsOwn) {
  const auto memory = card_->allocate(256, "values"), there = other_card_->allocate(256, "values");
  auto stream = other_card_->stream();
  emulated_fail({.function = "copy_peer", .code = kEccError, .lost = true});
  const Status copied = stream->copy_rows_from(*card_, there->address(), 64, memory->address(), 64, 64, 4);
  ASSERT_FALSE(copied);
  EXPECT_TRUE(other_card_->lost());
  EXPECT_FALSE(card_->lost());
}

// What a ferry is used for next comes from the host again.
TEST_F(CudaPeers, AFerryForgetsWhoseRowsItBrought) {
  Random random(10);
  auto from = make(400);
  const auto host = make(400), to = there(400);
  go_on(*from, 150, 7);
  go_on(*host, 150, 8);
  ASSERT_TRUE(bring_all(*from, *to, random, 5000));
  const auto next = there(400);
  next->begin_write(150);
  for (size_t i = 0; i < host->shape().segments.size(); ++i) {
    const std::vector<std::byte> all = read(*host, i);
    const Dims dims = dims_at(host->shape().segments[i], 150);
    const auto stage = next->stage(i, {0, dims[0] * dims[1]});
    ASSERT_TRUE(stage);
    std::memcpy(*stage, all.data(), all.size());
    ASSERT_TRUE(next->send());
    ASSERT_TRUE(next->sent_back());
  }
  ASSERT_TRUE(next->finish_write(true));
  EXPECT_TRUE(holds(*next, 8));
}

// Whose rows lie otherwise, who has no link or the same card.
TEST_F(CudaPeers, WhatIsNotReachedGoesThroughTheHost) {
  const auto from = make(400), to = there(400);
  EXPECT_TRUE(to->reaches(*from));
  EXPECT_TRUE(from->reaches(*to));
  EXPECT_FALSE(make(400)->reaches(*from));
  EXPECT_FALSE(std::move(*other_pool(keys_only())->state(400))->reaches(*from));
  emulated_set_peers(false);
  EXPECT_FALSE(to->reaches(*from));
  emulated_set_peers(true);
  emulated_fail({.function = "context_reach", .code = kNoMemory});
  EXPECT_FALSE(to->reaches(*from));
  EXPECT_TRUE(to->reaches(*from));
}

}  // namespace
}  // namespace baton::cuda
