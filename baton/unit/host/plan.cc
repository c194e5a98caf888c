// Program to steps: split, fuse, mark, group.
#include "baton/unit/host/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "baton/base/status.h"

namespace baton::host {
namespace {

// One op, or half of one (appending to the cache is split from attending), before grouping.
struct Node {
  Work work = Work::kRows;
  RowPart row{};
  Op op{};
  LinearPart linear{};
  std::vector<RegisterId> reads, writes;
  bool keeps_state = false;
  bool sees_all = false;  // tokens of all rows: what it reads is needed for every row
  bool only_for_logits = false;
};

void add_if(std::vector<RegisterId>& list, RegisterId id) {
  if (id >= 0) list.push_back(id);
}
bool has(const std::vector<RegisterId>& list, RegisterId id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

Node row_node(Row kind, const Op& op) {
  Node node;
  node.row = {kind, op};
  node.op = op;
  for (const RegisterId id : {op.x, op.y, op.z}) add_if(node.reads, id);
  add_if(node.writes, op.out);
  add_if(node.writes, op.out2);
  return node;
}

Node whole_node(Work work, const Op& op) {
  Node node = row_node(Row::kAdd, op);
  node.work = work;
  return node;
}

int32_t rope_index(std::vector<RopeTable>& ropes, const Op& op) {
  for (size_t i = 0; i < ropes.size(); ++i) {
    if (ropes[i].theta == op.rope_theta && ropes[i].rotary == op.rotary &&
        ropes[i].factors == op.weights[Op::kRopeFactors] && ropes[i].magnitude == op.rope_magnitude) {
      return static_cast<int32_t>(i);
    }
  }
  ropes.push_back({op.rope_theta, op.rotary, op.weights[Op::kRopeFactors], op.rope_magnitude});
  return static_cast<int32_t>(ropes.size()) - 1;
}

// Of ops that a row does by itself.
std::optional<Row> row_of(OpKind kind) {
  constexpr std::pair<OpKind, Row> kRows[] = {
      {OpKind::kRmsNorm, Row::kNorm},        {OpKind::kLayerNorm, Row::kLayerNorm},
      {OpKind::kGatedNorm, Row::kGatedNorm}, {OpKind::kSplitPairs, Row::kSplitPairs},
      {OpKind::kRope, Row::kRope},           {OpKind::kSigmoidGate, Row::kSigmoidGate},
      {OpKind::kSwiGlu, Row::kSwiGlu},       {OpKind::kAdd, Row::kAdd},
      {OpKind::kBias, Row::kBias},           {OpKind::kPosition, Row::kPosition},
      {OpKind::kGelu, Row::kGelu},           {OpKind::kGeGlu, Row::kGeGlu},
      {OpKind::kScale, Row::kScale},         {OpKind::kPositionScale, Row::kPositionScale}};
  for (const auto& [op, row] : kRows) {
    if (op == kind) return row;
  }
  return std::nullopt;
}

void append_nodes(const Op& op, std::vector<RopeTable>& ropes, std::vector<Node>& nodes) {
  if (const auto row = row_of(op.kind)) {
    nodes.push_back(row_node(*row, op));
    if (op.kind == OpKind::kRope) nodes.back().row.rope = rope_index(ropes, op);
    return;
  }
  switch (op.kind) {
    case OpKind::kEmbed:
      nodes.push_back(whole_node(Work::kEmbed, op));
      return;
    case OpKind::kLinear:
      nodes.push_back(whole_node(Work::kLinears, op));
      nodes.back().linear = {op.weights[Op::kMatrix], op.out, false};
      return;
    case OpKind::kAttend: {
      Node append = row_node(Row::kAppend, op);
      append.reads = {op.y, op.z};
      append.writes.clear();
      append.keeps_state = true;
      nodes.push_back(append);
      Node attend = whole_node(Work::kAttend, op);
      attend.reads = {op.x};
      nodes.push_back(attend);
      return;
    }
    case OpKind::kAttendAll:
      nodes.push_back(whole_node(Work::kAttendAll, op));
      nodes.back().sees_all = true;
      return;
    case OpKind::kExperts:
      BATON_CHECK(op.out != op.x);
      nodes.push_back(whole_node(Work::kExperts, op));
      return;
    case OpKind::kCausalConv:
      nodes.push_back(whole_node(Work::kConv, op));
      nodes.back().keeps_state = true;
      return;
    case OpKind::kShortConv: {
      Op multiply = op;
      multiply.out = op.out2;
      multiply.out2 = multiply.z = -1;
      nodes.push_back(row_node(Row::kMultiply, multiply));
      Op conv = op;
      conv.x = op.out2;
      conv.y = conv.out2 = -1;
      nodes.push_back(whole_node(Work::kConv, conv));
      nodes.back().keeps_state = true;
      return;
    }
    case OpKind::kDeltaRule:
      nodes.push_back(whole_node(Work::kDelta, op));
      nodes.back().keeps_state = true;
      return;
    case OpKind::kHead:
      nodes.push_back(whole_node(Work::kHead, op));
      if (op.cap != 0) {
        nodes.push_back(whole_node(Work::kCapLogits, op));
        nodes.back().op.x = -1;
        nodes.back().reads.clear();
      }
      return;
    case OpKind::kOutput:
      nodes.push_back(whole_node(Work::kOutput, op));
      return;
    default:
      BATON_CHECK(false);  // an op of no kind
  }
}

// Whether the value `id` holds after node `at` is read before it is written again.
bool read_later(const std::vector<Node>& nodes, size_t at, RegisterId id) {
  for (size_t i = at + 1; i < nodes.size(); ++i) {
    if (has(nodes[i].reads, id) ||
        (nodes[i].work == Work::kLinears && nodes[i].linear.add && nodes[i].linear.out == id))
      return true;
    if (has(nodes[i].writes, id)) return false;
  }
  return false;
}

// linear o = W n; add x = x + o  ->  linear x += W n, when o is not used again.
void fuse_residual_adds(std::vector<Node>& nodes) {
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    Node& linear = nodes[i];
    const Node& add = nodes[i + 1];
    if (linear.work != Work::kLinears || add.work != Work::kRows || add.row.kind != Row::kAdd) continue;
    const RegisterId product = linear.linear.out;
    const RegisterId other = add.op.x == product ? add.op.y : add.op.x;
    const bool sums = (add.op.x == product || add.op.y == product) && other != product && add.op.out == other;
    if (!sums || has(linear.reads, other) || read_later(nodes, i + 1, product)) continue;
    linear.linear = {linear.linear.weight, other, true};
    linear.writes = {other};
    linear.reads.push_back(other);
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// Backwards from the end: what neither changes a state nor feeds something that does serves the logits alone.
void mark_logit_nodes(std::vector<Node>& nodes) {
  std::vector<RegisterId> live;
  for (size_t i = nodes.size(); i-- > 0;) {
    Node& node = nodes[i];
    const bool needed =
        node.keeps_state || node.sees_all ||
        std::any_of(node.writes.begin(), node.writes.end(), [&](RegisterId id) { return has(live, id); });
    node.only_for_logits = !needed;
    if (!needed) continue;
    for (const RegisterId id : node.writes) std::erase(live, id);
    live.insert(live.end(), node.reads.begin(), node.reads.end());
  }
}

// Puts a node that makes forms before each linear whose input has none yet for the tokens it runs for.
void insert_operand_nodes(std::vector<Node>& nodes, const std::vector<OperandForms>& operands) {
  std::vector<Node> out;
  RegisterId made = -1;
  size_t node_of_it = 0;
  bool for_logits = false;
  for (const Node& node : nodes) {
    const bool multiplies = node.work == Work::kLinears && !operands.empty();
    const OperandForms forms = multiplies ? operands[static_cast<size_t>(node.linear.weight)] : OperandForms{};
    if (forms.tiled.any() || forms.others.any()) {
      if (made != node.op.x || for_logits != node.only_for_logits) {
        Op op{.kind = OpKind::kLinear};
        op.x = node.op.x;
        Node make = row_node(Row::kOperands, op);
        make.only_for_logits = for_logits = node.only_for_logits;
        node_of_it = out.size();
        out.push_back(make);
        made = node.op.x;
      }
      OperandForms& all = out[node_of_it].row.forms;
      all.tiled.add(forms.tiled);
      all.others.add(forms.others);
    }
    if (has(node.writes, made)) made = -1;
    out.push_back(node);
  }
  nodes = std::move(out);
}

}  // namespace

Plan make_plan(const Program& program, const std::vector<OperandForms>& operands) {
  Plan plan;
  std::vector<Node> nodes;
  for (const Op& op : program.ops) append_nodes(op, plan.ropes, nodes);
  fuse_residual_adds(nodes);
  mark_logit_nodes(nodes);
  insert_operand_nodes(nodes, operands);
  for (const Node& node : nodes) {
    const Step* last = plan.steps.empty() ? nullptr : &plan.steps.back();
    bool joins = last != nullptr && last->work == node.work && last->only_for_logits == node.only_for_logits;
    if (node.work == Work::kLinears) {
      // One of the group must not write what another reads or writes.
      const auto clashes = [&](const LinearPart& part) { return part.out == node.op.x || part.out == node.linear.out; };
      joins = joins && last->x == node.op.x && std::none_of(last->linears.begin(), last->linears.end(), clashes);
    } else if (node.work != Work::kRows) {
      joins = false;
    }
    if (!joins) {
      Step step;
      step.work = node.work;
      step.op = node.op;
      step.x = node.op.x;
      step.only_for_logits = node.only_for_logits;
      plan.steps.push_back(step);
    }
    if (node.work == Work::kRows) plan.steps.back().rows.push_back(node.row);
    if (node.work == Work::kLinears) plan.steps.back().linears.push_back(node.linear);
  }
  return plan;
}

}  // namespace baton::host
