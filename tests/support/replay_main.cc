// Runs a fuzz target without libFuzzer: every seed of the corpus folder, its truncations, and seeded mutations of it.
// Any compiler and any sanitizer can run it; a failing input is written beside the program and named.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/random.h"
#include "tests/support/smoke.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMutatedBytesMax = 64 << 10;  // larger seeds are replayed as they are

Bytes mutate(const Bytes& seed, baton::Random& random) {
  Bytes bytes = seed;
  const uint64_t edits = 1 + random.below(8);
  for (uint64_t i = 0; i < edits && !bytes.empty(); ++i) {
    const size_t at = random.below(bytes.size());
    switch (random.below(5)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << random.below(8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(random.next());
        break;
      case 2:
        bytes[at] = random.below(2) == 0 ? 0x00 : 0xff;
        break;
      case 3:
        bytes.resize(at);
        break;
      default: {
        const size_t from = random.below(bytes.size());
        const size_t count = std::min<size_t>(random.below(32), bytes.size() - from);
        const Bytes piece(bytes.begin() + static_cast<ptrdiff_t>(from),
                          bytes.begin() + static_cast<ptrdiff_t>(from + count));
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), piece.begin(), piece.end());
      }
    }
  }
  return bytes;
}

// The input is in the file before it runs: when the target crashes, it stays there. One descriptor for all inputs:
// truncating through open() makes ext4 flush every file, 2 ms each.
class CrashFile {
 public:
  explicit CrashFile(std::string path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  }
  void run(const Bytes& input) const {
    if (descriptor_ < 0 || ::pwrite(descriptor_, input.data(), input.size(), 0) < 0 ||
        ::ftruncate(descriptor_, static_cast<off_t>(input.size())) != 0) {
      std::fprintf(stderr, "%s: cannot be written\n", path_.c_str());
      std::exit(1);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  void remove() const { std::filesystem::remove(path_); }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) seeds.push_back(entry.path());
  }
  std::sort(seeds.begin(), seeds.end());
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no seeds\n", argv[1]);
    return 1;
  }
  const CrashFile crash_file(std::string(argv[0]) + ".crash");
  const int rounds_total = baton::scaled(20000, 2000);
  const int rounds = std::max(1, rounds_total / static_cast<int>(seeds.size()));
  int runs = 0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ifstream in(seeds[i], std::ios::binary);
    const Bytes seed((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    crash_file.run(seed);
    ++runs;
    if (seed.size() > kMutatedBytesMax) continue;
    baton::Random random(i);
    for (int round = 0; round < rounds; ++round, ++runs) crash_file.run(mutate(seed, random));
  }
  crash_file.remove();
  std::printf("%zu seeds, %d inputs\n", seeds.size(), runs);
  return 0;
}
