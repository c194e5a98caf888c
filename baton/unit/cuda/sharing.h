// Whether several sequences that decode share a step, or have one each, one behind the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace baton::cuda {

// Both ways give the same bits. A step of one row has kernels of its own, so that which way is faster depends on the
// model and the card: both are tried a few times for each number of sequences, and the one whose fastest step was
// faster is taken from then on.
class Sharing {
 public:
  static constexpr size_t kSeatsMax = 8;  // more always share
  static constexpr uint32_t kTries = 4;   // each way

  bool alone(size_t seats) const {
    if (seats < 2 || seats > kSeatsMax) return false;
    const Tried& tried = tried_[seats];
    if (tried.alone.count < kTries) return true;
    return tried.shared.count >= kTries && tried.alone.best < tried.shared.best;
  }
  // Whether it is not known yet.
  bool tries(size_t seats) const {
    if (seats < 2 || seats > kSeatsMax) return false;
    return tried_[seats].alone.count < kTries || tried_[seats].shared.count < kTries;
  }
  // A step of so many took `ns`, all of them.
  void took(size_t seats, bool alone, int64_t ns) {
    if (seats < 2 || seats > kSeatsMax) return;
    Way& way = alone ? tried_[seats].alone : tried_[seats].shared;
    if (way.count >= kTries) return;
    ++way.count;
    if (ns < way.best) way.best = ns;
  }

 private:
  struct Way {
    uint32_t count = 0;
    int64_t best = std::numeric_limits<int64_t>::max();
  };
  struct Tried {
    Way alone, shared;
  };
  std::array<Tried, kSeatsMax + 1> tried_ = {};
};

}  // namespace baton::cuda
