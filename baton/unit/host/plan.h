// A Program as the host runs it: ops regrouped into steps that run as one parallel loop each.
//
// - Consecutive linears of one register share its other forms (operands.h) and run as one loop over all their
// panels.
// - Consecutive row-local ops (norms, gates, rotation, appending to the KV cache, other forms of operands) run as one
// loop over tokens.
// - A residual add after a linear becomes the linear's accumulation.
// - Steps that only lead to logits run for the tokens whose logits are asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "baton/model/program.h"
#include "baton/unit/host/operands.h"

namespace baton::host {

enum class Work : uint8_t {
  kEmbed,
  kRows,  // row-local parts, in order, for each token
  kLinears,
  kAttend,  // keys and values of these tokens are already appended
  kAttendAll,
  kExperts,
  kConv,  // of kShortConv: x is what was out2
  kDelta,
  kHead,
  kCapLogits,  // of the head before it
  kOutput,
};

enum class Row : uint8_t {
  kNorm,
  kLayerNorm,
  kGatedNorm,
  kSplitPairs,
  kRope,
  kAppend,
  kSigmoidGate,
  kSwiGlu,
  kAdd,
  kBias,
  kPosition,
  kGelu,
  kGeGlu,
  kScale,
  kPositionScale,
  kMultiply,
  kOperands,
};

// Of rows that go through tiles, and of the others.
struct OperandForms {
  Forms tiled, others;
};

struct RowPart {
  Row kind;
  Op op;                    // kAppend: the kAttend op; kOperands: x
  int32_t rope = -1;        // kRope: index into Plan::ropes
  OperandForms forms = {};  // kOperands: what the matrices that read x multiply
};

struct LinearPart {
  WeightId weight;
  RegisterId out;
  bool add;  // accumulate into `out`
};

struct Step {
  Work work = Work::kRows;
  Op op{};            // all but kRows and kLinears
  RegisterId x = -1;  // kLinears
  std::vector<LinearPart> linears;
  std::vector<RowPart> rows;
  bool only_for_logits = false;
};

inline bool is_matrix_op(const Op& op) { return op.kind == OpKind::kLinear || op.kind == OpKind::kHead; }

// f(id, op) for each matrix that a product reads, in the order of use.
template <class Function>
void for_each_matrix(const Program& program, Function&& f) {
  for (const Op& op : program.ops) {
    if (is_matrix_op(op)) f(op.weights[Op::kMatrix], op);
    if (op.kind != OpKind::kExperts) continue;
    f(op.weights[Op::kRouter], op);
    for (int32_t e = 0; e < op.experts; ++e) {
      for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns}) f(op.weights[part] + e, op);
    }
  }
}

// Distinct rotations, so that each step's angles are computed once.
struct RopeTable {
  float theta;
  int32_t rotary;
  WeightId factors;
  float magnitude;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<RopeTable> ropes;
};

// `operands`: what each weight's matrix multiplies; empty: floats, all of them.
Plan make_plan(const Program& program, const std::vector<OperandForms>& operands = {});

}  // namespace baton::host
