// Hand-overs between two emulated cards: without the host where they reach each other, whole or layer by layer; what
// fails or is forged on the way is one request's, and nothing is left on either card.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/engine.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "tests/support/card_memory.h"
#include "tests/support/golden.h"
#include "tests/support/state_values.h"

namespace baton::test {
namespace {

using cuda::EmulatedFault;

constexpr uint64_t kContext = 256;
constexpr uint32_t kAnswerTokens = 6;

struct Outcome {
  std::vector<int32_t> ids;
  FinishedEvent finished;
  const BridgeStats& bridge() const { return finished.stats.bridge; }
  bool whole() const { return finished.reason == FinishReason::kLength && ids.size() == kAnswerTokens; }
  std::string said() const { return finished.stats.fallback + "\n" + finished.error.message; }
  bool says(std::string_view what) const { return said().find(what) != std::string::npos; }
};

class CudaPeers : public testing::Test {
 protected:
  void SetUp() override {
    cuda::emulated_reset();
    auto model = load_model(data_folder() / "golden" / "tiny-qwen3.5");
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    for (int device : {0, 1}) {
      auto unit = create_unit(fmt::format("cuda:driver=emulated,device={}", device));
      ASSERT_TRUE(unit) << unit.error().message;
      units_.push_back(std::move(*unit));
      auto card = units_.back()->load(model_, 1);
      ASSERT_TRUE(card) << card.error().message;
      cards_.push_back(std::move(*card));
    }
    Random random(4);
    for (size_t i = 0; i < 140; ++i)
      tokens_.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(model_->program.vocab))));
  }
  void TearDown() override {
    engine_.reset();
    cards_.clear();
    units_.clear();
    EXPECT_EQ(cuda::emulated_misuse(), "");
    EXPECT_TRUE(cuda::emulated_use() == cuda::EmulatedUse());
    cuda::emulated_reset();
  }

  void start() {
    EngineOptions options;
    options.units = {{"cuda", &units_[0]->caps(), cards_[0].get()}, {"cuda:1", &units_[1]->caps(), cards_[1].get()}};
    options.limits.tokens_max = kContext;
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  // No state is left on either.
  void expect_nothing_held() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (engine_->usage().requests + engine_->usage().states > 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine_->usage().state_bytes, 0u);
    for (const auto& card : cards_) EXPECT_EQ(card->state_memory()->bytes, 0u);
  }
  Ticket submit(std::string_view strategy, const char* prefill = "cuda", const char* decode = "cuda:1",
                VerifyMode verify = VerifyMode::kOff) {
    Request request;
    request.tokens = tokens_;
    request.max_new_tokens = kAnswerTokens;
    request.ignore_eos = true;
    request.prefill_unit = prefill;
    request.decode_unit = decode;
    request.strategy = strategy;
    request.verify = verify;
    ProofBounds bounds;  // zero: the bits
    bounds.segments.resize(model_->program.slots.size());
    request.move_bounds = bounds;
    auto ticket = engine_->submit(std::move(request));
    EXPECT_TRUE(ticket) << ticket.error().message;
    return std::move(*ticket);
  }
  static Outcome read(Ticket ticket) {
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
      return outcome;
    }
  }

  std::unique_ptr<SequenceState> filled(size_t card, size_t count) {
    auto state = cards_[card]->new_state(kContext);
    BATON_CHECK(state);
    BATON_CHECK(cards_[card]->prefill(**state, std::span(tokens_).first(count), {}));
    return std::move(*state);
  }

  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Executor>> cards_;
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> tokens_;
};

// By a crew and without, and as it went before: the same bytes.
TEST_F(CudaPeers, AStateIsTheSameEitherWay) {
  Crew crew(3);
  for (const size_t count : {1u, 64u, 70u, 140u}) {
    const auto from = filled(0, count);
    for (const bool reach : {true, false}) {
      for (Crew* const with : {&crew, static_cast<Crew*>(nullptr)}) {
        cuda::emulated_set_peers(reach);
        const uint64_t before = cuda::emulated_peer_bytes();
        const auto to = cards_[1]->new_state(kContext).value();
        const auto moved = move_state(*from, *to, with);
        ASSERT_TRUE(moved) << moved.error().message;
        EXPECT_EQ(moved->bytes, section_bytes(from->shape(), count));
        EXPECT_EQ(moved->peer_bytes, reach ? moved->bytes : 0);
        EXPECT_EQ(cuda::emulated_peer_bytes() - before > 0, reach);
        EXPECT_EQ(state_bytes(*to), state_bytes(*from));
      }
    }
  }
}

// Whole and layer by layer, both ways, with the proof and without; and what was taken is said.
TEST_F(CudaPeers, AnswersAreThoseOfOneCard) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Outcome alone = read(submit("single", "cuda", "cuda"));
  ASSERT_TRUE(alone.whole()) << alone.said();
  EXPECT_EQ(alone.bridge().peer_bytes, 0u);
  for (const bool reach : {true, false}) {
    cuda::emulated_set_peers(reach);
    for (const char* strategy : {"handoff", "overlap"}) {
      for (const bool back : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", strategy, reach, back));
        const Outcome outcome = read(submit(strategy, back ? "cuda:1" : "cuda", back ? "cuda" : "cuda:1",
                                            back ? VerifyMode::kOff : VerifyMode::kAll));
        EXPECT_EQ(outcome.ids, alone.ids) << outcome.said();
        EXPECT_EQ(outcome.finished.stats.fallback, "");
        EXPECT_EQ(outcome.bridge().kind, BridgeKind::kMove);
        EXPECT_EQ(outcome.bridge().bytes, section_bytes(filled(0, 1)->shape(), tokens_.size() - 1));
        EXPECT_EQ(outcome.bridge().peer_bytes, reach ? outcome.bridge().bytes : 0);
        EXPECT_TRUE(outcome.bridge().verified);
        EXPECT_FALSE(outcome.bridge().proof_failed);
      }
    }
  }
  const Outcome relay = [&] {
    Request request;
    request.tokens = tokens_;
    request.max_new_tokens = kAnswerTokens;
    request.ignore_eos = true;
    request.prefill_unit = request.decode_unit = "cuda";
    request.via_unit = "cuda:1";
    request.strategy = "relay";
    cuda::emulated_set_peers(true);
    return read(*engine_->submit(std::move(request)));
  }();
  EXPECT_EQ(relay.ids, alone.ids) << relay.said();
  EXPECT_EQ(relay.bridge().peer_bytes, relay.bridge().bytes);
  expect_nothing_held();
}

// Whichever copy it is: the state is dropped, the decode unit makes its own, and says why.
TEST_F(CudaPeers, AForgedByteIsNotDecodedFrom) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Outcome alone = read(submit("single", "cuda", "cuda"));
  for (const char* strategy : {"handoff", "overlap"}) {
    int forged = 0;
    for (const char* function : {"copy_peer", "copy_rows_peer"}) {
      for (uint64_t nth = 1; nth < 12; ++nth) {
        SCOPED_TRACE(fmt::format("{} {} {}", strategy, function, nth));
        cuda::emulated_reset();
        cuda::emulated_fail({.function = function, .nth = nth, .damages = true});
        const Outcome outcome = read(submit(strategy, "cuda", "cuda:1", VerifyMode::kAll));
        EXPECT_EQ(outcome.ids, alone.ids) << outcome.said();
        if (outcome.finished.stats.fallback.empty()) {  // so many copies there are not: all is right
          EXPECT_TRUE(outcome.bridge().verified);
          break;
        }
        EXPECT_TRUE(outcome.says("do not come back as they were written")) << outcome.said();
        ++forged;
      }
    }
    EXPECT_GT(forged, 5);
    expect_nothing_held();
  }
}

// A copy that fails, of one of several at once: that one falls back, the rest know nothing of it.
TEST_F(CudaPeers, ACopyThatFailsIsOneRequests) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Outcome alone = read(submit("single", "cuda", "cuda"));
  int hit = 0;
  for (const char* function : {"copy_peer", "copy_rows_peer", "stream_wait_event", "event_record"}) {
    for (const uint64_t nth : {1, 4, 9}) {
      for (const char* strategy : {"handoff", "overlap"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", strategy, function, nth));
        cuda::emulated_reset();
        cuda::emulated_fail({.function = function, .nth = nth, .code = cuda::kInvalidValue});
        std::vector<Ticket> tickets;
        for (int i = 0; i < 3; ++i) tickets.push_back(submit(strategy));
        tickets.push_back(submit("single", "cuda:1", "cuda:1"));
        int failed = 0;
        for (Ticket& ticket : tickets) {
          const Outcome outcome = read(std::move(ticket));
          failed += outcome.says("CUDA_ERROR_INVALID_VALUE") ? 1 : 0;
          if (outcome.finished.reason == FinishReason::kError) continue;
          EXPECT_EQ(outcome.ids, alone.ids) << outcome.said();
        }
        EXPECT_LE(failed, 1);
        hit += failed;
      }
    }
  }
  EXPECT_GT(hit, 8);
  cuda::emulated_reset();
  expect_nothing_held();
  const Outcome last = read(submit("handoff"));
  EXPECT_EQ(last.ids, alone.ids);
  EXPECT_EQ(last.finished.stats.fallback, "");
}

// The sender's card, amid a hand-over: the receiver's goes on.
TEST_F(CudaPeers, ALostSenderTakesNoReceiverWithIt) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Outcome alone = read(submit("single", "cuda:1", "cuda:1"));
  cuda::emulated_fail({.function = "launch", .nth = 5, .code = cuda::kEccError, .lost = true});
  const Outcome outcome = read(submit("overlap"));
  EXPECT_EQ(outcome.ids, alone.ids) << outcome.said();
  EXPECT_TRUE(outcome.says("CUDA_ERROR_ECC_UNCORRECTABLE")) << outcome.said();
  EXPECT_EQ(read(submit("single", "cuda:1", "cuda:1")).ids, alone.ids);
  cuda::emulated_reset();
}

// What is no number goes nowhere, card to card too.
TEST_F(CudaPeers, WhatIsNoNumberIsFound) {
  const auto from = filled(0, 140);
  for (size_t segment = 0; segment < from->shape().segments.size(); ++segment) {
    const auto spoilt = cards_[0]->new_state(kContext).value();
    spoilt->begin_write(140);
    for (size_t i = 0; i < from->shape().segments.size(); ++i) {
      std::vector<std::byte> rows = segment_bytes(*from, i);
      const Segment& of = from->shape().segments[i];
      if (i == segment) spoil_end(of, rows);
      ASSERT_TRUE(spoilt->write(i, {0, rows.size() / row_bytes_of(of.dtype, of.dims[2])}, rows.data()));
    }
    ASSERT_TRUE(spoilt->finish_write());
    const auto to = cards_[1]->new_state(kContext).value();
    const auto moved = move_state(*spoilt, *to);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, Code::kCorrupt) << moved.error().message;
    EXPECT_EQ(to->position(), 0u);
  }
}

}  // namespace
}  // namespace baton::test
