// Nodes as ops make them; what a node reads, writes and needs: for who moves or joins them.
#pragma once

#include <algorithm>

#include "baton/unit/cuda/lowering.h"

namespace baton::cuda {

// Of an op, before anything is fused.
inline Node node_of(Do what, const Op& op) {
  Node node;
  node.instruction.what = what;
  node.instruction.op = op;
  return node;
}

inline Node prepare(Prologue prologue, const Op& op) {
  Node node = node_of(Do::kPrepare, op);
  node.instruction.prologue = prologue;
  if (prologue != Prologue::kGate) node.vectors[0] = op.weights[Op::kScale];
  if (prologue == Prologue::kLayer) node.vectors[1] = op.weights[Op::kShift];
  return node;
}

inline Node product(const Op& op, WeightId matrix, RegisterId x, RegisterId out) {
  Node node = node_of(Do::kMultiply, {.kind = OpKind::kLinear});
  node.instruction.op.layer = op.layer;
  node.instruction.op.x = x;
  node.instruction.matrices = 1;
  node.matrices[0] = matrix;
  node.outs[0] = out;
  return node;
}

// Rounds rows of x of a product for it, to the first operand.
inline Node rounded_rows_of(const Node& product) {
  Node node = node_of(Do::kPrepare, product.instruction.op);
  node.instruction.prologue = product.instruction.prologue;
  node.instruction.wanted_only = product.instruction.wanted_only;
  node.instruction.to_bf16 = true;
  node.to_operand = 0;
  node.instruction.op.z = node.instruction.op.out = -1;
  std::copy_n(product.vectors, 4, node.vectors);
  return node;
}

// Products and what is fused to them have their results in `outs`.
inline bool is_product(const Node& node) {
  return node.instruction.what == Do::kMultiply || node.instruction.what == Do::kTile;
}
inline int32_t outs_of(const Node& node) {
  if (!is_product(node)) return 0;
  const bool pairs = node.instruction.epilogue == Epilogue::kSwiGlu || node.instruction.epilogue == Epilogue::kGeGlu;
  return pairs ? 1 : node.instruction.matrices;
}

inline bool reads(const Node& node, RegisterId id) {
  const Op& op = node.instruction.op;
  return id >= 0 && (op.x == id || op.y == id || op.z == id);
}
inline bool writes(const Node& node, RegisterId id) {
  const Op& op = node.instruction.op;
  if (id < 0) return false;
  return op.out == id || op.out2 == id ||
         std::find(node.outs, node.outs + outs_of(node), id) != node.outs + outs_of(node);
}

inline bool keeps_state(const Node& node) {
  switch (node.instruction.what) {
    case Do::kHeads:
    case Do::kAppend:
    case Do::kConv:
    case Do::kDelta:
    case Do::kConvDelta:
    case Do::kShortConv:
      return true;
    default:
      return false;
  }
}
// Works by runs: on all of their rows.
inline bool looks_along(const Node& node) {
  switch (node.instruction.what) {
    case Do::kAttend:
    case Do::kAttendJoin:
    case Do::kAttendTile:
    case Do::kAttendAll:
      return true;
    default:
      return keeps_state(node);
  }
}
// Reads tokens or positions, which rows that were picked have no more.
inline bool needs_positions(const Node& node) {
  const OpKind kind = node.instruction.op.kind;
  const Do what = node.instruction.what;
  return what == Do::kEmbed || what == Do::kRope ||
         (what == Do::kEach && (kind == OpKind::kPosition || kind == OpKind::kPositionScale));
}
// Has to run for every row of a pass, and so has what is before it.
inline bool needed_of_all_rows(const Node& node) {
  return keeps_state(node) || needs_positions(node) || node.instruction.what == Do::kAttendAll;
}
// Its slots are read or written by it.
inline bool touches_slots(const Node& node) { return looks_along(node) && node.instruction.what != Do::kAttendAll; }

// Whether the value that `id` holds behind node `at` is read before it is written again, or is the outputs.
inline bool read_later(const std::vector<Node>& nodes, size_t at, RegisterId id, RegisterId outputs) {
  for (size_t i = at + 1; i < nodes.size(); ++i) {
    if (reads(nodes[i], id)) return true;
    if (writes(nodes[i], id)) return false;
  }
  return id == outputs;
}

// Norms and rotations of queries and keys in front of a kAppend, and the split of queries and gates before them, become
// one node with it: kHeads (lowering_heads.cc).
void fuse_heads(std::vector<Node>& nodes, RegisterId outputs);

// c = conv(x); d = delta(c)  ->  d = kConvDelta(x), one pass over the state, where nobody else reads c and `takes` says
// so of the op (lowering_delta.cc).
void fuse_delta(std::vector<Node>& nodes, RegisterId outputs, const std::function<bool(const Op&)>& takes);

}  // namespace baton::cuda
