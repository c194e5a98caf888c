// The words of a grammar: a byte automaton, or a counted run between two of its states.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "baton/grammar/byte_dfa.h"

namespace baton::grammar {

// Of an automaton that has one state, `loop`, to which it comes back behind each item (a character of a string): how
// many there may be. A state is then the automaton's and the count, so that a long bound costs nothing.
struct Counted {
  uint32_t loop = 0;
  uint32_t min = 0, max = kUnbounded;
  bool operator==(const Counted&) const = default;
};
inline constexpr uint32_t kCountMax = 10'000'000;

// Immutable.
class Terminal {
 public:
  // `id`: no other terminal of the process has it, as vocabularies keep masks by it.
  Terminal(uint32_t id, ByteDfa dfa) : id_(id), dfa_(std::move(dfa)) {}
  Terminal(uint32_t id, ByteDfa dfa, Counted counted);

  uint32_t id() const { return id_; }
  bool nullable() const { return accepting(0); }
  bool accepting(uint32_t state) const { return dfa_.accepting[counts_ ? state % dfa_.states() : state] != 0; }
  uint32_t step(uint32_t state, uint8_t byte) const {
    return counts_ ? step_counted(state, byte) : dfa_.step(state, byte);
  }
  // A state that lets through the same texts of up to `longest` bytes.
  uint32_t representative(uint32_t state, uint32_t longest) const;
  const ByteDfa& dfa() const { return dfa_; }
  bool is(const ByteDfa& dfa, const Counted* counted) const;

 private:
  uint32_t step_counted(uint32_t state, uint8_t byte) const;

  uint32_t id_;
  ByteDfa dfa_;
  bool counts_ = false;
  Counted counted_;
};

// Equal terminals are one, so that grammars share masks: of strings, numbers, punctuation. Any thread.
class TerminalStore {
 public:
  std::shared_ptr<const Terminal> intern(ByteDfa dfa);
  std::shared_ptr<const Terminal> intern(ByteDfa dfa, Counted counted);

 private:
  std::shared_ptr<const Terminal> find_or_add(ByteDfa dfa, const Counted* counted);

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::weak_ptr<const Terminal>> known_;  // by hash
  size_t sweep_at_ = 1024;
};

}  // namespace baton::grammar
