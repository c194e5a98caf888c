// What unit.h and sequence_state.h promise of states and steps, on every unit: held to it by its interface alone.
#include <gtest/gtest.h>
#include <array>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

struct ContractCase {
  std::string unit, model;
};
void PrintTo(const ContractCase& item, std::ostream* out) { *out << item.model << " on " << item.unit; }

std::vector<ContractCase> cases() {
  std::vector<ContractCase> all;
  for (const UnitEntry* entry : unit_entries()) {
    for (const char* model : {"tiny-qwen3.5", "tiny-llama"}) all.push_back({std::string(entry->name), model});
  }
  for (const std::string& unit : kv_units()) all.push_back({unit, "tiny-qwen3.5"});
  return all;
}

class Contract : public testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override {
    auto unit = create_test_unit(GetParam().unit);
    if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
    ASSERT_TRUE(unit) << unit.error().message;
    unit_ = std::move(*unit);
    auto model = load_model(data_folder() / "golden" / GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    executor_ = load();
    width_ = static_cast<size_t>(model_->program.output_width);
    decodes_ = unit_->caps().decode_seats_max > 0;
  }
  std::unique_ptr<Executor> load() {
    auto executor = unit_->load(model_, 2);
    EXPECT_TRUE(executor) << executor.error().message;
    return std::move(*executor);
  }
  std::unique_ptr<SequenceState> state(uint64_t tokens) {
    auto made = executor_->new_state(tokens);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::vector<int32_t> tokens(size_t count, int32_t first) const {
    std::vector<int32_t> made(count);
    for (size_t i = 0; i < count; ++i) made[i] = (first + static_cast<int32_t>(i * 7)) % model_->program.vocab;
    return made;
  }
  // A prompt and a few decodes (prefills, of who does not decode); the rows of all that came behind the prompt.
  std::vector<float> go_on(SequenceState& at, int32_t first) {
    std::vector<float> rows(4 * width_, std::nanf(""));
    const std::vector<int32_t> more = tokens(3, first), last = tokens(1, first + 5);
    const auto last_row = std::span(rows).last(width_);
    Status status = executor_->prefill(at, more, std::span(rows).first(3 * width_));
    EXPECT_TRUE(status) << status.error().message;
    status = decodes_ ? executor_->decode(at, last[0], last_row) : executor_->prefill(at, last, last_row);
    EXPECT_TRUE(status) << status.error().message;
    for (const float value : rows) EXPECT_TRUE(std::isfinite(value));
    return rows;
  }
  // Fills `to` with what `from` holds, the last segment first, in pieces of a few rows; the last of `spoilt` is no
  // number.
  static void copy(const SequenceState& from, SequenceState& to, std::optional<size_t> spoilt = std::nullopt) {
    to.begin_write(from.position());
    for (size_t i = from.shape().segments.size(); i-- > 0;) {
      const Segment& segment = from.shape().segments[i];
      const Dims dims = dims_at(segment, from.position());
      for (uint64_t row = 0; row < dims[0] * dims[1];) {
        const uint64_t count = std::min<uint64_t>(dims[0] * dims[1] - row, 1 + row % 4);
        std::vector<std::byte> bytes(count * row_bytes_of(segment.dtype, dims[2]), std::byte{0xff});
        ASSERT_TRUE(from.read(i, {row, count}, bytes.data()));
        if (i == spoilt && row + count == dims[0] * dims[1]) spoil_end(segment, bytes);
        ASSERT_TRUE(to.write(i, {row, count}, bytes.data()));
        row += count;
      }
    }
    ASSERT_TRUE(to.finish_write());
  }

  std::unique_ptr<Unit> unit_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Executor> executor_;
  size_t width_ = 0;
  bool decodes_ = false;
};
INSTANTIATE_TEST_SUITE_P(Units, Contract, testing::ValuesIn(cases()),
                         [](const auto& item) { return test_name(item.param.unit + "_" + item.param.model); });

// One that is filled with another's rows goes on as that one: nothing is remembered beside them. So does one whose
// memory an earlier sequence had.
TEST_P(Contract, AStateIsWhatItsRowsSay) {
  for (const size_t length : {size_t{1}, size_t{37}, size_t{150}}) {
    SCOPED_TRACE(fmt::format("{} tokens", length));
    const auto whole = state(length + 4), filled = state(length + 9);
    ASSERT_TRUE(executor_->prefill(*whole, tokens(length, 3), {}));
    ASSERT_NO_FATAL_FAILURE(copy(*whole, *filled));
    ASSERT_EQ(filled->position(), length);
    EXPECT_EQ(state_bytes(*filled), state_bytes(*whole));
    EXPECT_EQ(go_on(*filled, 8), go_on(*whole, 8));
    EXPECT_EQ(state_bytes(*filled), state_bytes(*whole));
  }
}

// Where several threads may write at once, each rows of its own, or stage them: the same state.
TEST_P(Contract, SharedWritesAndStagesGiveTheSameState) {
  const auto whole = state(154), shared = state(160), staged = state(160);
  ASSERT_TRUE(executor_->prefill(*whole, tokens(150, 3), {}));
  const auto for_rows = [&](auto visit) {
    for (size_t i = 0; i < whole->shape().segments.size(); ++i) {
      const Segment& segment = whole->shape().segments[i];
      const Dims dims = dims_at(segment, 150);
      for (uint64_t row = 0; row < dims[0] * dims[1]; row += 3) {
        const RowRange rows{row, std::min<uint64_t>(3, dims[0] * dims[1] - row)};
        visit(i, rows, rows.count * row_bytes_of(segment.dtype, dims[2]));
      }
    }
  };
  std::map<std::pair<size_t, uint64_t>, std::vector<std::byte>> values;
  for_rows([&](size_t i, RowRange rows, uint64_t bytes) {
    auto& here = values[{i, rows.first}];
    here.resize(bytes);
    ASSERT_TRUE(whole->read(i, rows, here.data()));
  });
  shared->begin_write(150);
  const auto shares = shared->share_writes();
  ASSERT_TRUE(shares) << shares.error().message;
  if (*shares) {
    EXPECT_EQ(shared->bytes(), whole->bytes());  // all memory is there
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for_rows([&](size_t i, RowRange rows, uint64_t bytes) {
          if (rows.first / 3 % 4 != thread) return;
          const auto& here = values.at({i, rows.first});
          std::vector<std::byte> back(bytes);
          EXPECT_TRUE(shared->write(i, rows, here.data()));
          EXPECT_TRUE(shared->read(i, rows, back.data()));
          EXPECT_EQ(back, here);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(shared->finish_write());
    EXPECT_EQ(state_bytes(*shared), state_bytes(*whole));
  }
  if (staged->stages() > 0) {
    staged->begin_write(150);
    for_rows([&](size_t i, RowRange rows, uint64_t bytes) {
      const auto& here = values.at({i, rows.first});
      const auto place = staged->stage(i, rows);
      ASSERT_TRUE(place) << place.error().message;
      std::copy(here.begin(), here.end(), *place);
      ASSERT_TRUE(staged->send());
      const auto back = staged->sent_back();
      ASSERT_TRUE(back);
      EXPECT_TRUE(back->size() == bytes && std::equal(here.begin(), here.end(), back->begin()));
    });
    ASSERT_TRUE(staged->finish_write());
    EXPECT_EQ(state_bytes(*staged), state_bytes(*whole));
  }
}

// The unit's own executor twice, as for two sets of cores: where its states have memory alike, what changed hands goes
// on with the same bits on the other, and the source is as new.
TEST_P(Contract, AnAdoptedStateGoesOnAsTheOther) {
  std::unique_ptr<Executor> second = load();
  const auto whole = state(154), from = state(154);
  auto made = second->new_state(170);
  ASSERT_TRUE(made) << made.error().message;
  std::unique_ptr<SequenceState> to = std::move(*made);
  if (!to->can_adopt(*from)) {
    EXPECT_FALSE(to->adopt(*from));
    GTEST_SKIP() << "memory of its own";
  }
  for (SequenceState* each : {whole.get(), from.get()}) ASSERT_TRUE(executor_->prefill(*each, tokens(150, 3), {}));
  const uint64_t bytes = from->bytes();
  const auto before = executor_->state_memory();
  ASSERT_TRUE(to->adopt(*from));
  EXPECT_EQ(to->position(), 150u);
  EXPECT_EQ(from->position(), 0u);
  EXPECT_EQ(to->bytes(), bytes);
  if (before) {
    EXPECT_EQ(executor_->state_memory()->bytes, before->bytes - bytes + from->bytes());
    EXPECT_EQ(second->state_memory()->bytes, bytes);
  }
  EXPECT_EQ(state_bytes(*to), state_bytes(*whole));
  std::swap(executor_, second);
  const std::vector<float> got = go_on(*to, 8);
  std::swap(executor_, second);
  EXPECT_EQ(got, go_on(*whole, 8));
  EXPECT_EQ(state_bytes(*to), state_bytes(*whole));
  // As new.
  const auto never = state(154);
  EXPECT_EQ(go_on(*from, 5), go_on(*never, 5));
  to.reset();
}

// Where checkpoints cut a prompt does not show, of units that say so.
TEST_P(Contract, CutsAtMultiplesOf64DoNotShow) {
  if (!unit_->caps().pieces_exact) GTEST_SKIP() << "another cut takes another program";
  const auto whole = state(210), cut = state(210);
  const std::vector<int32_t> all = tokens(205, 3);
  ASSERT_TRUE(executor_->prefill(*whole, all, {}));
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 64}, {64, 192}, {192, 205}})
    ASSERT_TRUE(executor_->prefill(*cut, std::span(all).subspan(from, to - from), {}));
  EXPECT_EQ(state_bytes(*cut), state_bytes(*whole));
}

// A value that is no number is found in whichever segment, at once and layer by layer; nothing changes hands then.
TEST_P(Contract, AdoptionsAreSearched) {
  const std::unique_ptr<Executor> second = load();
  for (size_t segment = 0; segment <= executor_->shape().segments.size(); ++segment) {
    const auto good = state(90), bad = state(90);
    ASSERT_TRUE(executor_->prefill(*good, tokens(70, 3), {}));
    ASSERT_NO_FATAL_FAILURE(copy(*good, *bad, segment));
    const bool well = segment == executor_->shape().segments.size();
    for (const bool streamed : {false, true}) {
      const auto to = std::move(*second->new_state(90));
      if (!to->can_adopt(*bad)) GTEST_SKIP() << "memory of its own";
      Result<MoveReport> report;
      if (streamed) {
        auto stream = StateStream::begin(*bad, *to, 70, StreamSource::kGoes);
        ASSERT_TRUE(stream) << stream.error().message;
        Status status = (*stream)->move(*bad, 70, std::array{1});
        if (status) status = (*stream)->finish(*bad);
        report = (*stream)->report();
        if (!status) report = fail(std::move(status).error());
      } else {
        report = hand_over_state(*bad, *to);
      }
      ASSERT_EQ(report.has_value(), well) << segment;
      EXPECT_EQ(to->position(), well ? 70u : 0u);
      if (well) {
        EXPECT_TRUE(report->adopted);
        EXPECT_EQ(report->bytes, 0u);
        EXPECT_EQ(state_bytes(*to), state_bytes(*good));
        ASSERT_TRUE(bad->adopt(*to));
        continue;
      }
      EXPECT_EQ(report.error().code, Code::kCorrupt);
      const Segment& named = executor_->shape().segments[segment];
      EXPECT_NE(report.error().message.find(segment_name(named.kind, named.layer)), std::string::npos)
          << report.error().message;
      EXPECT_EQ(bad->position(), 70u);
    }
  }
}

// A unit may look at what its steps write; then what the model itself makes no number of is found. Of what it does not
// look at it says nothing.
TEST_P(Contract, WhatItSearchedIsNumbers) {
  const auto well = state(90);
  EXPECT_TRUE(well->searched());
  ASSERT_TRUE(executor_->prefill(*well, tokens(70, 3), {}));
  const bool searches = well->searched();
  EXPECT_EQ(searches, GetParam().unit.starts_with("cpu") || GetParam().unit == "ane");
  EXPECT_EQ((*executor_->fork(*well, 70))->searched(), searches);
  if (decodes_) {
    std::vector<float> row(width_);
    ASSERT_TRUE(executor_->decode(*well, 1, row));
    EXPECT_FALSE(well->searched());
  }
  const auto filled = state(90);
  ASSERT_NO_FATAL_FAILURE(copy(*well, *filled));
  EXPECT_FALSE(filled->searched());
  ASSERT_TRUE(executor_->prefill(*filled, tokens(3, 3), {}));
  EXPECT_FALSE(filled->searched());

  // The last id of the vocabulary has no numbers.
  const auto forged = load_model(data_folder() / "golden" / GetParam().model);
  ASSERT_TRUE(forged);
  Model& model = const_cast<Model&>(**forged);
  for (const Op& op : model.program.ops) {
    if (op.kind != OpKind::kEmbed) continue;
    Weight& table = model.weights[static_cast<size_t>(op.weights[Op::kMatrix])];
    auto bytes = std::make_unique<std::byte[]>(table.bytes);
    std::copy_n(table.data, table.bytes, bytes.get());
    const size_t row = table.bytes / static_cast<size_t>(table.rows);
    std::fill_n(bytes.get() + table.bytes - row, row, std::byte{0xff});
    table.data = bytes.get();
    model.owned.push_back(std::move(bytes));
  }
  const auto unit = std::move(*create_test_unit(GetParam().unit));
  const auto first = unit->load(*forged, 2), second = unit->load(*forged, 2);
  const bool looks_itself = GetParam().unit == "ane";  // and ends the load or the step
  ASSERT_TRUE(looks_itself || (first && second));
  if (!first || !second) return;
  std::vector<int32_t> ids = tokens(70, 3);
  ids.back() = model.program.vocab - 1;
  const auto bad = std::move(*(*first)->new_state(90)), to = std::move(*(*second)->new_state(90));
  const Status made = (*first)->prefill(*bad, ids, {});
  ASSERT_TRUE(looks_itself || made);
  if (!made) return;
  EXPECT_FALSE(bad->searched());
  EXPECT_EQ(hand_over_state(*bad, *to).error().code, Code::kCorrupt);
}

TEST_P(Contract, AForkIsAStateOfItsOwn) {
  const auto from = state(60), never = state(60);
  for (SequenceState* each : {from.get(), never.get()}) ASSERT_TRUE(executor_->prefill(*each, tokens(40, 3), {}));
  auto copy = executor_->fork(*from, 40);
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ((*copy)->tokens_max(), 60u);
  const auto before = state_bytes(*from);
  EXPECT_EQ(state_bytes(**copy), before);
  const auto other = go_on(**copy, 21);
  EXPECT_EQ(state_bytes(*from), before);
  const auto rows = go_on(*from, 8);
  EXPECT_NE(rows, other);
  EXPECT_EQ(rows, go_on(*never, 8));
  EXPECT_EQ(state_bytes(*from), state_bytes(*never));
}

// Seats of many sizes, one longer than a pass of any unit, with some rows each: in the order of the seats, and no other
// place of `out` is written.
TEST_P(Contract, RowsLieWhereTheSeatsSay) {
  const std::vector<std::pair<size_t, uint32_t>> sizes = {{5, 2}, {300, 3}, {1, 1}, {17, 0}, {64, 1}};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<Seat> seats;
  size_t rows = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    prompts.push_back(tokens(sizes[i].first, static_cast<int32_t>(3 + 11 * i)));
    states.push_back(state(sizes[i].first + 2));
    rows += sizes[i].second;
  }
  for (size_t i = 0; i < sizes.size(); ++i) seats.push_back({states[i].get(), prompts[i], sizes[i].second});
  constexpr float kBeside = 12345;
  std::vector<float> all((rows + 2) * width_, kBeside);
  const auto out = std::span(all).subspan(width_, rows * width_);
  std::fill(out.begin(), out.end(), std::nanf(""));
  const Status stepped = executor_->step(seats, out, {});
  ASSERT_TRUE(stepped) << stepped.error().message;
  const float allowed = unit_->caps().shared_prefills_exact ? 0.0f : logit_tolerance_of(*unit_, *model_);
  size_t row = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    SCOPED_TRACE(fmt::format("seat {}", i));
    EXPECT_EQ(states[i]->position(), sizes[i].first);
    const auto alone = state(sizes[i].first + 2);
    std::vector<float> wanted(sizes[i].second * width_, std::nanf(""));
    ASSERT_TRUE(executor_->prefill(*alone, prompts[i], wanted));
    EXPECT_LE(max_abs_difference(out.subspan(row * width_, wanted.size()), wanted), allowed);
    row += sizes[i].second;
  }
  for (size_t i = 0; i < width_; ++i) ASSERT_TRUE(all[i] == kBeside && all[all.size() - 1 - i] == kBeside);
}

TEST_P(Contract, ACancelledStepSaysSo) {
  const std::atomic<bool> cancelled = true;
  const auto at = state(700);
  const std::vector<int32_t> prompt = tokens(700, 3);
  const Seat seat{at.get(), prompt};
  const Status status = executor_->step({&seat, 1}, {}, {.cancelled = &cancelled});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
}

// Found before any seat has run, be the one that cannot the last; what is wrong with it, and with which, is said.
TEST_P(Contract, ARefusedSeatChangesNothing) {
  const auto sound = state(10), other = state(4), never = state(10);
  const std::vector<int32_t> prompt = tokens(5, 3), bad = {1, model_->program.vocab}, negative = {-1};
  for (SequenceState* each : {sound.get(), never.get()}) ASSERT_TRUE(executor_->prefill(*each, prompt, {}));
  const auto refused = [&](std::span<const int32_t> ids, Code code) {
    const Seat seats[] = {{sound.get(), prompt}, {other.get(), ids}};
    const Status status = executor_->step(seats, {}, {});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_NE(status.error().message.find("sequence 1"), std::string::npos) << status.error().message;
    EXPECT_EQ(sound->position(), 5u);
    EXPECT_EQ(other->position(), 0u);
    EXPECT_EQ(state_bytes(*sound), state_bytes(*never));
  };
  refused(bad, Code::kInvalidInput);
  refused(negative, Code::kInvalidInput);
  refused(prompt, Code::kOutOfMemory);  // five tokens into a state of four
  EXPECT_EQ(go_on(*sound, 8), go_on(*never, 8));
}

// A request is admitted by what is told before: states of all sizes, fresh and of memory that others had, take no more.
TEST_P(Contract, BytesAreToldBeforeAndBehind) {
  for (const uint64_t length : {4096, 1, 33, 2500, 512, 2049, 4095, 100, 4096}) {
    SCOPED_TRACE(fmt::format("{} tokens", length));
    const uint64_t told = executor_->state_bytes(length);
    EXPECT_GE(told, section_bytes(executor_->shape(), length));
    EXPECT_LE(told, section_bytes(executor_->shape(), length) * 5 / 4 + 65536);
    const auto at = state(length);
    EXPECT_LE(at->bytes(), told);
    ASSERT_TRUE(executor_->prefill(*at, tokens(std::min<size_t>(length, 40), 3), {}));
    EXPECT_LE(at->bytes(), told);
    const uint64_t holds = unit_->caps().states_grow ? at->position() : length;
    EXPECT_LE(at->bytes(), executor_->state_bytes(holds));
    EXPECT_GE(at->bytes(), section_bytes(at->shape(), at->position()));
  }
  EXPECT_EQ(executor_->state_bytes(uint64_t{1} << 62), UINT64_MAX);
  const auto none = executor_->new_state(uint64_t{1} << 62);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kOutOfMemory);
  EXPECT_EQ(none.error().message.rfind(unit_->name(), 0), 0u) << none.error().message;
}

// States that begin, share a beginning, are filled, go on, go back, are cancelled and end, in any order. What they hold
// together is never more than what was reserved before: of each, for the tokens that it was to hold. Nothing is left.
class Mix {
 public:
  Mix(Executor& executor, const Caps& caps, uint64_t seed) : executor_(executor), caps_(caps), random_(seed) {}

  void turn(const std::function<void(const SequenceState&, SequenceState&)>& copy) {
    const size_t kind = random_.below(7);
    if (all_.empty() || (kind == 0 && all_.size() < 6)) return begin(1 + random_.below(200));
    const size_t which = random_.below(all_.size());
    Held& held = all_[which];
    SequenceState& state = *held.state;
    const uint64_t at = state.position();
    if (kind == 1 && all_.size() < 6) {
      const uint64_t reserved = reserve(at, state.tokens_max());
      auto forked = executor_.fork(state, at - (at > 0 ? random_.below(2) : 0));
      if (!forked) return release(reserved);
      all_.push_back({std::move(*forked), reserved});
    } else if (kind == 2 && all_.size() < 6) {
      begin(state.tokens_max());
      reserve_again(all_.back(), at);
      copy(*all_[which].state, *all_.back().state);
    } else if (kind == 3) {
      end(which);
    } else if (kind == 4 && caps_.rewind_tokens_max > 0) {
      if (executor_.rewind(state, random_.below(at + 1))) reserve_again(held, state.position());
    } else if (at < state.tokens_max()) {
      step(which, 1 + random_.below(std::min<uint64_t>(90, state.tokens_max() - at)));
    }
  }
  void end(size_t which) {
    all_[which].state.reset();
    release(all_[which].reserved);
    all_.erase(all_.begin() + static_cast<ptrdiff_t>(which));
  }
  void end_all() {
    while (!all_.empty()) end(random_.below(all_.size()));
  }
  uint64_t reserved() const { return reserved_; }
  uint64_t most() const { return most_; }
  uint64_t held() const {
    uint64_t sum = 0;
    for (const Held& each : all_) sum += each.state->bytes();
    return sum;
  }

 private:
  struct Held {
    std::unique_ptr<SequenceState> state;
    uint64_t reserved;
  };

  uint64_t reserve(uint64_t tokens, uint64_t tokens_max) {
    const uint64_t bytes = executor_.state_bytes(caps_.states_grow ? tokens : tokens_max);
    reserved_ += bytes;
    most_ = std::max(most_, reserved_);
    return bytes;
  }
  void release(uint64_t bytes) { reserved_ -= bytes; }
  void reserve_again(Held& held, uint64_t tokens) {
    release(held.reserved);
    held.reserved = reserve(tokens, held.state->tokens_max());
  }
  void begin(uint64_t tokens_max) {
    const uint64_t reserved = reserve(0, tokens_max);
    auto made = executor_.new_state(tokens_max);
    ASSERT_TRUE(made) << made.error().message;
    all_.push_back({std::move(*made), reserved});
  }
  void step(size_t which, uint64_t count) {
    Held& held = all_[which];
    const std::atomic<bool> cancelled = random_.below(8) == 0;
    const bool decodes = caps_.decode_seats_max > 0 && random_.below(2) == 0;
    const std::vector<int32_t> ids(decodes ? 1 : count, 3);
    reserve_again(held, held.state->position() + ids.size());
    const Seat seat{held.state.get(), ids, 0, decodes, false, nullptr};
    if (executor_.step({&seat, 1}, {}, {.cancelled = &cancelled})) return;
    EXPECT_TRUE(cancelled);
    EXPECT_LE(held.state->bytes(), held.reserved);
    end(which);
  }

  Executor& executor_;
  const Caps& caps_;
  Random random_;
  std::vector<Held> all_;
  uint64_t reserved_ = 0, most_ = 0;
};

TEST_P(Contract, MemoryStaysWithinWhatIsReservedAndReturns) {
  if (!executor_->state_memory()) GTEST_SKIP() << "does not tell what its states take";
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto fresh = load();
    Mix mix(*fresh, unit_->caps(), seed);
    for (int turn = 0; turn < (smoke_run() ? 40 : 150); ++turn) {
      SCOPED_TRACE(fmt::format("turn {}", turn));
      mix.turn([](const SequenceState& from, SequenceState& to) { copy(from, to); });
      ASSERT_FALSE(HasFatalFailure());
      const StateMemory memory = *fresh->state_memory();
      ASSERT_LE(mix.held(), mix.reserved());
      ASSERT_LE(memory.bytes, mix.held());
      ASSERT_LE(memory.most, mix.most());
    }
    mix.end_all();
    EXPECT_EQ(fresh->state_memory()->bytes, 0u);
    EXPECT_GT(fresh->state_memory()->most, 0u);
  }
}

// How a sequence leaves its memory behind, but for a state that only stepped.
class ContractMemory : public Contract {
 protected:
  enum Left { kForked, kFilled, kKept };
  static constexpr uint64_t kHeld = 55, kRoomMax = 120;

  // The bytes of the memory that it left; 0: none. `beside`: what stays, so that nothing else is left.
  uint64_t leave(Left how, uint64_t room, std::unique_ptr<SequenceState>* beside) {
    std::unique_ptr<SequenceState> at = state(room);
    if (how == kFilled) {
      copy(*whole_, *at);
      return executor_->state_bytes(room);
    }
    if (how == kForked) {
      EXPECT_TRUE(executor_->prefill(*at, tokens(kHeld, 90), {}));
      EXPECT_TRUE(executor_->fork(*at, kHeld));
      *beside = std::move(at);
      return executor_->state_bytes(room);
    }
    const std::vector<int32_t> ids = tokens(16, 90);
    Seat seat{at.get(), ids};
    seat.keeps = unit_->caps().rewind_tokens_max > 0;
    EXPECT_TRUE(executor_->step({&seat, 1}, {}, {}));
    return at->bytes() - std::min(at->bytes(), executor_->state_bytes(room));
  }
  // For states of just these bytes.
  std::vector<uint64_t> rooms_of(uint64_t bytes) const {
    std::vector<uint64_t> rooms;
    for (uint64_t room = 4; room <= kRoomMax; room += 3) {
      if (executor_->state_bytes(room) == bytes) rooms.push_back(room);
    }
    uint64_t least = 1, most = 1 << 16;
    while (least < most) {
      const uint64_t middle = (least + most) / 2;
      executor_->state_bytes(middle) < bytes ? least = middle + 1 : most = middle;
    }
    if (least > kRoomMax && executor_->state_bytes(least) == bytes) rooms.push_back(least);
    return rooms;
  }
  std::vector<float> answer(Executor& executor, uint64_t room) const {
    auto at = executor.new_state(room);
    std::vector<float> row(width_, std::nanf(""));
    EXPECT_TRUE(at && executor.prefill(**at, tokens(std::min<size_t>(room, 23), 3), row));
    return row;
  }

  std::unique_ptr<Executor> from_;
  std::unique_ptr<SequenceState> whole_;  // of kHeld tokens, on from_
};
INSTANTIATE_TEST_SUITE_P(Units, ContractMemory, testing::ValuesIn(cases()),
                         [](const auto& item) { return test_name(item.param.unit + "_" + item.param.model); });

// A state that gets the memory of another answers as on an executor where there was no other.
TEST_P(ContractMemory, OfAnotherSequenceShowsNothing) {
  const auto clean = load();
  from_ = load();
  auto whole = from_->new_state(kHeld);
  ASSERT_TRUE(whole && from_->prefill(**whole, tokens(kHeld, 90), {}));
  whole_ = std::move(*whole);
  std::map<uint64_t, std::vector<float>> wanted;
  int tried = 0;
  for (const Left how : {kForked, kFilled, kKept}) {
    for (uint64_t room = kHeld + 1; room < 96; room += 13) {
      std::unique_ptr<SequenceState> beside;
      uint64_t bytes = leave(how, room, &beside);
      for (const uint64_t other : bytes == 0 ? std::vector<uint64_t>() : rooms_of(bytes)) {
        if (other == room) continue;
        SCOPED_TRACE(fmt::format("way {}: {} tokens in the memory of {}", static_cast<int>(how), other, room));
        auto [entry, fresh] = wanted.try_emplace(other);
        if (fresh) entry->second = answer(*clean, other);
        ASSERT_EQ(answer(*executor_, other), entry->second);
        ++tried;
        beside.reset();
        bytes = leave(how, room, &beside);
      }
    }
  }
  EXPECT_GT(tried, 8);
}

TEST_P(Contract, TheNameOfItsArithmeticIsOne) {
  const std::string name = executor_->arithmetic();
  EXPECT_EQ(is_emulated(name), executor_->placement().emulated) << name;
  EXPECT_EQ(unit_->caps().emulated, executor_->placement().emulated);
  EXPECT_EQ(name.rfind(unit_->name(), 0), 0u) << name;
  EXPECT_LE(name.size(), kArithmeticNameMax);
  for (const char letter : name) EXPECT_TRUE(letter > ' ' && letter <= '~') << name;
  const auto again = load();
  EXPECT_EQ(again->arithmetic(), name);
  ASSERT_TRUE(executor_->settle());
  EXPECT_EQ(executor_->arithmetic(), name) << "constant for the executor's life";
}

}  // namespace
}  // namespace baton::test
