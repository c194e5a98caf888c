// A folder of states: what is found in it, what outlives the cache, what goes for room, and what is left alone.
#include "baton/state/state_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "baton/base/random.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class StateCacheTest : public testing::Test {
 protected:
  StateCacheTest() { fs::remove_all(folder_); }
  ~StateCacheTest() override { fs::remove_all(folder_); }

  StateCacheOptions options() const { return {folder_, bytes_max_, identity_, shape_, 16, 100, nullptr}; }
  std::unique_ptr<StateCache> open() const {
    auto cache = StateCache::open(options());
    EXPECT_TRUE(cache) << cache.error().message;
    return std::move(*cache);
  }
  std::vector<std::byte> block(const std::vector<int32_t>& tokens, const std::string& unit = "cpu") const {
    Random random(tokens.size());
    return test::sealed_block(identity_, tokens, shape_, made(tokens, unit), [&](size_t) { return random.normal(); });
  }
  static Provenance made(const std::vector<int32_t>& tokens, const std::string& unit = "cpu") {
    return Provenance::of(unit, unit + "/x", tokens.size());
  }
  bool keep(StateCache& cache, const std::vector<int32_t>& tokens, double ms = 10, const std::string& unit = "cpu") {
    const auto kept = cache.keep(SealSource::owned(block(tokens, unit)), tokens, made(tokens, unit), ms);
    EXPECT_TRUE(kept) << kept.error().message;
    return kept && *kept;
  }
  static std::vector<int32_t> found(StateCache& cache, const std::vector<int32_t>& tokens, uint64_t above = 0) {
    const auto state = cache.find(tokens, above, [](const Provenance&) { return true; });
    return state ? state->tokens : std::vector<int32_t>();
  }
  std::vector<CacheFile> files() const { return list_cache(folder_).value(); }

  const fs::path folder_ = fs::path(testing::TempDir()) / fmt::format("baton-state-cache-{}", ::getpid());
  StateIdentity identity_{7, 8, 9};
  uint64_t bytes_max_ = 1 << 20;
  const StateShape shape_ = state_shape(test::fake_program(4, 2, 2, 6, 9, 7, 3, 11), DType::kF16);
  const std::vector<int32_t> two_ = {1, 2}, five_ = {1, 2, 3, 4, 5}, other_ = {1, 2, 9}, asked_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(StateCacheTest, TheLongestBeginningIsFound) {
  const auto cache = open();
  for (const auto& tokens : {two_, five_, other_}) EXPECT_TRUE(keep(*cache, tokens));
  EXPECT_EQ(found(*cache, asked_), five_);
  EXPECT_EQ(found(*cache, five_), five_);
  EXPECT_EQ(found(*cache, {1, 2, 3, 4}), two_);
  EXPECT_EQ(found(*cache, {1, 2, 9, 9}), other_);
  EXPECT_EQ(found(*cache, asked_, 4), five_);
  EXPECT_EQ(found(*cache, asked_, 5), std::vector<int32_t>());
  EXPECT_EQ(found(*cache, {2, 1}), std::vector<int32_t>());
  const auto holds = [&](const std::vector<int32_t>& tokens, const std::string& maker) {
    return cache->contains(tokens, [&](const Provenance& there) { return there.makers.at(0).unit == maker; });
  };
  EXPECT_TRUE(holds(five_, made(five_).makers.at(0).unit));
  EXPECT_FALSE(holds(five_, "ref"));
  EXPECT_FALSE(holds(asked_, made(asked_).makers.at(0).unit));
  const auto of_two = cache->find(asked_, 0, [](const Provenance& provenance) { return provenance.tokens() < 3; });
  ASSERT_TRUE(of_two);
  EXPECT_EQ(of_two->tokens, two_);
}

TEST_F(StateCacheTest, WhatWasKeptOutlivesIt) {
  {
    const auto cache = open();
    EXPECT_TRUE(keep(*cache, five_));
    EXPECT_TRUE(keep(*cache, five_, 10, "ref"));
  }
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  for (const CacheFile& file : files()) {
    ASSERT_EQ(::stat(file.path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(file.tokens, 5u);
    EXPECT_EQ(file.ms, 10);
    EXPECT_EQ(file.bytes, block(five_).size());
  }
  const auto cache = open();
  EXPECT_EQ(cache->size(), 2u);
  for (const char* unit : {"cpu", "ref"}) {
    const auto state = cache->find(asked_, 0, [&](const Provenance& made) { return made.makers[0].unit == unit; });
    ASSERT_TRUE(state);
    EXPECT_EQ(state->provenance, made(five_, unit));
    EXPECT_EQ(state->source.block().value(), block(five_, unit));
    // Who has it open reads on when it goes.
    const bool damaged = state->provenance.makers[0].unit == "cpu";
    cache->refuse(state->file, damaged);
    EXPECT_EQ(fs::exists(state->file), !damaged);
    EXPECT_EQ(state->source.block().value(), block(five_, unit));
  }
  EXPECT_EQ(found(*cache, asked_), std::vector<int32_t>());
}

TEST_F(StateCacheTest, OthersFilesAreLeftAlone) {
  {
    const auto cache = open();
    EXPECT_TRUE(keep(*cache, five_));
    EXPECT_TRUE(keep(*cache, two_));
  }
  identity_.quantization = 80;
  const auto of_another = open();
  EXPECT_EQ(of_another->size(), 0u);
  EXPECT_EQ(found(*of_another, asked_), std::vector<int32_t>());
  identity_.quantization = 8;
  // One bit of the tokens of one file, of the header of the other.
  for (const CacheFile& file : files()) {
    std::fstream stream(file.path, std::ios::binary | std::ios::in | std::ios::out);
    const auto bytes = block(file.tokens == 2 ? two_ : five_);
    const auto listing = open_seal(bytes, {identity_, &shape_, nullptr, 16, 100}).value();
    const std::streamoff at = file.tokens == 2 ? 40 : listing.sections[0].bytes.data() - bytes.data() - 64;
    stream.seekp(at);
    stream.put(static_cast<char>(static_cast<unsigned char>(bytes[static_cast<size_t>(at)]) ^ 4));
  }
  std::ofstream(folder_ / "notes.txt") << "mine";
  std::ofstream(folder_ / "0123456789abcdef-5t-10ms.state") << "not a state";
  const auto damaged = open();
  EXPECT_EQ(damaged->size(), 0u);
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
}

TEST_F(StateCacheTest, RoomIsMadeByWhatIsCheapestToMakeAgain) {
  const uint64_t each = block(five_).size();
  bytes_max_ = 3 * each;
  const auto cache = open();
  const std::vector<std::vector<int32_t>> states = {{1, 1, 1, 1, 1}, {2, 2, 2, 2, 2}, {3, 3, 3, 3, 3}};
  EXPECT_TRUE(keep(*cache, states[0], 1000));
  EXPECT_TRUE(keep(*cache, states[1], 10));
  EXPECT_TRUE(keep(*cache, states[2], 500));
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const CacheFile& file : files()) fs::last_write_time(file.path, long_ago);
  std::ofstream(folder_ / "notes.txt") << "mine";
  EXPECT_TRUE(keep(*cache, {4, 4, 4, 4, 4}, 1));
  EXPECT_EQ(found(*cache, states[1]), std::vector<int32_t>());
  // The dearest of all goes when nobody asked for it: its use is what the others had.
  for (const CacheFile& file : files()) fs::last_write_time(file.path, long_ago);
  EXPECT_EQ(found(*cache, states[2]), states[2]);
  EXPECT_EQ(found(*cache, {4, 4, 4, 4, 4}), (std::vector<int32_t>{4, 4, 4, 4, 4}));
  EXPECT_TRUE(keep(*cache, {5, 5, 5, 5, 5}, 10));
  EXPECT_EQ(found(*cache, states[0]), std::vector<int32_t>());
  EXPECT_EQ(found(*cache, states[2]), states[2]);
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
  bytes_max_ = each - 1;
  EXPECT_EQ(files().size(), 3u);
  const auto small = open();
  EXPECT_EQ(files().size(), 0u) << "the folder keeps a smaller bound too";
  EXPECT_EQ(small->size(), 0u);
  EXPECT_FALSE(keep(*small, asked_, 1e6));
}

TEST_F(StateCacheTest, AStateIsThereOnce) {
  const auto cache = open(), another = open();
  EXPECT_TRUE(keep(*cache, five_, 10));
  EXPECT_TRUE(keep(*another, five_, 20));
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(found(*another, asked_), five_);
  EXPECT_EQ(found(*cache, asked_), std::vector<int32_t>()) << "the file it knew is gone";
  EXPECT_EQ(cache->size(), 0u);
}

TEST_F(StateCacheTest, UnderAKeyOnlyWhatCarriesItsMacIsThere) {
  { EXPECT_TRUE(keep(*open(), five_)); }
  const std::vector<std::byte> secret = [] {
    std::vector<std::byte> bytes(32);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    return bytes;
  }();
  const StateKey key = StateKey::from_bytes(secret).value();
  StateCacheOptions keyed = options();
  keyed.key = &key;
  const auto cache = StateCache::open(keyed).value();
  EXPECT_EQ(cache->size(), 0u);
  EXPECT_TRUE(keep(*cache, two_));
  EXPECT_EQ(StateCache::open(keyed).value()->size(), 1u);
  EXPECT_EQ(found(*open(), asked_), five_) << "without the key, what carries none";
  // A changed value shows when the state is read.
  const auto state = cache->find(asked_, 0, [](const Provenance&) { return true; });
  ASSERT_TRUE(state);
  std::fstream stream(state->file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(-100, std::ios::end);
  stream.put('\x7f');
  stream.flush();
  EXPECT_FALSE(state->source.block());
}

TEST_F(StateCacheTest, FoldersThatCannotBe) {
  std::ofstream(folder_.string()) << "a file";
  const auto file = StateCache::open(options());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kInvalidInput);
  EXPECT_NE(file.error().message.find(folder_.string()), std::string::npos);
  fs::remove(folder_);
  StateCacheOptions deep = options();
  deep.folder = folder_ / "a" / "b";
  const auto missing = StateCache::open(deep);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace baton
