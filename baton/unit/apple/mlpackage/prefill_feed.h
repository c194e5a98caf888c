// The host's side of a prefill through packages: inputs from tokens and a state, a state from outputs. What runs a
// package is a function, so that tests, the interpreter and the system's framework share the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "baton/model/model.h"
#include "baton/state/shape.h"
#include "baton/unit/apple/mlpackage/package.h"
#include "baton/unit/apple/mlpackage/prefill_graph.h"

namespace baton::apple {

// hidden, keep, rope_cos, rope_sin and past_keep for 1 to shape.seq tokens after `position` others. Padding columns
// hold the first token's embedding. kInvalidInput when an embedding is beyond fp16.
Result<HalfArrays> token_inputs(const Model& model, const PrefillShape& shape, uint64_t position,
                                std::span<const int32_t> tokens);

// A slot's values on the host, [dims], tokens dim: room; f32 or f16. at(a, b): the dense row of dims[2] values there.
struct SlotMemory {
  DType dtype = DType::kF16;
  Dims dims{};
  std::function<std::byte*(uint64_t, uint64_t)> at;
};

// Adds the states of `layers` to the inputs of a package with a past. `slots`: one a slot of the program.
Status add_state_inputs(const Program& program, const LayerRange& layers, const PrefillShape& shape,
                        std::span<const SlotMemory> slots, uint64_t position, HalfArrays* inputs);

// Puts the outputs for the last `tokens` columns into the state: keys and values at rows [position, position + tokens),
// the other slots whole. kDevice names an output that is missing, has another size or is not finite.
Status store_state_outputs(const Program& program, const LayerRange& layers, const PrefillShape& shape,
                           const HalfArrays& outputs, uint64_t position, uint64_t tokens,
                           std::span<const SlotMemory> slots);

// Runs the package of a chunk: its inputs to its outputs.
using PackageCall = std::function<Result<HalfArrays>(size_t chunk, const HalfArrays& inputs)>;

// All chunks in order for 1 to shape.seq tokens. `hidden` receives tokens * hidden values of the residual stream behind
// the last layer, token by token; empty: not wanted.
Status run_chunks(const Model& model, const PrefillShape& shape, std::span<const LayerRange> chunks,
                  const PackageCall& call, uint64_t position, std::span<const int32_t> tokens,
                  std::span<const SlotMemory> slots, std::span<float> hidden);

}  // namespace baton::apple
