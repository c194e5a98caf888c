// Runs a checked MIL program with the numerics of the emulated engine: every result stored in fp16, f32 sums, no NaN.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "baton/unit/apple/mac.h"
#include "baton/unit/apple/mil_graph.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {

// Owner: one; used from one thread at a time. Borrows the graph.
class Runner {
 public:
  Runner(const Graph& graph, const Numerics& numerics);

  // Floats of scratch that run() needs.
  size_t scratch_floats() const { return scratch_floats_; }

  // Ports in bound order, at least port_bytes each, rows at multiples of 64 bytes. Never fails: what the arithmetic met
  // is in the warnings. `scratch` holds at least scratch_floats().
  void run(std::span<const std::span<const std::byte>> inputs, std::span<const std::span<std::byte>> outputs,
           std::span<float> scratch, ThreadPool& pool, Diagnostics& diagnostics);

  // Largest finite magnitude of any result so far.
  float abs_max() const { return abs_max_; }
  bool uses_tile() const;

 private:
  struct Constant {
    std::vector<float> values;          // of operands
    std::vector<uint16_t> halves;       // weights that are not fp16 bytes of a file
    std::unique_ptr<MacMatrix> matrix;  // conv and linear weights
  };
  struct Run;

  void prepare_constant(int32_t index, bool as_matrix);

  const Graph& graph_;
  const Numerics numerics_;
  std::vector<Constant> constants_;  // by value index
  std::vector<size_t> offsets_;      // of activations in the scratch, by value index
  size_t scratch_floats_ = 0;
  float abs_max_ = 0;
};

}  // namespace baton::apple
