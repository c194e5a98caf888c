// Queries, keys and values of an attention layer on their way to it: one node.
#include "baton/unit/cuda/node_facts.h"

namespace baton::cuda {
namespace {

bool same_turn(const Op& a, const Op& b) {
  return a.rope_theta == b.rope_theta && a.rope_magnitude == b.rope_magnitude && a.rotary == b.rotary &&
         a.pairing == b.pairing && a.weights[Op::kRopeFactors] == b.weights[Op::kRopeFactors];
}

// What stands in front of a kAppend and works on its queries and keys alone, in place.
struct HeadNodes {
  const Node* split = nullptr;
  const Node *norms[2] = {}, *ropes[2] = {};  // of queries, of keys
  size_t first = 0, append = 0;

  // Nodes are read backwards: what a kHeads does first is found last.
  HeadNodes(const std::vector<Node>& nodes, size_t of) : first(of), append(of) {
    const Op& op = nodes[of].instruction.op;
    const RegisterId queries = nodes[of + 1].instruction.op.x;
    while (first > 0 && split == nullptr && take(nodes[first - 1], op, queries)) --first;
  }

  bool fits() const {
    if (first == append || (ropes[0] == nullptr) != (ropes[1] == nullptr)) return false;
    if (ropes[0] != nullptr && !same_turn(ropes[0]->instruction.op, ropes[1]->instruction.op)) return false;
    return norms[0] == nullptr || norms[1] == nullptr || norms[0]->instruction.op.eps == norms[1]->instruction.op.eps;
  }

  // In place of kAppend.
  Node made(const std::vector<Node>& nodes) const {
    Node node = nodes[append];
    Op& op = node.instruction.op;
    node.instruction.what = Do::kHeads;
    op.x = op.out = nodes[append + 1].instruction.op.x;
    if (split != nullptr) {
      op.x = split->instruction.op.x;
      op.out2 = split->instruction.op.out2;
      node.instruction.x_stride = 2 * op.width;
    }
    for (size_t which = 0; which < 2; ++which) {
      if (norms[which] == nullptr) continue;
      node.vectors[which] = norms[which]->vectors[0];
      op.eps = norms[which]->instruction.op.eps;
    }
    if (ropes[0] != nullptr) {
      node.instruction.rope = ropes[0]->instruction.op;
      node.vectors[2] = ropes[0]->vectors[0];
    }
    return node;
  }

 private:
  bool take(const Node& node, const Op& op, RegisterId queries) {
    const Op& own = node.instruction.op;
    if (node.instruction.what == Do::kSplitPairs) {
      if (own.out != queries || own.heads != op.heads || own.width != op.width) return false;
      split = &node;
      return true;
    }
    const bool keys = own.out == op.y;
    if (own.x != own.out || (!keys && own.out != queries) || own.width != op.width) return false;
    if (node.instruction.what == Do::kPrepare && node.instruction.prologue == Prologue::kRms) {
      if (norms[keys] != nullptr) return false;
      norms[keys] = &node;
      return true;
    }
    // Behind a norm, which would then be the later one, none is taken.
    if (node.instruction.what != Do::kRope || own.heads != (keys ? op.kv_heads : op.heads)) return false;
    if (ropes[keys] != nullptr || norms[keys] != nullptr) return false;
    ropes[keys] = &node;
    return true;
  }
};

}  // namespace

void fuse_heads(std::vector<Node>& nodes, RegisterId outputs) {
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    if (nodes[i].instruction.what != Do::kAppend || !looks_along(nodes[i + 1]) || keeps_state(nodes[i + 1])) continue;
    const HeadNodes found(nodes, i);
    if (!found.fits() || read_later(nodes, i, nodes[i].instruction.op.y, outputs)) continue;
    const size_t first = found.first;
    nodes[first] = found.made(nodes);
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    i = first;
  }
}

}  // namespace baton::cuda
