// A convolution and the delta rule behind it: one node.
#include "baton/unit/cuda/node_facts.h"

namespace baton::cuda {

void fuse_delta(std::vector<Node>& nodes, RegisterId outputs, const std::function<bool(const Op&)>& takes) {
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    const Node &conv = nodes[i], &delta = nodes[i + 1];
    const RegisterId between = conv.instruction.op.out;
    if (conv.instruction.what != Do::kConv || delta.instruction.what != Do::kDelta ||
        delta.instruction.op.x != between || read_later(nodes, i + 1, between, outputs) ||
        delta.instruction.op.out == conv.instruction.op.x)
      continue;
    Node both = delta;
    both.instruction.what = Do::kConvDelta;
    both.instruction.op.x = conv.instruction.op.x;
    both.instruction.op.taps = conv.instruction.op.taps;
    both.instruction.op.slot2 = conv.instruction.op.slot;
    both.vectors[2] = conv.vectors[0];
    both.layer_done = std::max(conv.layer_done, delta.layer_done);
    if (!takes(both.instruction.op)) continue;
    nodes[i] = both;
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace baton::cuda
