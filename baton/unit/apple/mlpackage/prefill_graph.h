// A range of layers as the block of a Core ML program that prefills a fixed number of tokens (docs/coreml.md). Tensors
// are fp16 [1, C, 1, S]: a token is a column, and prompts shorter than S stand at the right, after padding.
//
// Inputs:  hidden [1, hidden, 1, S]   the residual stream; padding columns hold anything finite
//          keep [1, 1, 1, S]          1 for a token, 0 for padding
//          rope_cos, rope_sin [1, 1, rotary / 2, S]   of each column's position; only when the layers rotate
//   with a past of P tokens also
//          past_keep [1, 1, 1, P]     1 where the past holds a token
//          layer_<i>_keys, layer_<i>_values [1, kv_heads, P, head_dim]
//          layer_<i>_conv [1, 1, taps - 1, channels], layer_<i>_recurrent [1, value_heads, key_dim, value_dim]
// Outputs: hidden_out, and layer_<i>_<slot>_out for each slot: keys and values of the S columns, the others as above.
// Keys, values and states do not depend on what padding columns hold.
#pragma once

#include <cstdint>
#include <string>

#include "baton/model/model.h"
#include "baton/unit/apple/mlpackage/mil_block.h"

namespace baton::apple {

inline constexpr int32_t kSeqMin = 8, kSeqMax = 4096, kSeqMultiple = 8;
inline constexpr int32_t kDeltaChunkMax = 64;  // tokens of a chunk of the delta rule

// Outputs of the delta rule are small: in the bundled models two thirds of them are subnormal in fp16 after the first
// chunk. Chips whose multipliers take subnormal values as 0 (M1, M3) would answer 5 to 19 % off. Values are multiplied
// by this, the state on its way in, too; the norm behind divides it out by an eps times its square, and the state is
// divided on its way out. A power of two: the same result in f32. As published by a project that runs such layers
// there.
inline constexpr float kDeltaCarrier = 64;

struct PrefillShape {
  int32_t seq = 0;   // columns: a multiple of kSeqMultiple
  int32_t past = 0;  // tokens of keys and values that come before; 0: from the start, with no state as input
  // Values of the delta rule are this much larger inside a package: see kDeltaCarrier. 1 only to show what it is for.
  float carrier = kDeltaCarrier;

  friend bool operator==(const PrefillShape&, const PrefillShape&) = default;
};

struct LayerRange {
  int32_t begin = 0, end = 0;
};

// "layer_3_keys"
std::string state_feature(SlotKind kind, int32_t layer);
// The first kRope of the program, which all others must equal in base, width and divisors; null when none rotates.
// kUnsupported when they differ.
Result<const Op*> common_rope(const Program& program);
// Whether every op of the layers can be written. kUnsupported names the op.
Status check_lowerable(const Model& model);

// Adds inputs, ops and outputs of `layers`. The block is new. `report` is added to.
Status lower_prefill(const Model& model, const LayerRange& layers, const PrefillShape& shape, MilBlock& block,
                     RangeReport* report);

}  // namespace baton::apple
