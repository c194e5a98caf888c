// Lists of cores, those that cannot be had, and threads that stay where they are told to.
#include "baton/base/affinity.h"

#include <gtest/gtest.h>

#include <atomic>

#include "baton/base/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace baton {
namespace {

using Cores = std::vector<uint32_t>;

TEST(Cores, AreReadAsTasksetReadsThem) {
  EXPECT_EQ(parse_cores("0"), Cores({0}));
  EXPECT_EQ(parse_cores("0-3,8"), Cores({0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cores("1,2,4-5"), Cores({1, 2, 4, 5}));
  for (const char* text : {"", "-", "a", "1-", "1-1", "3-1", "1,1", "2,1", "0-2,2", "01", "1,", ",1", "0-3-5", "1024",
                           "99999999999", "1 ", "0x1"})
    EXPECT_EQ(parse_cores(text), Cores()) << text;
  EXPECT_EQ(cores_text(Cores({3})), "core 3");
  EXPECT_EQ(cores_text(Cores({0, 1, 2, 3, 8})), "cores 0-3,8");
}

#if defined(__linux__)
Cores of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  Cores cores;
  for (uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

TEST(Cores, ThatCannotBeHadAreNamed) {
  const Cores allowed = of_this_thread();
  EXPECT_TRUE(check_cores(allowed));
  EXPECT_TRUE(check_cores({}));
  const Status missing = check_cores(Cores({allowed.front(), 1022, 1023}));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kInvalidInput);
  EXPECT_NE(missing.error().message.find("no cores 1022-1023"), std::string::npos) << missing.error().message;
  if (allowed.size() < 2) GTEST_SKIP() << "one core";
  const Cores first = {allowed.front()};
  const PinnedThread pinned(first);
  const Status forbidden = check_cores(Cores({allowed[1]}));
  ASSERT_FALSE(forbidden);
  EXPECT_NE(forbidden.error().message.find("may not run on " + cores_text(Cores({allowed[1]}))), std::string::npos)
      << forbidden.error().message;
}

TEST(PinnedThread, GoesBackToWhereItWas) {
  const Cores before = of_this_thread(), last = {before.back()};
  {
    const PinnedThread pinned(last);
    EXPECT_TRUE(pinned.holds());
    EXPECT_EQ(of_this_thread(), last);
    const PinnedThread again(last);
    EXPECT_TRUE(again.holds());
  }
  EXPECT_EQ(of_this_thread(), before);
  const PinnedThread nowhere(Cores({1023}));
  EXPECT_FALSE(nowhere.holds());
  EXPECT_EQ(of_this_thread(), before);
}

TEST(PinnedThread, WorkersOfAPoolStayOnItsCores) {
  const Cores last = {of_this_thread().back()};
  EXPECT_EQ(ThreadPool(0, last).size(), 1u) << "as many threads as cores";
  ThreadPool pool(3, last);
  EXPECT_EQ(pool.size(), 3u);
  std::atomic<int> elsewhere{0};
  pool.run([&](uint32_t thread) {
    if (thread > 0 && of_this_thread() != last) ++elsewhere;
  });
  EXPECT_EQ(elsewhere, 0);
  EXPECT_FALSE(pool.strays());
}
#else
TEST(Cores, CannotBeChosenHere) {
  const Status refused = check_cores(Cores({0}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_TRUE(check_cores({}));
}
#endif

}  // namespace
}  // namespace baton
