// The innermost loops of limits.h, in assembly, so that they are the same in every build.
#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/bench/limits.h"

namespace baton {

// The exclusive or of all 64-bit words of `bytes` bytes, a multiple of 512; 64-byte aligned.
using ReadLoop = uint64_t (*)(const unsigned char* data, size_t bytes);
ReadLoop best_read_loop();

struct ArithmeticLoop {
  const char* name;   // "int8 vpdpbusd zmm"
  double operations;  // of one round
  void (*run)(uint64_t rounds);
};
// kUnsupported when the processor or this build has not got it.
Result<ArithmeticLoop> arithmetic_loop(Arithmetic which);

}  // namespace baton
