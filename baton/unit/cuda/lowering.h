// A Program as a list of instructions, fused: a pure function of the Program, of what its weights are stored as, and of
// how many rows it is for.
//
// - Norms and gates in front of products become their prologues, residual sums and gated activations their epilogues;
//   consecutive products of one register become one instruction.
// - Convolution and delta rule are one: of a row that decodes a pass over the state, of prompts that go in chunks what
//   these begin with.
// - What only leads to outputs is the tail: it runs for the rows whose outputs are asked for, and those are picked
// first.
// - Of many rows, products run on tensor cores, from operands that are rounded before; those of F32 matrices do not,
//   and none does where `products` says so.
#pragma once

#include <functional>
#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

enum class RowCount : uint8_t {
  kFew,   // one row of each run; runs decode
  kMany,  // rows of prompts
};
enum class Products : uint8_t { kBF16, kF32 };

inline constexpr int32_t kOperands = 2;  // rounded rows of x of products of many rows

// An instruction before its addresses are known: registers and weights by their numbers.
struct Node {
  Instruction instruction;  // op.x, op.y, op.z, op.out, op.out2 are the registers; 0 addresses
  RegisterId outs[kMatricesMax] = {-1, -1, -1, -1};
  WeightId matrices[kMatricesMax] = {-1, -1, -1, -1};
  WeightId vectors[4] = {-1, -1, -1, -1};
  int32_t from_operand = -1;  // x is this one of the operands, which the node before it made
  int32_t to_operand = -1;    // out is
  int32_t layer_done = -1;    // behind it all slots of this layer are what they will be
};

struct Lowered {
  std::vector<Register> registers;  // the Program's, and further ones
  std::vector<Node> body, tail;
  // Of many rows: the tail again, as few rows that decode have it, with products of f32. For few rows of many it is
  // faster, as it does no more than to read the weights once, in lists.
  std::vector<Node> tail_of_few;
  RegisterId outputs = -1;  // of the tail; output_width wide
  // The widest of each; 0: none. The first is made by a kPrepare, the second by the product before.
  int32_t operand_width[kOperands] = {};
  bool many = false;         // RowCount::kMany
  int32_t experts_used = 0;  // of kExperts, the most
  WeightId gates = -1;       // of kExperts, one of them
};

// `form` says what a matrix is stored as on the card, shared_bytes what its blocks may have of shared memory: whether
// delta rules of prompts go in chunks.
Lowered lower(const Program& program, RowCount rows, Products products, const std::function<Form(WeightId)>& form,
              uint32_t shared_bytes);

// Where things are on the card.
struct Bindings {
  std::function<Matrix(WeightId)> matrix;
  std::function<Address(WeightId)> vector;
  std::function<Place(SlotId)> place;
  std::function<Address(const Op&)> rotation;  // of op kRope: frequencies
  // Of op kExperts: from one expert's weights to the next's, see Instruction::expert_bytes.
  std::function<void(const Op&, Instruction&)> experts;
  std::vector<Address> body, tail;  // of registers: all rows, and those whose outputs are asked for; 0: not used there
  bool delta_in_chunks = false;
  Address operand[kOperands] = {};
  Address scratch = 0, ids = 0, shares = 0, inner = 0;
};

// The nodes' instructions with their addresses.
std::vector<Instruction> bind(const Lowered& lowered, const std::vector<Node>& nodes, bool tail,
                              const Bindings& bindings);

// Registers that the nodes read or write.
std::vector<bool> registers_of(const Lowered& lowered, const std::vector<Node>& nodes);

}  // namespace baton::cuda
