// Nodes to instructions: numbers become addresses.
#include "baton/base/status.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/node_facts.h"

namespace baton::cuda {
namespace {

class Binding {
 public:
  Binding(const Lowered& lowered, bool tail, const Bindings& bindings)
      : lowered_(lowered), tail_(tail), bindings_(bindings) {}

  Instruction bind(const Node& node) const {
    Instruction made = node.instruction;
    const Op& op = made.op;
    made.x_width = width(op.x), made.y_width = width(op.y), made.z_width = width(op.z);
    made.out_width = width(op.out), made.out2_width = width(op.out2);
    made.x = node.from_operand >= 0   ? bindings_.operand[node.from_operand]
             : made.what == Do::kPick ? address(op.x, false)
                                      : address(op.x, tail_);
    made.y = address(op.y, tail_), made.z = address(op.z, tail_);
    made.out = node.to_operand >= 0 ? bindings_.operand[node.to_operand] : address(op.out, tail_);
    if (node.to_operand >= 0) made.out_width = made.x_width;
    made.out2 = address(op.out2, tail_);
    for (int32_t i = 0; i < made.matrices; ++i) made.matrix[i] = bindings_.matrix(node.matrices[i]);
    for (int32_t i = 0; i < outs_of(node); ++i) made.outs[i] = address(node.outs[i], tail_);
    for (size_t i = 0; i < 4; ++i) {
      if (node.vectors[i] >= 0) made.vectors[i] = bindings_.vector(node.vectors[i]);
    }
    if (op.slot >= 0 && looks_along(node)) made.slot = bindings_.place(op.slot);
    if (op.slot2 >= 0 && looks_along(node)) made.slot2 = bindings_.place(op.slot2);
    if (made.what == Do::kRope) made.vectors[3] = bindings_.rotation(op);
    if (made.what == Do::kHeads && made.rope.rotary != 0) made.vectors[3] = bindings_.rotation(made.rope);
    add_scratch(made);
    return made;
  }

 private:
  int32_t width(RegisterId id) const { return id < 0 ? 0 : lowered_.registers[static_cast<size_t>(id)].width; }
  Address address(RegisterId id, bool tail) const {
    if (id < 0) return 0;
    const Address at = (tail ? bindings_.tail : bindings_.body)[static_cast<size_t>(id)];
    BATON_CHECK(at != 0);
    return at;
  }

  void add_scratch(Instruction& made) const {
    switch (made.what) {
      case Do::kAttend:
      case Do::kAttendJoin:
        made.splits = attend_splits(made.op);
        made.scratch = bindings_.scratch;
        return;
      case Do::kTile:  // few rows are not unpacked
        made.scratch = tail_ ? 0 : bindings_.scratch;
        return;
      case Do::kDelta:
        made.scratch = bindings_.delta_in_chunks ? bindings_.scratch : 0;
        return;
      case Do::kConvDelta:
        made.scratch = bindings_.delta_in_chunks && lowered_.many ? bindings_.scratch : 0;
        return;
      case Do::kRoute:
      case Do::kExpertsIn:
      case Do::kExpertsOut:
        made.ids = bindings_.ids;
        made.shares = bindings_.shares;
        made.inner = bindings_.inner;
        if (made.what != Do::kRoute) bindings_.experts(made.op, made);
        return;
      default:
        return;
    }
  }

  const Lowered& lowered_;
  const bool tail_;
  const Bindings& bindings_;
};

}  // namespace

std::vector<Instruction> bind(const Lowered& lowered, const std::vector<Node>& nodes, bool tail,
                              const Bindings& bindings) {
  const Binding binding(lowered, tail, bindings);
  std::vector<Instruction> made;
  for (const Node& node : nodes) made.push_back(binding.bind(node));
  return made;
}

std::vector<bool> registers_of(const Lowered& lowered, const std::vector<Node>& nodes) {
  std::vector<bool> used(lowered.registers.size());
  for (size_t id = 0; id < used.size(); ++id) {
    for (const Node& node : nodes) {
      const auto number = static_cast<RegisterId>(id);
      if (reads(node, number) || writes(node, number)) used[id] = true;
    }
  }
  return used;
}

}  // namespace baton::cuda
