// States of one executor in random order, by hand as the engine never uses them: prefilled, decoded together, forked,
// taken back and dropped, while another thread moves and drops others. Each must end with the logits that a state has
// that nobody else was beside, to the bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "baton/base/channel.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"
#include "baton/unit/unit.h"

namespace baton::test {

class StatePlay {
 public:
  static constexpr size_t kStates = 6;
  static constexpr uint64_t kKept = 16;  // tokens of a seat that keeps which have the bits of decoding

  // States of `other` are what those of `executor` are moved to. `seats`: that decode together with the bits that each
  // has alone.
  StatePlay(Executor& executor, Executor& other, uint64_t tokens_max, size_t seats, uint64_t seed)
      : executor_(executor), other_(other), tokens_max_(tokens_max), seats_(seats), random_(seed), porter_([this] {
          carry();
        }) {}
  ~StatePlay() {
    leaving_.close();
    porter_.join();
  }

  // Some of each kind, and all states are gone behind it but those that the porter still has.
  void run(int works) {
    for (int i = 0; i < works && !testing::Test::HasFailure(); ++i) {
      if (items_.size() < kStates / 2) {
        begin();
        continue;
      }
      const uint64_t kind = random_.below(16);
      if (kind == 0) begin();
      if (kind == 1) end(random_.below(items_.size()));
      if (kind == 2) drop();
      if (kind > 2 && kind < 6) fork();
      if (kind > 5 && kind < 9) rewind();
      if (kind > 8) decode();
    }
    while (!items_.empty()) end(items_.size() - 1);
  }
  uint64_t ended = 0, forks = 0, rewinds = 0;

 private:
  // What made a state, in calls of one seat.
  struct Call {
    std::vector<int32_t> tokens;
    bool decodes = false;
  };
  struct Item {
    std::unique_ptr<SequenceState> state;
    std::vector<Call> calls;
    uint64_t decoded() const {
      const auto other = std::find_if(calls.rbegin(), calls.rend(), [](const Call& call) { return !call.decodes; });
      return static_cast<uint64_t>(other - calls.rbegin());
    }
  };

  std::vector<int32_t> tokens(uint64_t count) {
    const auto vocab = static_cast<uint64_t>(executor_.model().program.vocab);
    std::vector<int32_t> made(count);
    for (int32_t& id : made) id = static_cast<int32_t>(random_.below(vocab));
    return made;
  }
  uint64_t room(const Item& item) const { return tokens_max_ - item.state->position(); }
  Item& any() { return items_[random_.below(items_.size())]; }

  void begin() {
    if (items_.size() >= kStates) return;
    auto state = executor_.new_state(tokens_max_);
    ASSERT_TRUE(state) << state.error().message;
    Item item{*std::move(state), {}};
    const std::vector<int32_t> ids = tokens(1 + random_.below(tokens_max_ / 3));
    const bool keeps = random_.below(2) == 0;
    const Seat seat = {.state = item.state.get(), .tokens = ids, .keeps = keeps};
    const Status done = executor_.step({&seat, 1}, {}, {});
    ASSERT_TRUE(done) << done.error().message;
    const size_t front = keeps ? ids.size() - std::min<size_t>(ids.size(), kKept) : ids.size();
    if (front > 0) item.calls.push_back({{ids.begin(), ids.begin() + static_cast<ptrdiff_t>(front)}});
    for (size_t i = front; i < ids.size(); ++i) item.calls.push_back({{ids[i]}, true});
    items_.push_back(std::move(item));
  }
  // A token for each of some, in one step.
  void decode() {
    std::vector<Item*> chosen;
    for (Item& item : items_) {
      if (chosen.size() < seats_ && room(item) > 1 && random_.below(3) > 0) chosen.push_back(&item);
    }
    if (chosen.empty()) return;
    std::vector<Seat> seats;
    for (Item* const item : chosen) {
      item->calls.push_back({tokens(1), true});
      seats.push_back({.state = item->state.get(),
                       .tokens = item->calls.back().tokens,
                       .rows_out = 1,
                       .decodes = true,
                       .keeps = random_.below(2) == 0});
    }
    std::vector<float> out(seats.size() * width());
    const Status done = executor_.step(seats, out, {});
    ASSERT_TRUE(done) << done.error().message;
  }
  void fork() {
    if (items_.size() >= kStates) return;
    const Item& from = any();
    const uint64_t back = std::min<uint64_t>(random_.below(4), from.decoded());
    auto state = executor_.fork(*from.state, from.state->position() - back);
    if (!state) {
      EXPECT_EQ(state.error().code, Code::kUnsupported) << state.error().message;
      EXPECT_GT(back, 0u);
      return;
    }
    ++forks;
    Item item{*std::move(state), {from.calls.begin(), from.calls.end() - static_cast<ptrdiff_t>(back)}};
    items_.push_back(std::move(item));
  }
  void rewind() {
    Item& item = any();
    const uint64_t back = std::min<uint64_t>(1 + random_.below(4), item.decoded());
    if (const Status done = executor_.rewind(*item.state, item.state->position() - back); !done) {
      EXPECT_EQ(done.error().code, Code::kUnsupported) << done.error().message;
      return;
    }
    rewinds += back > 0 ? 1 : 0;
    item.calls.resize(item.calls.size() - back);
  }
  void drop() {
    const size_t index = random_.below(items_.size());
    ASSERT_TRUE(leaving_.send(std::move(items_[index].state)));
    items_.erase(items_.begin() + static_cast<ptrdiff_t>(index));
  }
  // One more token, and all of it again by a state of its own.
  void end(size_t index) {
    Item item = std::move(items_[index]);
    items_.erase(items_.begin() + static_cast<ptrdiff_t>(index));
    const std::vector<int32_t> last = tokens(1);
    std::vector<float> row(width()), alone(width());
    Status done = executor_.decode(*item.state, last[0], row);
    ASSERT_TRUE(done) << done.error().message;
    auto state = executor_.new_state(tokens_max_);
    ASSERT_TRUE(state) << state.error().message;
    for (const Call& call : item.calls) {
      done =
          call.decodes ? executor_.decode(**state, call.tokens[0], alone) : executor_.prefill(**state, call.tokens, {});
      ASSERT_TRUE(done) << done.error().message;
    }
    done = executor_.decode(**state, last[0], alone);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(row, alone) << "of a state at " << (*state)->position() << " that others were beside";
    ++ended;
    ASSERT_TRUE(leaving_.send(std::move(item.state)));
  }
  size_t width() const { return static_cast<size_t>(executor_.model().program.output_width); }

  void carry() {
    for (bool moves = true; auto state = leaving_.receive(); moves = !moves) {
      if (!moves) continue;
      auto to = other_.new_state(tokens_max_);
      ASSERT_TRUE(to) << to.error().message;
      const auto moved = move_state(**state, **to);
      EXPECT_TRUE(moved) << moved.error().message;
    }
  }

  Executor &executor_, &other_;
  const uint64_t tokens_max_;
  const size_t seats_;
  Random random_;
  std::vector<Item> items_;
  Channel<std::unique_ptr<SequenceState>> leaving_{kStates};
  std::thread porter_;
};

}  // namespace baton::test
