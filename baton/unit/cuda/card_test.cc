// Cards over the emulated driver: memory to the byte, each call failing in turn, lost cards, graphs; and the installed
// driver's absence.
#include "baton/unit/cuda/card.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/cuda/driver_emulated.h"

namespace baton::cuda {
namespace {

// value[i] += add, of `count` floats.
struct AddWork {
  Address values;
  int32_t count;
  float add;
};
void add_body(const void* argument) {
  const auto* work = static_cast<const AddWork*>(argument);
  auto* values = reinterpret_cast<float*>(work->values);
  for (int32_t i = 0; i < work->count; ++i) values[i] += work->add;
}

class CardTest : public testing::Test {
 protected:
  CardTest() {
    emulated_reset();
    emulate_kernel("test_add", sizeof(AddWork), add_body);
  }
  ~CardTest() override {
    card_.reset();
    EXPECT_EQ(emulated_use(), EmulatedUse()) << "something is still held";
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  Card& card() {
    if (card_ == nullptr) card_ = *Card::open(emulated_driver(), 0);
    return *card_;
  }
  std::shared_ptr<Card> card_;
};

TEST_F(CardTest, TellsWhatItIs) {
  const CardFacts& facts = card().facts();
  EXPECT_EQ(facts.name, "emulated card");
  EXPECT_EQ(facts.capability, 90u);
  EXPECT_EQ(facts.memory_bytes, kEmulatedBytes);
  EXPECT_EQ(facts.driver, "CUDA 13.0");
  EXPECT_EQ(facts.pci, "0000:01:00.0");
  EXPECT_GT(facts.processors, 0u);
  EXPECT_GT(facts.shared_bytes, 200000u);
  EXPECT_TRUE(facts.emulated);
  EXPECT_EQ(*Card::count(emulated_driver()), kEmulatedCards);
}

TEST_F(CardTest, ANameOfOtherThanLettersIsMadeOne) {
  Driver driver = emulated_driver();
  driver.device_name = [](char* name, int size, DeviceNumber) -> DriverCode {
    *fmt::format_to_n(name, size - 1, "a\x1b[31mcard\n\xc3\xa4~").out = '\0';
    return kDone;
  };
  const auto card = Card::open(driver, 0);
  ASSERT_TRUE(card);
  EXPECT_EQ((*card)->facts().name, "a?[31mcard???~");
}

TEST_F(CardTest, MemoryIsCountedToTheByte) {
  emulated_set_memory(1 << 20);
  auto a = card().allocate(1000, "weights");
  auto b = card().allocate(24, "states");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(card().held_bytes(), 1024u);
  EXPECT_EQ(emulated_use().device_bytes, 1024u);
  EXPECT_EQ(*card().free_bytes(), (1u << 20) - 1024);
  *b = DeviceMemory();
  EXPECT_EQ(card().held_bytes(), 1000u);
  DeviceMemory moved = std::move(*a);
  EXPECT_EQ(moved.bytes(), 1000u);
  EXPECT_EQ(a->address(), 0u);
  EXPECT_EQ(card().held_bytes(), 1000u);
  const auto none = card().allocate(0, "nothing");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->address(), 0u);
  const auto pinned = card().allocate_pinned(77);
  ASSERT_TRUE(pinned);
  EXPECT_EQ(card().held_pinned_bytes(), 77u);
  EXPECT_EQ(emulated_use().host_bytes, 77u);
}

TEST_F(CardTest, TooLittleMemoryIsSaidWithNumbers) {
  emulated_set_memory(64 << 20);
  const auto held = card().allocate(16 << 20, "weights");
  ASSERT_TRUE(held);
  const auto more = card().allocate(100 << 20, "keys and values");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kOutOfMemory);
  EXPECT_EQ(
      more.error().message,
      "card 0 (emulated card): no memory for keys and values: 100.0 MiB more are needed, 48.0 MiB of its 64.0 MiB "
      "are free, 16.0 MiB are held here");
  EXPECT_FALSE(card().lost());
  EXPECT_TRUE(card().allocate(48 << 20, "all the rest"));
}

TEST_F(CardTest, FreshMemoryIsNoNumber) {
  const auto memory = card().allocate(64, "values");
  const auto pinned = card().allocate_pinned(64);
  auto stream = card().stream();
  ASSERT_TRUE(stream->copy_out(pinned->data(), memory->address(), 64));
  ASSERT_TRUE(stream->wait());
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(reinterpret_cast<float*>(pinned->data())[i]));
}

TEST_F(CardTest, CopiesBytesAndRows) {
  const auto device = card().allocate(256, "rows");
  const auto pinned = card().allocate_pinned(512);
  auto stream = card().stream();
  auto* bytes = reinterpret_cast<uint8_t*>(pinned->data());
  std::iota(bytes, bytes + 256, uint8_t{0});
  ASSERT_TRUE(stream->zero(device->address(), 256));
  // 3 rows of 8 bytes: from 16 apart to 32 apart, and back to 8 apart.
  ASSERT_TRUE(stream->copy_rows_in(device->address() + 4, 32, bytes, 16, 8, 3));
  ASSERT_TRUE(stream->copy_rows_out(bytes + 256, 8, device->address() + 4, 32, 8, 3));
  ASSERT_TRUE(stream->copy(device->address() + 128, device->address() + 4, 8));
  ASSERT_TRUE(stream->copy_out(bytes + 300, device->address() + 128, 16));
  ASSERT_TRUE(stream->wait());
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(bytes[256 + row * 8 + i], row * 16 + i);
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(bytes[300 + i], i);
  for (int i = 8; i < 16; ++i) EXPECT_EQ(bytes[300 + i], 0);
}

// In huge pages, by threads or not; and the driver's own memory where the system or the driver does not pin them.
TEST_F(CardTest, LargePinnedMemory) {
  ThreadPool pool(2);
  const auto memory = card().allocate(5 << 20, "test");
  auto stream = card().stream();
  for (const bool refused : {false, true}) {
    for (ThreadPool* const help : {static_cast<ThreadPool*>(nullptr), &pool}) {
      if (refused) emulated_fail({.function = "host_register", .code = kNotSupported});
      const auto pinned = card().allocate_pinned((5 << 20) - 3, help);
      ASSERT_TRUE(pinned) << pinned.error().message;
      EXPECT_EQ(card().held_pinned_bytes(), (5u << 20) - 3);
      std::memset(pinned->data(), 7, pinned->bytes());
      ASSERT_TRUE(stream->copy_in(memory->address(), pinned->data(), pinned->bytes()));
      EXPECT_FALSE(stream->copy_in(memory->address(), pinned->data() + 1, pinned->bytes()));
      EXPECT_TRUE(stream->wait());
    }
    EXPECT_EQ(card().held_pinned_bytes(), 0u);
    EXPECT_NE(emulated_misuse(), "");
    emulated_reset();
  }
}

TEST_F(CardTest, WrongCopiesAreRefused) {
  auto device = card().allocate(256, "rows");
  const auto pinned = card().allocate_pinned(300);
  auto stream = card().stream();
  const Address gone = device->address();
  EXPECT_FALSE(stream->copy_out(pinned->data(), gone, 257));
  EXPECT_FALSE(stream->copy_out(pinned->data() + 45, gone, 256));
  EXPECT_FALSE(stream->copy_rows_in(gone, 100, pinned->data(), 60, 60, 3));
  EXPECT_TRUE(stream->copy_rows_in(gone, 98, pinned->data(), 60, 60, 3));
  *device = DeviceMemory();
  const Status freed = stream->copy_out(pinned->data(), gone, 1);
  ASSERT_FALSE(freed);
  EXPECT_EQ(freed.error().code, Code::kDevice);
  EXPECT_EQ(freed.error().message,
            "card 0 (emulated card): copying from the card: 1 bytes: CUDA_ERROR_INVALID_VALUE (1): emulated");
  EXPECT_NE(emulated_misuse(), "");
  emulated_reset();
}

TEST_F(CardTest, LaunchesByName) {
  const auto values = card().allocate(16, "values");
  const auto pinned = card().allocate_pinned(16);
  auto stream = card().stream();
  AddWork work = {values->address(), 4, 2.5f};
  ASSERT_TRUE(stream->zero(values->address(), 16));
  ASSERT_TRUE(stream->launch("test_add", 1, 32, 0, &work));
  ASSERT_TRUE(stream->launch("test_add", 1, 32, 200 * 1024, &work)) << "shared memory is asked for";
  ASSERT_TRUE(stream->launch_together("test_add", 32, 0, &work));
  ASSERT_TRUE(stream->launch_ahead("test_add", 1, 32, 0, &work));
  ASSERT_TRUE(stream->copy_out(pinned->data(), values->address(), 16));
  ASSERT_TRUE(stream->wait());
  EXPECT_EQ(reinterpret_cast<float*>(pinned->data())[3], 10.0f);
  EXPECT_EQ(*card().blocks_of("test_add", 512, 100 * 1024), 1u);

  const Status unknown = stream->launch("test_subtract", 1, 32, 0, &work);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kInternal);
  EXPECT_EQ(unknown.error().message, "card 0 (emulated card): no kernel test_subtract was built in");
  EXPECT_FALSE(stream->launch("test_add", 1, 32, 300 * 1024, &work));
  EXPECT_FALSE(stream->launch("test_add", 1, 2048, 0, &work));
}

// As before CUDA 11.8.
TEST_F(CardTest, DriversWithoutPlansLaunchAllTheSame) {
  Driver old = emulated_driver();
  ASSERT_NE(old.launch_plan, nullptr);
  old.launch_plan = nullptr;
  card_ = *Card::open(old, 0);
  {
    const auto values = card().allocate(16, "values");
    const auto pinned = card().allocate_pinned(16);
    auto stream = card().stream();
    AddWork work = {values->address(), 4, 2.5f};
    ASSERT_TRUE(stream->zero(values->address(), 16));
    ASSERT_TRUE(stream->launch_ahead("test_add", 1, 32, 0, &work));
    ASSERT_TRUE(stream->copy_out(pinned->data(), values->address(), 16));
    ASSERT_TRUE(stream->wait());
    EXPECT_EQ(reinterpret_cast<float*>(pinned->data())[3], 2.5f);
  }
  card_.reset();
}

TEST_F(CardTest, RecordedWorkIsDoneWhenItIsLaunched) {
  const auto values = card().allocate(16, "values");
  const auto pinned = card().allocate_pinned(32);
  auto stream = card().stream();
  auto* host = reinterpret_cast<float*>(pinned->data());
  ASSERT_TRUE(stream->zero(values->address(), 16));
  host[0] = 1;
  auto graph = stream->record_graph([&]() -> Status {
    AddWork work = {values->address(), 1, 2};  // copied: gone when the graph is launched
    BATON_OK(stream->launch("test_add", 1, 32, 0, &work));
    return stream->copy_out(host + 4, values->address(), 4);
  });
  ASSERT_TRUE(graph);
  ASSERT_TRUE(*graph);
  EXPECT_TRUE(std::isnan(host[4])) << "nothing has run";
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(stream->launch(*graph));
    ASSERT_TRUE(stream->wait());
    EXPECT_EQ(host[4], 2.0f * static_cast<float>(i));
  }
  EXPECT_EQ(emulated_use().graphs, 1u);
  const auto failed = stream->record_graph([]() -> Status { return fail(Code::kDevice, "no"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no");
  EXPECT_TRUE(stream->wait()) << "recording has ended";
  EXPECT_EQ(emulated_use().graphs, 1u);
}

TEST_F(CardTest, EventsOrderAndTime) {
  auto a = card().stream(), b = card().stream();
  auto first = card().event(true), second = card().event(true);
  ASSERT_TRUE(a->record(*first));
  ASSERT_TRUE(b->wait_for(*first));
  ASSERT_TRUE(b->record(*second));
  ASSERT_TRUE(second->wait());
  EXPECT_TRUE(*second->done());
  const auto passed = second->milliseconds_since(*first);
  ASSERT_TRUE(passed);
  EXPECT_GE(*passed, 0.0f);
  const auto never = card().event(true);
  EXPECT_FALSE(never->milliseconds_since(*first));
  auto untimed = card().event();
  ASSERT_TRUE(b->record(*untimed) && untimed->wait());
  EXPECT_FALSE(untimed->milliseconds_since(*first));
}

// The emulated card does what is asked of it as late as it may, and copies from it read as early as they may.
TEST_F(CardTest, WorkIsDoneWhenItIsWaitedFor) {
  const auto values = card().allocate(16, "values");
  const auto pinned = card().allocate_pinned(64);
  auto stream = card().stream(), other = card().stream();
  auto first = card().event(), second = card().event();
  auto* host = reinterpret_cast<float*>(pinned->data());
  const AddWork work = {values->address(), 1, 2};
  const auto add = [&] { return stream->launch("test_add", 1, 32, 0, &work); };
  ASSERT_TRUE(stream->zero(values->address(), 16));
  ASSERT_TRUE(stream->wait());
  ASSERT_TRUE(add() && stream->record(*first) && add() && stream->record(*second));
  EXPECT_EQ(emulated_waiting(), 4u);
  ASSERT_TRUE(other->copy_out(host, values->address(), 4));
  ASSERT_TRUE(first->wait());
  EXPECT_EQ(emulated_waiting(), 3u) << "no further than to there";
  EXPECT_TRUE(std::isnan(host[0])) << "nobody has waited for it";
  ASSERT_TRUE(other->copy_out(host + 1, values->address(), 4));
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(host[0], 0.0f) << "read before the first addition";
  EXPECT_EQ(host[1], 2.0f) << "its turn came behind it";
  ASSERT_TRUE(other->wait_for(*second) && other->copy_out(host + 2, values->address(), 4));
  EXPECT_EQ(emulated_waiting(), 4u);
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(host[2], 4.0f);
  EXPECT_EQ(emulated_waiting(), 0u);
  ASSERT_TRUE(add());
  *card().allocate(16, "values") = DeviceMemory();
  EXPECT_EQ(emulated_waiting(), 0u) << "memory goes when nothing is at work";
}

// Two streams that wait for each other's first halves, each waited for by a thread of its own.
TEST_F(CardTest, ThreadsWaitForEachOthersStreams) {
  const auto values = card().allocate(16, "values");
  const auto pinned = card().allocate_pinned(16);
  auto a = card().stream(), b = card().stream();
  auto half_a = card().event(), half_b = card().event();
  const AddWork work = {values->address(), 1, 1};
  ASSERT_TRUE(a->zero(values->address(), 16));
  ASSERT_TRUE(a->wait());
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(b->launch("test_add", 1, 32, 0, &work) && b->record(*half_b));
    ASSERT_TRUE(a->wait_for(*half_b) && a->launch("test_add", 1, 32, 0, &work) && a->record(*half_a));
    ASSERT_TRUE(b->wait_for(*half_a) && b->launch("test_add", 1, 32, 0, &work));
    std::thread waits([&] { EXPECT_TRUE(b->wait()); });
    EXPECT_TRUE(a->wait());
    waits.join();
  }
  ASSERT_TRUE(a->copy_out(pinned->data(), values->address(), 4));
  ASSERT_TRUE(a->wait());
  EXPECT_EQ(*reinterpret_cast<float*>(pinned->data()), 150.0f);
}

TEST_F(CardTest, AnyThreadMayCall) {
  const auto memory = card().allocate(64, "values");
  auto stream = card().stream();
  std::thread([&] {
    const auto pinned = card().allocate_pinned(64);
    EXPECT_TRUE(pinned);
    EXPECT_TRUE(stream->copy_out(pinned->data(), memory->address(), 64));
    EXPECT_TRUE(stream->wait());
  }).join();
}

TEST_F(CardTest, CopiesToAnotherCard) {
  const auto other = *Card::open(emulated_driver(), 1);
  EXPECT_EQ(other->facts().pci, "0000:02:00.0");
  const auto from = card().allocate(64, "values");
  const auto to = other->allocate(64, "values");
  const auto pinned = card().allocate_pinned(64);
  EXPECT_TRUE(*other->reach(card()));
  EXPECT_TRUE(*other->reach(card()));
  EXPECT_TRUE(*card().reach(card()));
  auto stream = card().stream(), there = other->stream();
  auto done = card().event();
  ASSERT_TRUE(stream->zero(from->address(), 64));
  ASSERT_TRUE(stream->record(*done));
  ASSERT_TRUE(there->wait_for(*done));
  ASSERT_TRUE(there->copy_rows_from(card(), to->address(), 64, from->address(), 64, 64, 1));
  ASSERT_TRUE(there->copy_out(pinned->data(), to->address(), 64));
  ASSERT_TRUE(there->wait());
  EXPECT_EQ(pinned->data()[63], std::byte{0});
  EXPECT_EQ(other->held_bytes(), 64u);
}

TEST_F(CardTest, NoSuchCard) {
  const auto none = Card::open(emulated_driver(), 7);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnsupported);
  EXPECT_EQ(none.error().message, "cuda: there is no card 7: the last is 1");
}

// All that a card can be asked for, once.
Status all_calls() {
  BATON_TRY(const auto cards, Card::count(emulated_driver()));
  BATON_TRY(const auto card, Card::open(emulated_driver(), 0));
  BATON_TRY(const auto other, Card::open(emulated_driver(), cards - 1));
  BATON_OK(card->free_bytes());
  BATON_TRY(const auto memory, card->allocate(256, "values"));
  BATON_TRY(const auto there, other->allocate(256, "values"));
  BATON_TRY(const auto pinned, card->allocate_pinned(256));
  BATON_TRY(auto stream, card->stream());
  BATON_TRY(auto first, card->event(true));
  BATON_TRY(auto second, card->event(true));
  BATON_OK(card->reach(*other));
  BATON_OK(card->blocks_of("test_add", 32, 0));
  BATON_OK(stream.record(first));
  BATON_OK(stream.zero(memory.address(), 256));
  BATON_OK(stream.copy_in(memory.address(), pinned.data(), 128));
  BATON_OK(stream.copy(memory.address() + 128, memory.address(), 128));
  BATON_OK(stream.copy_rows_in(memory.address(), 16, pinned.data(), 16, 8, 4));
  BATON_OK(stream.copy_rows_out(pinned.data(), 16, memory.address(), 16, 8, 4));
  BATON_OK(stream.copy_rows_from(*other, memory.address(), 256, there.address(), 256, 256, 1));
  BATON_OK(stream.copy_rows_from(*other, memory.address(), 32, there.address(), 64, 16, 4));
  const AddWork work = {memory.address(), 4, 1};
  BATON_TRY(const Graph graph, stream.record_graph([&] { return stream.launch("test_add", 1, 32, 64 * 1024, &work); }));
  BATON_OK(stream.launch(graph));
  BATON_OK(stream.launch_together("test_add", 32, 0, &work));
  BATON_OK(stream.copy_out(pinned.data(), memory.address(), 256));
  BATON_OK(stream.wait_for(first));
  BATON_OK(stream.record(second));
  BATON_OK(second.wait());
  BATON_OK(second.done());
  BATON_OK(second.milliseconds_since(first));
  return stream.wait();
}

TEST_F(CardTest, EachCallFailsInTurnAndNothingIsKept) {
  ASSERT_TRUE(all_calls());
  const uint64_t calls = emulated_calls();
  EXPECT_GT(calls, 60u);
  for (const DriverCode code : {DriverCode{kNoMemory}, DriverCode{kInvalidValue}, DriverCode{kLaunchFailed}}) {
    uint64_t passed = 0;
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      SCOPED_TRACE(fmt::format("call {} of {} fails with {}", nth, calls, code));
      emulated_reset();
      emulated_fail({.nth = nth, .code = code, .lost = code == kLaunchFailed});
      const Status done = all_calls();
      ASSERT_EQ(emulated_use(), EmulatedUse()) << "something is still held";
      if (done) {
        ++passed;
      } else {
        EXPECT_NE(done.error().message.find("emulated"), std::string::npos) << done.error().message;
        EXPECT_TRUE(code != kNoMemory || done.error().code == Code::kOutOfMemory ||
                    done.error().code == Code::kUnsupported)
            << done.error().message;
      }
    }
    // What is given back at the end: their errors go nowhere.
    EXPECT_LE(passed, 28u);
  }
}

TEST_F(CardTest, ALostCardIsLostForGood) {
  const auto other = *Card::open(emulated_driver(), 1);
  const auto memory = card().allocate(64, "values");
  const AddWork work = {memory->address(), 4, 1};
  {
    auto stream = card().stream();
    emulated_fail({.function = "launch", .code = kIllegalAddress, .lost = true, .later = true});
    ASSERT_TRUE(stream->launch("test_add", 1, 32, 0, &work)) << "the work's error comes later";
    const Status wait = stream->wait();
    ASSERT_FALSE(wait);
    EXPECT_EQ(wait.error().code, Code::kUnavailable);
    EXPECT_EQ(wait.error().message,
              "card 0 (emulated card): waiting for its work: CUDA_ERROR_ILLEGAL_ADDRESS (700): emulated; the card is "
              "lost to this process, which must be started again to use it");
    EXPECT_TRUE(card().lost());
    const auto more = card().allocate(1, "more");
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().code, Code::kUnavailable);
  }
  EXPECT_FALSE(other->lost());
  EXPECT_TRUE(other->allocate(1, "values"));
  emulated_reset();
  EXPECT_FALSE(card().stream()) << "the driver's mood does not bring it back";
}

TEST_F(CardTest, AFailedLaunchIsNoLostCard) {
  const auto memory = card().allocate(64, "values");
  const AddWork work = {memory->address(), 4, 1};
  auto stream = card().stream();
  emulated_fail({.function = "launch", .nth = 2, .code = 701});  // out of resources
  EXPECT_TRUE(stream->launch("test_add", 1, 32, 0, &work));
  const Status failed = stream->launch("test_add", 1, 32, 0, &work);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kDevice);
  EXPECT_EQ(failed.error().message, "card 0 (emulated card): test_add: code 701");
  EXPECT_TRUE(stream->launch("test_add", 1, 32, 0, &work));
}

TEST_F(CardTest, AStreamIsBusyUntilItIsWaitedFor) {
  const auto memory = card().allocate(64, "values");
  auto one = card().stream(), other = card().stream();
  EXPECT_EQ(emulated_waiting(), 0u);
  EXPECT_TRUE(one->zero(memory->address(), 64) && other->zero(memory->address(), 64));
  EXPECT_EQ(emulated_waiting(), 2u);
  emulated_fail({.function = "stream_wait", .code = kInvalidValue});
  EXPECT_FALSE(one->wait());
  EXPECT_EQ(emulated_waiting(), 2u) << "nobody knows whether it is done";
  EXPECT_TRUE(one->wait());
  EXPECT_EQ(emulated_waiting(), 1u);
}

// What a driver says of its cards, whatever that is.
TEST(CardFactsTest, OlderCardsAreNone) {
  Driver driver = emulated_driver();
  driver.device_attribute = [](int* value, DeviceAttribute what, int) {
    *value = what == DeviceAttribute::kCapabilityMajor ? 7 : 5;
    return DriverCode{kDone};
  };
  const auto facts = Card::facts_of(driver, 0);
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code, Code::kUnsupported);
  EXPECT_NE(facts.error().message.find("it has compute capability 7.5, and kernels need 8.0 or later: choose another"),
            std::string::npos)
      << facts.error().message;
}

TEST(CardFactsTest, WhatNoCardHasIsNotTaken) {
  static DeviceAttribute lie;
  static int lie_value;
  static size_t bytes;
  Driver driver = emulated_driver();
  driver.device_attribute = [](int* value, DeviceAttribute what, int device) {
    const DriverCode code = emulated_driver().device_attribute(value, what, device);
    if (what == lie) *value = lie_value;
    return code;
  };
  driver.device_memory = [](size_t* all, DeviceNumber) {
    *all = bytes;
    return DriverCode{kDone};
  };
  const struct {
    DeviceAttribute lie;
    int value;
    size_t bytes;
    const char* said;
  } kLies[] = {
      {DeviceAttribute::kProcessors, 0, 1 << 30, "that it has 0 processors and 1073741824 bytes of memory"},
      {DeviceAttribute::kProcessors, -1, 1 << 30, "that it has 0 processors"},
      {DeviceAttribute::kProcessors, 2000000000, 1 << 30, "that it has 2000000000 processors"},
      {DeviceAttribute::kProcessors, 4, 0, "4 processors and 0 bytes of memory"},
      {DeviceAttribute::kProcessors, 4, ~size_t{0}, "and 18446744073709551615 bytes of memory"},
  };
  for (const auto& each : kLies) {
    lie = each.lie, lie_value = each.value, bytes = each.bytes;
    const auto facts = Card::facts_of(driver, 0);
    ASSERT_FALSE(facts) << each.said;
    EXPECT_EQ(facts.error().code, Code::kUnsupported);
    EXPECT_NE(facts.error().message.find(each.said), std::string::npos) << facts.error().message;
  }
  lie = DeviceAttribute::kCapabilityMajor, lie_value = 2000000000, bytes = 1 << 30;
  const auto facts = Card::facts_of(driver, 0);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->capability, 990u);
}

TEST(CardFactsTest, AnErrorIsPrintable) {
  Driver driver = emulated_driver();
  driver.error_name = [](DriverCode, const char** name) {
    *name = "A\x1b[31m";
    return DriverCode{kDone};
  };
  driver.error_text = [](DriverCode, const char** text) {
    *text = "two\nlines";
    return DriverCode{kDone};
  };
  EXPECT_EQ(code_text(driver, 7), "A?[31m (7): two?lines");
}

TEST(CardFactsTest, NoMoreAreCountedThanCanBeNamed) {
  Driver driver = emulated_driver();
  driver.device_count = [](int* count) {
    *count = 2000000000;
    return DriverCode{kDone};
  };
  EXPECT_EQ(Card::count(driver), kCardsMax);
  driver.device_count = [](int* count) {
    *count = -1;
    return DriverCode{kDone};
  };
  EXPECT_EQ(Card::count(driver), 0u);
}

TEST(DriverTest, AMissingDriverIsSaid) {
  const auto driver = driver_of("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, Code::kUnsupported);
  EXPECT_EQ(driver.error().message.find("no NVIDIA driver: libcuda-that-is-not-there.so.1"), 0u)
      << driver.error().message;
  EXPECT_NE(driver.error().message.find("install"), std::string::npos);
}

TEST(DriverTest, AToolkitsStubIsSaid) {
  const std::filesystem::path stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!std::filesystem::exists(stub)) GTEST_SKIP() << "there is no " << stub;
  const auto driver = driver_of(stub.c_str());
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().message,
            "no NVIDIA driver: the /usr/local/cuda/lib64/stubs/libcuda.so that was found is a toolkit's stub, to link "
            "with: take its folder out of LD_LIBRARY_PATH, and install the driver of the card");
}

TEST(DriverTest, ALibraryThatIsNoneIsSaid) {
  const auto driver = driver_of("libm.so.6");
  ASSERT_FALSE(driver);
#ifdef __linux__
  EXPECT_EQ(driver.error().message,
            "the NVIDIA driver (libm.so.6) has no cuInit: it is too old, or something else; install a newer one");
#endif
}

}  // namespace
}  // namespace baton::cuda
