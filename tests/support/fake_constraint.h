// A constraint without a grammar: which ids may come next follows from a hash of all that came, so that one that was
// lost, told twice or told late allows other ids.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/base/random.h"
#include "baton/sample/constraint.h"

namespace baton::fake {

class Constraint final : public TokenConstraint {
 public:
  // Of the ids below `vocab` about one in `one_of` may come next, and one at least.
  explicit Constraint(uint64_t seed, int32_t vocab, uint64_t one_of = 3)
      : seed_(seed), vocab_(vocab), one_of_(one_of), hash_(seed) {}
  // As this one was at its beginning, for who draws the same again.
  std::shared_ptr<Constraint> again() const { return std::make_shared<Constraint>(seed_, vocab_, one_of_); }

  bool allows(int32_t id) const {
    return id == static_cast<int32_t>(Random(hash_).below(static_cast<uint64_t>(vocab_))) ||
           Random(hash_ + 1 + static_cast<uint64_t>(id)).below(one_of_) == 0;
  }
  void allow(std::span<uint32_t> allowed) override {
    std::fill(allowed.begin(), allowed.end(), 0u);
    for (int32_t id = 0; id < vocab_ && !allows_none; ++id) {
      if (allows(id)) allowed[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    if (allows_beyond) allowed.back() |= ~0u << (vocab_ % 32);
  }
  Status accept(int32_t id) override {
    if (refuses_at == accepted.size()) return fail(Code::kInternal, "the fake constraint refuses");
    if (!allows(id)) return fail(Code::kInternal, "id " + std::to_string(id) + " was not allowed");
    accepted.push_back(id);
    hash_ = Random(hash_ ^ (static_cast<uint64_t>(id) + 1)).next();
    return {};
  }
  void reset() override {
    hash_ = seed_;
    accepted.clear();
  }

  std::vector<int32_t> accepted;
  bool allows_none = false;
  bool allows_beyond = false;  // ids that no token has; of a vocabulary that is no multiple of 32
  size_t refuses_at = SIZE_MAX;

 private:
  const uint64_t seed_;
  const int32_t vocab_;
  const uint64_t one_of_;
  uint64_t hash_;
};

}  // namespace baton::fake
