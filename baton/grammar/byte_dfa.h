// Deterministic automata over bytes: from regular expressions, and their products.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/grammar/regex_tree.h"

namespace baton::grammar {

// Work that a compilation may still do, in steps of a few ns: the same schema is refused on every machine.
class Budget {
 public:
  explicit Budget(uint64_t steps) : steps_(steps), left_(steps) {}
  // False: used up; it stays so.
  bool spend(uint64_t steps) {
    left_ -= std::min(left_, steps);
    return left_ > 0;
  }
  uint64_t used() const { return steps_ - left_; }

 private:
  uint64_t steps_, left_;
};
// What is said when it is.
tl::unexpected<Error> too_much_work();

inline constexpr uint32_t kDead = UINT32_MAX;

// State 0 is the start. From every state one that accepts is reached; of a language without texts there is no state.
struct ByteDfa {
  std::array<uint8_t, 256> class_of{};
  uint32_t classes = 1;
  std::vector<uint32_t> next;      // [states][classes]; kDead
  std::vector<uint8_t> accepting;  // [states]

  uint32_t states() const { return static_cast<uint32_t>(accepting.size()); }
  uint32_t step(uint32_t state, uint8_t byte) const { return next[size_t{state} * classes + class_of[byte]]; }
  bool matches(std::string_view text) const;
  bool operator==(const ByteDfa&) const = default;
};

// kOutOfMemory: more than `states_max` states, which a graph of smaller parts may avoid. kUnsupported: the budget.
Result<ByteDfa> determinise(const RegexPool& pool, RegexId root, uint32_t states_max, Budget* budget);

enum class Product : uint8_t { kBoth, kFirstOnly };
// Texts of both, or of the first that are not of the second.
Result<ByteDfa> product(const ByteDfa& a, const ByteDfa& b, Product kind, uint32_t states_max, Budget* budget);

struct Counted;
// Texts of `a` that `b`, counting so, accepts too.
Result<ByteDfa> product(const ByteDfa& a, const ByteDfa& b, const Counted& counted, uint32_t states_max,
                        Budget* budget);

// Without states that no text needs, equal ones put together (where few rounds tell), numbered in order of first use:
// equal languages mostly give equal automata.
ByteDfa minimized(ByteDfa dfa);

}  // namespace baton::grammar
