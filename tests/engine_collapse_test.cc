// The engine when the system gives no more: memory that runs out in its own threads, threads that cannot start.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "baton/engine/engine.h"
#include "tests/support/fake_unit.h"

namespace baton::fake {
namespace {

constexpr int32_t kContext = 2048;
using std::chrono::milliseconds;

Request make_request(size_t prompt, uint32_t answer, uint64_t seed) {
  Request request;
  for (size_t i = 0; i < prompt; ++i) request.tokens.push_back(static_cast<int32_t>(mix(seed * 1000 + i) % kVocab));
  request.max_new_tokens = answer;
  request.prefill_unit = "a";
  request.decode_unit = "b";
  return request;
}

// Empty when the end does not come within a minute.
std::optional<FinishedEvent> read_to_the_end(Ticket& ticket) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < limit) {
    std::optional<Event> event = ticket.next_event(milliseconds(200));
    if (event && std::holds_alternative<FinishedEvent>(*event)) return std::get<FinishedEvent>(std::move(*event));
  }
  return std::nullopt;
}

// Stands for memory that runs out anywhere in the engine's own threads: the clock is read by all of them.
class FailingClock final : public Clock {
 public:
  explicit FailingClock(int64_t reads) : left_(reads) {}
  int64_t now_ns() const override {
    if (left_.fetch_sub(1) <= 0) throw std::bad_alloc();
    return steady_.now_ns();
  }

 private:
  mutable std::atomic<int64_t> left_;
  SteadyClock steady_;
};

TEST(OutOfMemory, InAnyThreadEndsTheRequestsAndNotTheProcess) {
  const auto model = make_model(kContext);
  int failed = 0;
  for (int64_t reads = 0; reads < 60; ++reads) {
    FakeExecutor a("a", model, {}), b("b", model, {});
    const FailingClock clock(reads);
    EngineOptions options;
    options.units = {{"a", &a.caps(), &a}, {"b", &b.caps(), &b}};
    options.clock = &clock;
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine);
    {
      auto first = (*engine)->submit(make_request(20, 3, 1)), second = (*engine)->submit(make_request(9, 3, 2));
      for (auto* ticket : {&first, &second}) {
        if (!*ticket) {
          EXPECT_EQ(ticket->error().code, Code::kOutOfMemory);  // the engine had gone down already
          EXPECT_FALSE((*engine)->goes_on());
          continue;
        }
        const auto finished = read_to_the_end(**ticket);
        ASSERT_TRUE(finished) << "reads " << reads;
        if (finished->reason != FinishReason::kError) continue;
        ++failed;
        EXPECT_EQ(finished->error.code, Code::kOutOfMemory);
        EXPECT_NE(finished->error.message.find("out of memory"), std::string::npos);
        EXPECT_FALSE((*ticket)->next_event(milliseconds(1))) << "one end each";
      }
    }
    engine->reset();
    EXPECT_EQ(a.live_states() + b.live_states(), 0);
  }
  EXPECT_GT(failed, 20);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The system refuses the first, the second, ... thread.
TEST(Threads, ThatCannotStartAreAnError) {
  int refused = 0;
  for (rlim_t allowed = 0; allowed < 6; ++allowed) {
    const auto made = [&] {
      const struct rlimit limit { allowed, allowed };
      BATON_CHECK(::setrlimit(RLIMIT_NPROC, &limit) == 0);
      if (::geteuid() == 0 && ::setuid(65534) != 0) std::_Exit(3);
      const auto model = make_model(kContext);
      FakeExecutor a("a", model, {}), b("b", model, {});
      EngineOptions options;
      options.units = {{"a", &a.caps(), &a}, {"b", &b.caps(), &b}};
      const auto engine = Engine::create(std::move(options));
      if (engine) return 4;
      return engine.error().code == Code::kOutOfMemory && engine.error().message.find("thread") != std::string::npos
                 ? 5
                 : 6;
    };
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(made());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << allowed << " processes: ended by signal " << WTERMSIG(status);
    EXPECT_TRUE(WEXITSTATUS(status) == 4 || WEXITSTATUS(status) == 5) << WEXITSTATUS(status);
    refused += WEXITSTATUS(status) == 5 ? 1 : 0;
  }
  EXPECT_GE(refused, 1);
}
#endif

}  // namespace
}  // namespace baton::fake
