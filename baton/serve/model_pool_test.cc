// Models that are loaded on demand within a budget: by fakes that count what lives.
#include "baton/serve/model_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

#include "baton/base/random.h"

namespace baton::serve {
namespace {

using std::chrono::milliseconds;

bool soon(const std::function<bool()>& what, milliseconds timeout = milliseconds(10'000)) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// Shared by a pool's models.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> opened, saved, gone;
  uint64_t bytes = 0, bytes_max = 0;
  bool blocked = false;       // `open` waits
  std::string fails;          // the name that cannot be opened
  std::atomic<int> opens{0};  // under way

  size_t count(const std::string& name) {
    const std::lock_guard lock(mutex);
    return static_cast<size_t>(std::count(opened.begin(), opened.end(), name));
  }
  std::vector<std::string> left() {
    const std::lock_guard lock(mutex);
    return gone;
  }
  void block(bool on) {
    {
      const std::lock_guard lock(mutex);
      blocked = on;
    }
    changed.notify_all();
  }
};

class Fake final : public Served {
 public:
  Fake(World& world, std::string name, uint64_t bytes) : world_(world), name_(std::move(name)), bytes_(bytes) {
    const std::lock_guard lock(world_.mutex);
    world_.bytes += bytes_;
    world_.bytes_max = std::max(world_.bytes_max, world_.bytes);
  }
  ~Fake() override {
    const std::lock_guard lock(world_.mutex);
    world_.bytes -= bytes_;
    world_.gone.push_back(name_);
  }
  Status save() override {
    const std::lock_guard lock(world_.mutex);
    world_.saved.push_back(name_);
    return {};
  }
  const std::string& name() const { return name_; }

 private:
  World& world_;
  const std::string name_;
  const uint64_t bytes_;
};

// What a waiter was told.
struct Told {
  std::mutex mutex;
  std::optional<Result<ModelLease>> got;
  std::atomic<int> slow{0};
  std::atomic<bool> stays{true};

  bool done() {
    const std::lock_guard lock(mutex);
    return got.has_value();
  }
  bool has() {
    const std::lock_guard lock(mutex);
    return got && got->has_value();
  }
  Code code() {
    const std::lock_guard lock(mutex);
    return got && !*got ? got->error().code : Code::kInternal;
  }
  std::string message() {
    const std::lock_guard lock(mutex);
    return got && !*got ? got->error().message : "";
  }
  void drop() {
    std::optional<Result<ModelLease>> dropped;
    const std::lock_guard lock(mutex);
    dropped.swap(got);
  }
};

class Waiter final : public ModelWaiter {
 public:
  explicit Waiter(std::shared_ptr<Told> told) : told_(std::move(told)) {}
  void got(std::unique_ptr<ModelWaiter> /*self*/, Result<ModelLease> lease) override {
    const std::lock_guard lock(told_->mutex);
    EXPECT_FALSE(told_->got) << "called twice";
    told_->got = std::move(lease);
  }
  bool slow() override {
    ++told_->slow;
    return told_->stays;
  }

 private:
  std::shared_ptr<Told> told_;
};

class ModelPoolTest : public testing::Test {
 protected:
  void open(uint64_t budget, const std::vector<std::pair<std::string, uint64_t>>& models,
            milliseconds keep_alive = milliseconds(-1)) {
    PoolOptions options{.budget = budget, .turn = milliseconds(60), .retry = milliseconds(150)};
    options.slow = milliseconds(40);
    pool_ = std::make_unique<ModelPool>(options);
    for (const auto& [name, bytes] : models) {
      ModelSource source{.facts = {.name = name}, .keep_alive = keep_alive, .open = {}};
      source.facts.vectors = true;
      source.facts.weight_bytes = bytes - 1;
      source.facts.state_bytes_max = 1;
      source.open = [this, name = name, bytes = bytes]() -> Result<std::unique_ptr<Served>> {
        ++world_.opens;
        {
          std::unique_lock lock(world_.mutex);
          world_.opened.push_back(name);
          world_.changed.wait(lock, [this] { return !world_.blocked; });
        }
        --world_.opens;
        if (world_.fails == name) return fail(Code::kNotFound, "/folder/of/it: no such file");
        return std::make_unique<Fake>(world_, name, bytes);
      };
      pool_->add(std::move(source));
    }
    ASSERT_TRUE(pool_->start());
  }
  PooledModel& model(const std::string& name) { return *pool_->find_embedder(name); }
  std::shared_ptr<Told> want(const std::string& name) {
    auto told = std::make_shared<Told>();
    pool_->want(model(name), ++number_, std::make_unique<Waiter>(told));
    return told;
  }
  // Loaded, used once.
  void use(const std::string& name) {
    if (pool_->lease(model(name))) return;
    const auto told = want(name);
    ASSERT_TRUE(soon([&] { return told->has(); })) << name;
    told->drop();
  }
  bool loaded(const std::string& name) {
    for (const ModelStatus& status : pool_->status()) {
      if (status.model.name() == name) return status.loaded;
    }
    return false;
  }

  World world_;
  std::unique_ptr<ModelPool> pool_;
  uint64_t number_ = 0;
};

TEST_F(ModelPoolTest, ThoseWhoWaitTogetherShareOneLoad) {
  open(100, {{"a", 10}});
  world_.block(true);
  const auto first = want("a"), second = want("a"), third = want("a");
  EXPECT_FALSE(pool_->lease(model("a")));
  EXPECT_EQ(pool_->waiting(), 3u);
  world_.block(false);
  ASSERT_TRUE(soon([&] { return first->has() && second->has() && third->has(); }));
  EXPECT_EQ(world_.count("a"), 1u);
  EXPECT_EQ(first->got->value().as<Fake>().name(), "a");
  EXPECT_TRUE(pool_->lease(model("a")));
  EXPECT_EQ(pool_->bytes(), 10u);
  for (const auto& told : {first, second, third}) told->drop();
}

TEST_F(ModelPoolTest, TheLeastRecentlyUsedMakesRoom) {
  open(30, {{"a", 10}, {"b", 10}, {"c", 10}, {"d", 10}, {"e", 20}});
  for (const char* name : {"a", "b", "c", "a"}) use(name);
  use("d");
  EXPECT_EQ(world_.left(), std::vector<std::string>{"b"});
  use("e");
  EXPECT_EQ(world_.left(), (std::vector<std::string>{"b", "c", "a"}));
  EXPECT_TRUE(loaded("d"));
  EXPECT_EQ(pool_->bytes(), 30u);
  EXPECT_EQ(world_.bytes_max, 30u);
  EXPECT_EQ(world_.saved, world_.gone) << "their states are saved first";
}

TEST_F(ModelPoolTest, ALeaseKeepsItsModel) {
  open(10, {{"a", 10}, {"b", 10}});
  use("a");
  auto lease = pool_->lease(model("a"));
  auto told = want("b");
  EXPECT_FALSE(soon([&] { return told->done(); }, milliseconds(150)));
  EXPECT_TRUE(world_.left().empty());
  lease.reset();
  ASSERT_TRUE(soon([&] { return told->has(); }));
  EXPECT_EQ(world_.left(), std::vector<std::string>{"a"});
  EXPECT_EQ(world_.bytes_max, 10u);
  told->drop();
}

TEST_F(ModelPoolTest, OneThatIsAskedForWithoutEndGivesWay) {
  open(10, {{"a", 10}, {"b", 10}});
  use("a");
  auto lease = pool_->lease(model("a"));
  const auto told = want("b");
  // There is always one lease at least, as long as they are given.
  std::shared_ptr<Told> again;
  ASSERT_TRUE(soon([&] {
    auto next = pool_->lease(model("a"));
    if (!next) again = want("a");
    if (next) lease = std::move(next);
    return again != nullptr;
  }));
  EXPECT_FALSE(again->done()) << "behind who waits longer";
  lease.reset();
  ASSERT_TRUE(soon([&] { return told->has(); }));
  EXPECT_FALSE(again->done());
  told->drop();
  ASSERT_TRUE(soon([&] { return again->has(); }));
  again->drop();
  EXPECT_EQ(world_.bytes_max, 10u);
}

TEST_F(ModelPoolTest, WhatFitsBesideDoesNotWaitForWhatDoesNot) {
  open(30, {{"a", 20}, {"b", 20}, {"c", 10}});
  use("a");
  auto lease = pool_->lease(model("a"));
  const auto large = want("b"), small = want("c");
  EXPECT_TRUE(soon([&] { return small->has(); }));
  EXPECT_FALSE(large->done());
  small->drop();
  lease.reset();
  EXPECT_TRUE(soon([&] { return large->has(); }));
  large->drop();
  EXPECT_LE(world_.bytes_max, 30u);
}

TEST_F(ModelPoolTest, WhatNeverFitsIsRefusedByItsNumbers) {
  open(10, {{"a", 10}, {"b", 11}});
  use("a");
  const auto told = want("b");
  ASSERT_TRUE(soon([&] { return told->done(); }));
  EXPECT_EQ(told->code(), Code::kOutOfMemory);
  EXPECT_NE(told->message().find("10 bytes of weights and 1 of states; the server's budget is 10"), std::string::npos)
      << told->message();
  EXPECT_TRUE(loaded("a")) << "nothing made room for it";
  EXPECT_EQ(pool_->load(model("b")).error().code, Code::kOutOfMemory);
}

TEST_F(ModelPoolTest, AFailureIsTriedAgainLater) {
  open(10, {{"a", 10}, {"b", 10}});
  world_.fails = "a";
  for (int i = 0; i < 3; ++i) {
    const auto told = want("a");
    ASSERT_TRUE(soon([&] { return told->done(); }));
    EXPECT_EQ(told->code(), Code::kNotFound);
  }
  EXPECT_EQ(world_.count("a"), 1u);
  EXPECT_EQ(pool_->bytes(), 0u) << "its room is free again";
  use("b");
  std::this_thread::sleep_for(milliseconds(160));
  const auto told = want("a");
  ASSERT_TRUE(soon([&] { return told->done(); }));
  EXPECT_EQ(world_.count("a"), 2u);
  world_.fails.clear();
  std::this_thread::sleep_for(milliseconds(160));
  use("a");
  EXPECT_TRUE(loaded("a"));
}

TEST_F(ModelPoolTest, WhatNobodyAsksForIsLetGoOf) {
  open(100, {{"a", 10}, {"b", 10}}, milliseconds(50));
  use("a");
  auto held = pool_->lease(model("a"));
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_TRUE(loaded("a")) << "in use";
  held.reset();
  ASSERT_TRUE(pool_->status()[0].unloads_in.has_value());
  EXPECT_LE(*pool_->status()[0].unloads_in, milliseconds(50));
  EXPECT_TRUE(soon([&] { return !loaded("a") && pool_->bytes() == 0; }));
  // 0: as soon as it is idle; below 0: never. Anew when it is loaded anew.
  use("b");
  pool_->keep(model("b"), milliseconds(-1));
  EXPECT_FALSE(pool_->status()[1].unloads_in);
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_TRUE(loaded("b"));
  held = pool_->lease(model("b"));
  pool_->keep(model("b"), milliseconds(0));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE(loaded("b"));
  held.reset();
  EXPECT_TRUE(soon([&] { return !loaded("b"); }));
  use("b");
  EXPECT_TRUE(pool_->status()[1].unloads_in.has_value());
  EXPECT_EQ(pool_->status()[1].evictions, 0u);
  EXPECT_EQ(pool_->status()[1].loads, 2u);
}

TEST_F(ModelPoolTest, WhoLeavesIsNotCalled) {
  open(100, {{"a", 10}});
  world_.block(true);
  const auto stays = want("a"), leaves = want("a");
  ASSERT_TRUE(soon([&] { return world_.opens == 1; }));
  EXPECT_NE(pool_->take_back(number_), nullptr);
  EXPECT_EQ(pool_->take_back(number_), nullptr);
  world_.block(false);
  ASSERT_TRUE(soon([&] { return stays->has(); }));
  EXPECT_FALSE(leaves->done());
  stays->drop();
  EXPECT_EQ(pool_->status()[0].leases, 0u);
}

TEST_F(ModelPoolTest, WhatTakesLongIsToldOnce) {
  open(100, {{"a", 10}});
  world_.block(true);
  const auto waits = want("a"), gone = want("a");
  gone->stays = false;
  EXPECT_TRUE(soon([&] { return waits->slow == 1 && pool_->waiting() == 1; }));
  std::this_thread::sleep_for(milliseconds(120));
  EXPECT_EQ(waits->slow, 1);
  world_.block(false);
  EXPECT_TRUE(soon([&] { return waits->has(); }));
  EXPECT_FALSE(gone->done());
  waits->drop();
}

TEST_F(ModelPoolTest, EndsWhileItLoads) {
  open(100, {{"a", 10}, {"b", 10}});
  use("b");
  world_.block(true);
  const auto told = want("a"), other = want("a");
  ASSERT_TRUE(soon([&] { return world_.opens == 1; }));
  pool_->stop();
  EXPECT_EQ(told->code(), Code::kCancelled);
  EXPECT_EQ(other->code(), Code::kCancelled);
  const auto late = want("a");
  EXPECT_TRUE(soon([&] { return late->code() == Code::kCancelled; }));
  std::thread opens([&] {
    std::this_thread::sleep_for(milliseconds(50));
    world_.block(false);
  });
  pool_->close(true);
  opens.join();
  EXPECT_EQ(world_.bytes, 0u);
  EXPECT_EQ(world_.saved.size(), 2u);
}

TEST_F(ModelPoolTest, ManyAskForManyWithinTheBudget) {
  open(25, {{"a", 10}, {"b", 12}, {"c", 7}, {"d", 25}}, milliseconds(5));
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  std::atomic<uint64_t> numbers{0};
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (int i = 0; i < 30; ++i) {
        const std::string name(1, static_cast<char>('a' + random.below(4)));
        auto told = std::make_shared<Told>();
        ModelLease lease = pool_->lease(model(name));
        if (!lease) {
          const uint64_t number = ++numbers;
          pool_->want(model(name), number, std::make_unique<Waiter>(told));
          if (random.below(5) == 0 && pool_->take_back(number)) continue;
          if (!soon([&] { return told->done(); })) return;
          EXPECT_TRUE(told->has());
          lease = std::move(told->got->value());
        }
        EXPECT_EQ(lease.as<Fake>().name(), name);
        ++answered;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answered, 100);
  EXPECT_LE(world_.bytes_max, 25u);
  EXPECT_TRUE(soon([&] { return pool_->bytes() == 0; }));
  EXPECT_EQ(world_.bytes, 0u);
}

}  // namespace
}  // namespace baton::serve
