// Who a model is: every field of its program and every byte of its weights; and what is remembered of it.
#include "baton/model/fingerprint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "baton/base/cache_folder.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/model/model.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(BATON_SOURCE_DIR) / "models";

std::shared_ptr<const Model> load(const fs::path& path) {
  auto model = load_model(path);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : nullptr;
}

FingerprintOptions nowhere() {
  FingerprintOptions options;
  options.folder = fs::path();
  return options;
}

// A folder of its own with a copy of the smallest model.
class FingerprintFiles : public testing::Test {
 protected:
  FingerprintFiles() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy_file(kModels / "dictionary-3m.Q8_0.gguf", file_);
  }
  ~FingerprintFiles() override { fs::remove_all(folder_); }

  void flip(uint64_t offset, std::byte bits) {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto changed = static_cast<char>(static_cast<std::byte>(file.get()) ^ bits);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(changed);
  }
  FingerprintOptions remembering() const {
    FingerprintOptions options;
    options.folder = folder_ / "memory";
    return options;
  }
  std::vector<fs::path> records() const {
    std::vector<fs::path> found;
    if (!fs::exists(folder_ / "memory")) return found;
    for (const auto& entry : fs::directory_iterator(folder_ / "memory")) found.push_back(entry.path());
    return found;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("fingerprint_test_" + std::to_string(::getpid()));
  const fs::path file_ = folder_ / "model.gguf";
};

// Each byte of the struct but its padding.
template <class Struct>
size_t bytes_without_effect(const Program& program, Struct& part) {
  const uint64_t before = program_digest(program);
  size_t without = 0;
  for (size_t at = 0; at < sizeof(Struct); ++at) {
    std::byte* byte = reinterpret_cast<std::byte*>(&part) + at;
    *byte ^= std::byte{1};
    without += program_digest(program) == before ? 1 : 0;
    *byte ^= std::byte{1};
  }
  EXPECT_EQ(program_digest(program), before);
  return without;
}

TEST(Fingerprint, EveryFieldOfEveryOpAndSlotCounts) {
  const auto model = load(kModels / "dictionary-3m.Q8_0.gguf");
  Program program = model->program;
  // Behind `kind`; behind `pairing` and `head_map`; behind `gelu`; behind `routing`.
  constexpr size_t kOpPadding = 3 + 2 + 3 + 3;
  for (Op& op : program.ops) ASSERT_EQ(bytes_without_effect(program, op), kOpPadding);
  for (Slot& slot : program.slots) ASSERT_EQ(bytes_without_effect(program, slot), 3u);
  const uint64_t before = program_digest(program);
  const auto differs = [&](auto change) {
    Program other = program;
    change(other);
    return program_digest(other) != before;
  };
  EXPECT_TRUE(differs([](Program& p) { ++p.vocab; }));
  EXPECT_TRUE(differs([](Program& p) { ++p.hidden; }));
  EXPECT_TRUE(differs([](Program& p) { ++p.output_width; }));
  EXPECT_TRUE(differs([](Program& p) { p.whole_sequence = true; }));
  EXPECT_TRUE(differs([](Program& p) { ++p.registers.back().width; }));
  EXPECT_TRUE(differs([](Program& p) { p.registers.push_back({"x", 1}); }));
  EXPECT_TRUE(differs([](Program& p) { std::swap(p.ops[1], p.ops[2]); }));
  EXPECT_TRUE(differs([](Program& p) { p.slots.pop_back(); }));
  EXPECT_FALSE(differs([](Program& p) { p.registers.back().name = "another"; }));
}

TEST_F(FingerprintFiles, EveryByteOfTheWeightsCounts) {
  const auto original = load(file_);
  const Fingerprints expected = *original->fingerprints(nowhere());
  EXPECT_EQ(expected.model, original->shape_prints.model);
  EXPECT_NE(expected.quantization, original->shape_prints.quantization);
  Random random(5);
  std::set<uint64_t> distinct;
  const std::byte* const start = original->container->files[0].bytes().data();
  for (const TensorView& tensor : original->container->tensors) {
    const auto first = static_cast<uint64_t>(tensor.data.data() - start);
    for (const uint64_t at : {uint64_t{0}, tensor.data.size() - 1, random.below(tensor.data.size())})
      distinct.insert(first + at);
  }
  const std::vector<uint64_t> offsets(distinct.begin(), distinct.end());
  std::set<std::pair<uint64_t, uint64_t>> seen{{expected.model, expected.quantization}};
  size_t loaded = 0;
  for (size_t i = 0; i < offsets.size(); i += static_cast<size_t>(scaled(1, 7))) {
    flip(offsets[i], std::byte{1});
    const auto model = load_model(file_);
    if (model) {  // a scale or a norm that is not a number any more is refused at load
      ++loaded;
      const Fingerprints prints = *(*model)->fingerprints(nowhere());
      EXPECT_TRUE(seen.emplace(prints.model, prints.quantization).second) << "byte " << offsets[i];
    }
    flip(offsets[i], std::byte{1});
  }
  EXPECT_GT(loaded, offsets.size() / 8);
  EXPECT_EQ(*load(file_)->fingerprints(nowhere()), expected);
}

TEST_F(FingerprintFiles, NamesForPeopleDoNotCount) {
  const Fingerprints before = *load(file_)->fingerprints(nowhere());
  std::ifstream in(file_, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const size_t key = bytes.find("general.name");
  ASSERT_NE(key, std::string::npos);
  flip(key + 12 + 4 + 8, std::byte{0x20});  // u32 type, u64 length, text
  const auto renamed = load(file_);
  EXPECT_EQ(*renamed->fingerprints(nowhere()), before);
}

TEST(Fingerprint, ThreadsDoNotMatter) {
  const auto path = kModels / "dictionary-28m.Q8_0.gguf";
  std::optional<Fingerprints> expected;
  for (const uint32_t threads : {1u, 2u, 7u}) {
    FingerprintOptions options = nowhere();
    options.threads = threads;
    uint64_t last = 0, total = 0;
    options.progress = [&](uint64_t done, uint64_t of) {
      EXPECT_GE(of, done);
      EXPECT_GT(done, last);
      last = done;
      total = of;
      return true;
    };
    const auto prints = load(path)->fingerprints(options);
    ASSERT_TRUE(prints) << prints.error().message;
    EXPECT_GT(total, uint64_t{25} << 20);
    if (!expected) expected = *prints;
    EXPECT_EQ(*prints, *expected) << threads;
  }
}

TEST(Fingerprint, CanBeInterruptedAndAskedAgain) {
  const auto model = load(kModels / "dictionary-28m.Q8_0.gguf");
  FingerprintOptions options = nowhere();
  options.progress = [](uint64_t done, uint64_t) { return done < uint64_t{4} << 20; };
  const auto stopped = model->fingerprints(options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
  EXPECT_TRUE(model->fingerprints(nowhere()));
}

TEST_F(FingerprintFiles, AFileChangedInPlaceIsNotWhatWasLoaded) {
  const auto model = load(file_);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the file system's clock
  flip(fs::file_size(file_) - 100, std::byte{1});
  const auto prints = model->fingerprints(nowhere());
  ASSERT_FALSE(prints);
  EXPECT_EQ(prints.error().code, Code::kCorrupt);
  EXPECT_NE(prints.error().message.find(file_.string()), std::string::npos);
}

TEST_F(FingerprintFiles, AFileThatWasReplacedIsSummedAsItWasMapped) {
  const auto model = load(file_);
  const Fingerprints expected = *load(file_)->fingerprints(nowhere());
  const fs::path other = folder_ / "other.gguf";
  fs::copy_file(kModels / "dictionary-28m.Q8_0.gguf", other);
  fs::rename(other, file_);
  EXPECT_EQ(*model->fingerprints(nowhere()), expected);
  fs::remove(file_);
  EXPECT_EQ(*load(kModels / "dictionary-3m.Q8_0.gguf")->fingerprints(nowhere()), expected);
}

// The copy is two seconds old before it is remembered; then its bytes are changed and its times set back.
TEST_F(FingerprintFiles, RememberedByWhatCannotBeSetBack) {
  const auto young = load(file_);
  const Fingerprints expected = *young->fingerprints(remembering());
  EXPECT_TRUE(records().empty());  // too young: a write in the same tick would not show
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(*load(file_)->fingerprints(remembering()), expected);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(remembered_fingerprints(*load(file_), remembering()), expected);

  struct stat times {};
  ASSERT_EQ(::stat(file_.c_str(), &times), 0);
#if defined(__APPLE__)
  const timespec back[2] = {times.st_atimespec, times.st_mtimespec};
#else
  const timespec back[2] = {times.st_atim, times.st_mtim};
#endif
  // Of a matrix: what is small is read, and would show.
  const auto largest = std::max_element(young->weights.begin(), young->weights.end(),
                                        [](const Weight& a, const Weight& b) { return a.bytes < b.bytes; });
  flip(static_cast<uint64_t>(largest->data - young->container->files[0].bytes().data()) + 5, std::byte{1});
  ASSERT_EQ(::utimensat(AT_FDCWD, file_.c_str(), back, 0), 0);
  const auto evil = load(file_);
  EXPECT_EQ(remembered_fingerprints(*evil, remembering()), std::nullopt);
  EXPECT_NE(*evil->fingerprints(remembering()), expected);
}

class FingerprintMemory : public FingerprintFiles {
 protected:
  const fs::path settled_ = kModels / "dictionary-3m.Q8_0.gguf";  // as old as the checkout
};

TEST_F(FingerprintMemory, WhatIsRememberedIsNotReadAgain) {
  const Fingerprints expected = *load(settled_)->fingerprints(remembering());
  ASSERT_EQ(records().size(), 1u) << "the checkout is younger than two seconds";
  FingerprintOptions options = remembering();
  options.progress = [](uint64_t, uint64_t) { return false; };  // any reading would be interrupted
  EXPECT_EQ(*load(settled_)->fingerprints(options), expected);
}

TEST_F(FingerprintMemory, DamageIsAsIfItWereNotThere) {
  const Fingerprints expected = *load(settled_)->fingerprints(remembering());
  ASSERT_EQ(records().size(), 1u);
  const fs::path record = records().front();
  std::ifstream in(record, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto model = load(settled_);
  for (size_t at = 0; at <= good.size(); ++at) {
    std::string bad = good;
    at < good.size() ? static_cast<void>(bad[at] ^= 1) : bad.push_back('\n');
    std::ofstream(record, std::ios::binary) << bad;
    ASSERT_EQ(remembered_fingerprints(*model, remembering()), std::nullopt) << "byte " << at;
    if (at % 16 == 0 && at < good.size()) {
      std::ofstream(record, std::ios::binary) << bad.substr(0, at);
      ASSERT_EQ(remembered_fingerprints(*model, remembering()), std::nullopt) << at << " bytes";
    }
  }
  EXPECT_EQ(*model->fingerprints(remembering()), expected);  // written anew
  EXPECT_EQ(remembered_fingerprints(*load(settled_), remembering()), expected);
}

TEST_F(FingerprintMemory, NowhereToWriteIsNoError) {
  const auto expected = *load(settled_)->fingerprints(nowhere());
  FingerprintOptions options;
  options.folder = file_ / "below-a-file";
  EXPECT_EQ(*load(settled_)->fingerprints(options), expected);
  options.folder = "/proc/self/none";
  EXPECT_EQ(*load(settled_)->fingerprints(options), expected);
}

TEST_F(FingerprintMemory, TheOldestAreDropped) {
  const fs::path memory = folder_ / "memory";
  fs::create_directories(memory);
  for (size_t i = 0; i < kRememberedMax + 20; ++i) {
    char name[24];
    std::snprintf(name, sizeof(name), "%016zx.txt", i);
    std::ofstream(memory / name) << "old";
    fs::last_write_time(memory / name, fs::file_time_type::clock::now() - std::chrono::hours(1 + i));
  }
  std::ofstream(memory / "notes.txt") << "of somebody else";
  EXPECT_TRUE(load(settled_)->fingerprints(remembering()));
  EXPECT_EQ(records().size(), kRememberedMax + 1);
  EXPECT_TRUE(fs::exists(memory / "notes.txt"));
  EXPECT_TRUE(fs::exists(memory / "0000000000000000.txt"));
  EXPECT_FALSE(fs::exists(memory / "0000000000000113.txt"));
  EXPECT_TRUE(remembered_fingerprints(*load(settled_), remembering()));
}

TEST(CacheFolder, FollowsTheEnvironment) {
  const char* old = std::getenv("XDG_CACHE_HOME");
  const std::string kept = old != nullptr ? old : "";
#if !defined(__APPLE__)
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_folder(), "/somewhere/baton");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_TRUE(cache_folder().empty() || cache_folder().filename() == "baton");
  EXPECT_NE(cache_folder(), "relative/baton");
#endif
  old != nullptr ? ::setenv("XDG_CACHE_HOME", kept.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace baton
