// Program to nodes: split, fuse, divide, cut off the tail.
#include "baton/unit/cuda/lowering.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "baton/base/status.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/node_facts.h"

namespace baton::cuda {
namespace {

class Lowering {
 public:
  Lowering(const Program& program, RowCount rows, Products products, const std::function<Form(WeightId)>& form,
           uint32_t shared_bytes)
      : program_(program),
        few_(rows == RowCount::kFew),
        tiles_(!few_ && products == Products::kBF16),
        form_(form),
        shared_bytes_(shared_bytes) {
    lowered_.registers = program.registers;
    lowered_.many = !few_;
  }

  Lowered run() {
    for (const Op& op : program_.ops) append(op);
    mark_layers();
    fuse_activations();
    fuse_sums();
    group_products();
    fuse_prologues();
    fuse_heads(nodes_, lowered_.outputs);
    fuse_delta(nodes_, lowered_.outputs, [&](const Op& both) { return few_ || convolves_chunks(both, shared_bytes_); });
    cut_tail();
    if (!few_) lowered_.tail_of_few = lowered_.tail;
    if (tiles_) {
      divide(lowered_.body);
      divide(lowered_.tail);
    }
    return std::move(lowered_);
  }

 private:
  void append(const Op& op) {
    switch (op.kind) {
      case OpKind::kEmbed:
        nodes_.push_back(node_of(Do::kEmbed, op));
        nodes_.back().instruction.matrices = 1;
        nodes_.back().matrices[0] = op.weights[Op::kMatrix];
        return;
      case OpKind::kRmsNorm:
        return nodes_.push_back(prepare(Prologue::kRms, op));
      case OpKind::kLayerNorm:
        return nodes_.push_back(prepare(Prologue::kLayer, op));
      case OpKind::kGatedNorm:
        return nodes_.push_back(prepare(Prologue::kGated, op));
      case OpKind::kSigmoidGate:
        return nodes_.push_back(prepare(Prologue::kGate, op));
      case OpKind::kLinear:
        return nodes_.push_back(product(op, op.weights[Op::kMatrix], op.x, op.out));
      case OpKind::kHead:
        return append_head(op);
      case OpKind::kOutput:
        lowered_.outputs = op.x;
        return;
      case OpKind::kSplitPairs:
        return nodes_.push_back(node_of(Do::kSplitPairs, op));
      case OpKind::kRope:
        nodes_.push_back(node_of(Do::kRope, op));
        nodes_.back().vectors[0] = op.weights[Op::kRopeFactors];
        return;
      case OpKind::kAttend:
        return append_attend(op);
      case OpKind::kAttendAll:
        return nodes_.push_back(node_of(Do::kAttendAll, op));
      case OpKind::kCausalConv:
        nodes_.push_back(node_of(Do::kConv, op));
        nodes_.back().vectors[0] = op.weights[Op::kTaps];
        return;
      case OpKind::kShortConv:
        nodes_.push_back(node_of(Do::kShortConv, op));
        nodes_.back().vectors[0] = op.weights[Op::kTaps];
        return;
      case OpKind::kDeltaRule:
        nodes_.push_back(node_of(Do::kDelta, op));
        nodes_.back().vectors[0] = op.weights[Op::kDecayRate];
        nodes_.back().vectors[1] = op.weights[Op::kTimeBias];
        return;
      case OpKind::kExperts:
        return append_experts(op);
      case OpKind::kSwiGlu:
      case OpKind::kGeGlu:
      case OpKind::kGelu:
      case OpKind::kAdd:
      case OpKind::kScale:
      case OpKind::kPositionScale:
        return nodes_.push_back(node_of(Do::kEach, op));
      case OpKind::kBias:
        nodes_.push_back(node_of(Do::kEach, op));
        nodes_.back().vectors[0] = op.weights[Op::kOffset];
        return;
      case OpKind::kPosition:
        nodes_.push_back(node_of(Do::kEach, op));
        nodes_.back().instruction.matrices = 1;
        nodes_.back().matrices[0] = op.weights[Op::kMatrix];
        return;
    }
    BATON_CHECK(false);  // an op of no kind
  }

  RegisterId add_register(std::string name, int32_t width) {
    lowered_.registers.push_back({std::move(name), width});
    return static_cast<RegisterId>(lowered_.registers.size()) - 1;
  }

  void append_head(const Op& op) {
    lowered_.outputs = op.out >= 0 ? op.out : add_register("outputs", program_.output_width);
    nodes_.push_back(product(op, op.weights[Op::kMatrix], op.x, lowered_.outputs));
    if (op.cap == 0) return;
    Op cap = op;
    cap.x = cap.out = lowered_.outputs;
    nodes_.push_back(node_of(Do::kCap, cap));
  }

  void append_attend(const Op& op) {
    Op half = op;
    half.x = half.out = -1;
    nodes_.push_back(node_of(Do::kAppend, half));
    half = op;
    half.y = half.z = -1;
    nodes_.push_back(node_of(few_ ? Do::kAttend : Do::kAttendTile, half));
    if (few_) nodes_.push_back(node_of(Do::kAttendJoin, half));
  }

  // The router's logits are a register of their own.
  void append_experts(const Op& op) {
    if (router_ < 0 || lowered_.registers[static_cast<size_t>(router_)].width != op.experts)
      router_ = add_register("router", op.experts);
    nodes_.push_back(product(op, op.weights[Op::kRouter], op.x, router_));
    Op part = op;
    part.x = part.out = -1;
    part.y = router_;
    nodes_.push_back(node_of(Do::kRoute, part));
    part = op;
    part.out = -1;
    Node in = node_of(Do::kExpertsIn, part);
    in.instruction.matrices = 2;
    in.matrices[0] = op.weights[Op::kGates];
    in.matrices[1] = op.weights[Op::kUps];
    nodes_.push_back(in);
    part = op;
    part.x = -1;
    Node out = node_of(Do::kExpertsOut, part);
    out.instruction.matrices = 1;
    out.matrices[0] = op.weights[Op::kDowns];
    nodes_.push_back(out);
    lowered_.experts_used = std::max(lowered_.experts_used, op.experts_used);
    lowered_.gates = op.weights[Op::kGates];
  }

  // Of each layer the last node that touches its slots.
  void mark_layers() {
    std::vector<bool> seen;
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Op& op = nodes_[i].instruction.op;
      if (op.slot < 0 || !touches_slots(nodes_[i])) continue;
      const auto layer = static_cast<size_t>(program_.slots[static_cast<size_t>(op.slot)].layer);
      if (layer >= seen.size()) seen.resize(layer + 1);
      if (!seen[layer]) nodes_[i].layer_done = static_cast<int32_t>(layer);
      seen[layer] = true;
    }
  }

  bool read_later(size_t at, RegisterId id) const { return cuda::read_later(nodes_, at, id, lowered_.outputs); }
  bool is(size_t at, Do what) const { return at < nodes_.size() && nodes_[at].instruction.what == what; }
  bool is_each(size_t at, OpKind kind) const { return is(at, Do::kEach) && nodes_[at].instruction.op.kind == kind; }
  void erase(size_t at, size_t count = 1) {
    const auto from = nodes_.begin() + static_cast<std::ptrdiff_t>(at);
    nodes_.erase(from, from + static_cast<std::ptrdiff_t>(count));
  }

  // gate = G x; up = U x; out = act(gate) up
  void fuse_activations() {
    for (size_t i = 0; i + 2 < nodes_.size(); ++i) {
      Node& gate = nodes_[i];
      const Node &up = nodes_[i + 1], &both = nodes_[i + 2];
      if (!is(i, Do::kMultiply) || !is(i + 1, Do::kMultiply)) continue;
      if (!is_each(i + 2, OpKind::kSwiGlu) && !is_each(i + 2, OpKind::kGeGlu)) continue;
      const Op& op = both.instruction.op;
      const bool fits = op.x == gate.outs[0] && op.y == up.outs[0] && op.x != op.y &&
                        gate.instruction.op.x == up.instruction.op.x && gate.instruction.op.x != op.out &&
                        (op.out == op.x || !read_later(i + 2, op.x)) && (op.out == op.y || !read_later(i + 2, op.y)) &&
                        staging(gate.matrices[0]) == staging(up.matrices[0]);
      if (!fits) continue;
      gate.instruction.epilogue = op.kind == OpKind::kSwiGlu ? Epilogue::kSwiGlu : Epilogue::kGeGlu;
      gate.instruction.op.gelu = op.gelu;
      gate.instruction.matrices = 2;
      gate.matrices[1] = up.matrices[0];
      gate.outs[0] = op.out;
      erase(i + 1, 2);
    }
  }

  // o = W x; out = out + o
  void fuse_sums() {
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (!is(i, Do::kMultiply) || node.instruction.epilogue != Epilogue::kNone || !is_each(i + 1, OpKind::kAdd))
        continue;
      const Op& add = nodes_[i + 1].instruction.op;
      const RegisterId made = node.outs[0];
      if ((add.x == made) == (add.y == made)) continue;
      const RegisterId other = add.x == made ? add.y : add.x;
      // Blocks must not write what others still read.
      if (add.out == node.instruction.op.x || other == made || (add.out != made && read_later(i + 1, made))) continue;
      node.instruction.epilogue = Epilogue::kAdd;
      node.instruction.op.z = other;
      node.outs[0] = add.out;
      erase(i + 1);
    }
  }

  // What rows of x become in a block's memory: products of different ones are not grouped.
  enum class Staging : uint8_t { kF32, kHalves, kIntegers };
  Staging staging(WeightId matrix) const {
    switch (form_(matrix)) {
      case Form::kF32:
        return Staging::kF32;
      case Form::kCodes:
        return Staging::kIntegers;
      default:
        return Staging::kHalves;
    }
  }

  void group_products() {
    for (size_t i = 0; i + 1 < nodes_.size();) {
      Node& node = nodes_[i];
      const Node& next = nodes_[i + 1];
      const auto plain = [&](size_t at) {
        return is(at, Do::kMultiply) && nodes_[at].instruction.epilogue == Epilogue::kNone;
      };
      const int32_t count = node.instruction.matrices;
      bool fits = plain(i) && plain(i + 1) && next.instruction.op.x == node.instruction.op.x && count < kMatricesMax &&
                  staging(next.matrices[0]) == staging(node.matrices[0]) && next.outs[0] != node.instruction.op.x;
      for (int32_t m = 0; fits && m < count; ++m)
        fits = node.outs[m] != next.outs[0] && node.outs[m] != next.instruction.op.x;
      if (!fits) {
        ++i;
        continue;
      }
      node.matrices[count] = next.matrices[0];
      node.outs[count] = next.outs[0];
      ++node.instruction.matrices;
      erase(i + 1);
    }
  }

  // n = norm(x); products of n  ->  products of x with a prologue, when n is not used again.
  void fuse_prologues() {
    for (size_t i = 0; i + 1 < nodes_.size(); ++i) {
      if (!is(i, Do::kPrepare) || !is(i + 1, Do::kMultiply)) continue;
      const Instruction& front = nodes_[i].instruction;
      Node& node = nodes_[i + 1];
      const RegisterId made = front.op.out;
      if (node.instruction.op.x != made) continue;
      bool clashes = read_later(i + 1, made) && !writes(node, made);
      for (int32_t m = 0; m < outs_of(node); ++m) clashes |= node.outs[m] == front.op.x || node.outs[m] == front.op.y;
      if (clashes) continue;
      node.instruction.prologue = front.prologue;
      node.instruction.op.x = front.op.x;
      node.instruction.op.y = front.op.y;
      node.instruction.op.width = front.op.width;
      node.instruction.op.eps = front.op.eps;
      std::copy_n(nodes_[i].vectors, 4, node.vectors);
      erase(i);
    }
  }

  // Backwards from the end: what neither changes a state nor feeds something that does. The tail begins behind the last
  // node that is needed for every row.
  void cut_tail() {
    size_t begin = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (needed_of_all_rows(nodes_[i])) begin = i + 1;
    }
    // What attends follows what appends: of its rows only those asked for are needed, but it runs for all.
    while (begin < nodes_.size() && looks_along(nodes_[begin])) ++begin;
    // Of rows that decode nearly all are asked for: to pick what the last layer reads is more than its rows are.
    for (size_t i = begin; few_ && i < nodes_.size(); ++i) {
      if (is(i, Do::kMultiply) && writes(nodes_[i], lowered_.outputs)) begin = i;
    }
    std::vector<RegisterId> picked;
    std::vector<Node> tail(nodes_.begin() + static_cast<std::ptrdiff_t>(begin), nodes_.end());
    std::vector<RegisterId> written;
    for (const Node& node : tail) {
      for (RegisterId id = 0; id < static_cast<RegisterId>(lowered_.registers.size()); ++id) {
        const auto has = [id](const std::vector<RegisterId>& list) {
          return std::find(list.begin(), list.end(), id) != list.end();
        };
        if (reads(node, id) && !has(written) && !has(picked)) picked.push_back(id);
        if (writes(node, id) && !has(written)) written.push_back(id);
      }
    }
    if (tail.empty()) picked.push_back(lowered_.outputs);
    for (const RegisterId id : picked) {
      Op op{.kind = OpKind::kScale};
      op.x = op.out = id;
      lowered_.tail.push_back(node_of(Do::kPick, op));
    }
    for (Node& node : tail) {
      node.instruction.wanted_only = true;
      lowered_.tail.push_back(node);
    }
    nodes_.resize(begin);
    lowered_.body = std::move(nodes_);
  }

  bool is_tiled(const Node& node) const {
    return node.instruction.what == Do::kMultiply && staging(node.matrices[0]) != Staging::kF32;
  }
  // Whether the products of node i are rows of x of the node behind it, and nothing else.
  bool hands_on(const std::vector<Node>& nodes, size_t i) const {
    if (i + 1 >= nodes.size() || !is_tiled(nodes[i]) || !is_tiled(nodes[i + 1]) || outs_of(nodes[i]) != 1) return false;
    const Instruction& then = nodes[i + 1].instruction;
    const RegisterId made = nodes[i].outs[0];
    const bool picked =
        &nodes == &lowered_.body && std::any_of(lowered_.tail.begin(), lowered_.tail.end(), [made](const Node& node) {
          return node.instruction.what == Do::kPick && node.instruction.op.x == made;
        });
    return then.prologue == Prologue::kNone && then.op.x == made && then.op.z != made && !picked &&
           !cuda::read_later(nodes, i + 1, made, lowered_.outputs);
  }

  // Products of 16-bit values and codes: an operand, and tiles.
  void divide(std::vector<Node>& nodes) {
    std::vector<Node> divided;
    bool handed = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node node = nodes[i];
      if (!is_tiled(node)) {
        divided.push_back(node);
        continue;
      }
      const auto width = lowered_.registers[static_cast<size_t>(node.instruction.op.x)].width;
      node.from_operand = handed ? 1 : 0;
      int32_t& widest = lowered_.operand_width[node.from_operand];
      widest = std::max(widest, width);
      if (!handed) divided.push_back(rounded_rows_of(node));
      node.instruction.what = Do::kTile;
      node.instruction.prologue = Prologue::kNone;
      // Of two in a row the second does not hand on what it would have to put where its own rows are.
      handed = !handed && hands_on(nodes, i);
      if (handed) {
        node.instruction.to_bf16 = true;
        node.to_operand = 1;
        node.outs[0] = -1;
      }
      divided.push_back(node);
    }
    nodes = std::move(divided);
  }

  const Program& program_;
  const bool few_, tiles_;
  const std::function<Form(WeightId)>& form_;
  const uint32_t shared_bytes_;
  RegisterId router_ = -1;
  std::vector<Node> nodes_;
  Lowered lowered_;
};

}  // namespace

Lowered lower(const Program& program, RowCount rows, Products products, const std::function<Form(WeightId)>& form,
              uint32_t shared_bytes) {
  return Lowering(program, rows, products, form, shared_bytes).run();
}

}  // namespace baton::cuda
