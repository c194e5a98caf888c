// Blocks of Objective-C from C++ without compiler support, as the Block ABI of clang lays them out: a literal {isa,
// flags, reserved, invoke, descriptor} and, behind it, what the function needs. They are marked global, so that the
// runtime neither copies nor frees them: the owner keeps them until they cannot be called any more.
#pragma once

#include <cstdint>

#include "baton/unit/apple/objc.h"

namespace baton::coreml {

inline constexpr int32_t kBlockIsGlobal = 1 << 28, kBlockHasSignature = 1 << 30;

struct BlockDescriptor {
  unsigned long reserved;
  unsigned long size;
  const char* signature;
};

// A block whose function is called as function(block, arguments...); `context` is its own.
struct Block {
  // `isa_address`: that of _NSConcreteGlobalBlock.
  Block(void* isa_address, void* function, const BlockDescriptor& kind, void* own)
      : isa(isa_address), invoke(function), descriptor(&kind), context(own) {}

  void* isa;
  int32_t flags = kBlockIsGlobal | kBlockHasSignature;
  int32_t reserved = 0;
  void* invoke;
  const BlockDescriptor* descriptor;
  void* context;
};

}  // namespace baton::coreml
