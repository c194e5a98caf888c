// Follows a grammar byte by byte: all ways at once, with the rules they came through as shared stacks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "baton/grammar/grammar.h"
#include "baton/grammar/vocabulary.h"

namespace baton::grammar {

// Of one answer; one thread. A stack is the set of all places to go on from when a rule or terminal ends, so that ways
// that differ only in what lies behind them are one: the work at a byte does not grow with the number of ways (an
// Earley parser's items, kept by what they mean and not by where they began).
class Matcher {
 public:
  static constexpr uint32_t kDepthMax = 500;     // of nested rules: deeper ones are not begun
  static constexpr uint32_t kWaysMax = 4096;     // at one byte
  static constexpr size_t kFramesMax = 4 << 20;  // kept

  Matcher(std::shared_ptr<const Grammar> grammar, bool spaced);

  void reset();
  // False, and everything as before: nothing that matches begins like this.
  bool push(std::string_view bytes);
  bool can_end() const { return now_.ends; }
  // Bits for what may come next; stop ids are not its business. Words beyond those of the vocabulary stay.
  void allow(const Vocabulary& vocabulary, std::span<uint32_t> bits);
  // A limit above was met, so that something that matches was not let through.
  bool overflowed() const { return overflowed_; }

 private:
  struct Frame {
    uint32_t node = 0;
    uint32_t stack = 0;
    auto operator<=>(const Frame&) const = default;
  };
  struct Stack {
    uint32_t frames = 0, count = 0;  // in frames_
    uint32_t depth = 0;
  };
  struct Way {
    uint32_t terminal = 0;
    uint32_t state = 0;
    uint32_t stack = 0;
  };
  struct State {
    std::vector<Way> ways;
    bool ends = false;
  };
  class Closing;

  std::span<const Frame> frames(uint32_t stack) const {
    return std::span(frames_).subspan(stacks_[stack].frames, stacks_[stack].count);
  }
  uint32_t intern(std::vector<Frame>* frames);
  uint32_t join(uint32_t a, uint32_t b);
  // What may come when `stack` is gone on from.
  const State& behind(uint32_t stack);
  bool step(const State& from, uint8_t byte, State* to);
  // Tokens in the subtree of `node`, to which the way has come; `level`: of terminals that ended on the way.
  void allow(const Vocabulary& vocabulary, const Way& way, uint32_t node, size_t level, std::span<uint32_t> bits);
  void walk(const Vocabulary& vocabulary, uint32_t node, const State& from, std::span<uint32_t> bits);
  void collect();

  std::shared_ptr<const Grammar> grammar_;
  bool spaced_;
  State now_;
  bool overflowed_ = false;

  std::vector<Stack> stacks_;
  std::vector<Frame> frames_;
  std::unordered_multimap<uint64_t, uint32_t> known_;  // stacks by hash
  std::unordered_map<uint32_t, State> behind_;         // by stack; what it holds does not move
  std::vector<State> depths_;                          // scratch of walks
  std::deque<State> levels_;                           // and of masks within masks: they do not move
  State scratch_;
  std::vector<uint32_t> completed_;
  size_t collect_at_ = 1 << 16;
};

}  // namespace baton::grammar
