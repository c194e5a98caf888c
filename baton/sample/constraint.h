// What an answer may be, token by token: a grammar over the tokenizer's bytes, say. The sampler asks it before each
// draw and tells it what was drawn.
#pragma once

#include <cstdint>
#include <span>

#include "baton/base/status.h"

namespace baton {

// Of one sequence; used from one thread at a time, in the order of its draws.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit `id % 32` of word `id / 32` for each id that may come next, and clears all others; never none: where
  // nothing but the end may follow, the stop ids are what is left. `allowed`: ceil(vocab / 32) words.
  virtual void allow(std::span<uint32_t> allowed) = 0;
  // `id`, one of those allowed, was drawn. kInternal: it cannot be.
  virtual Status accept(int32_t id) = 0;
  // As at the beginning: the sequence is drawn again.
  virtual void reset() = 0;
};

}  // namespace baton
