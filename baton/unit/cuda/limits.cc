// Bounds of kernels, op by op.
#include "baton/unit/cuda/limits.h"

#include <fmt/format.h>

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/lowering.h"
#include "baton/unit/cuda/mixers_geometry.h"

namespace baton::cuda {
namespace {

constexpr std::string_view kRemedy = "use another unit, such as cpu";

bool takes(Instruction in, int32_t columns, uint32_t shared_bytes) {
  in.x_width = columns;
  in.matrix[0].pitch = pitch_of(columns);
  return plan_feed({&in, 1}, shared_bytes).set > 0;
}

// A row that decodes is staged whole, and so are prompts where products are in f32.
Status check_products(const Model& model, const WeightPlan& plan, RowCount rows, uint32_t shared_bytes) {
  const auto form = [&](WeightId id) { return plan.of(id).shape.matrix.form; };
  const Lowered lowered = lower(model.program, rows, Products::kF32, form, shared_bytes);
  for (const auto* nodes : {&lowered.body, &lowered.tail}) {
    for (const Node& node : *nodes) {
      if (node.instruction.what != Do::kMultiply) continue;
      Instruction in = node.instruction;
      for (int32_t i = 0; i < in.matrices; ++i) in.matrix[i] = plan.of(node.matrices[i]).shape.matrix;
      const int32_t columns = in.matrix[0].columns;
      if (takes(in, columns, shared_bytes)) continue;
      const Weight& weight = model.weights[static_cast<size_t>(node.matrices[0])];
      return fail(Code::kUnsupported,
                  fmt::format("cuda: tensor '{}' ({}) has rows of {} values: products with {} take up to {} on this "
                              "card; {}",
                              weight.name, format_of(weight.dtype).name, columns,
                              in.matrix[0].form == Form::kCodes ? "quantised rows" : "rows",
                              columns_max(in, shared_bytes), kRemedy));
    }
  }
  return {};
}

Status check_size(const Op& op, std::string_view what, int32_t size, int32_t most) {
  if (size <= most) return {};
  return fail(Code::kUnsupported,
              fmt::format("cuda: op {} of layer {} has {} of {} values: its kernels take up to {}; {}",
                          to_string(op.kind), op.layer, what, size, most, kRemedy));
}

}  // namespace

int32_t columns_max(const Instruction& like, uint32_t shared_bytes) {
  int32_t columns = 0;
  while (takes(like, columns + kPadding, shared_bytes)) columns += kPadding;
  return columns;
}

Status check_limits(const Model& model, const WeightPlan& plan, uint32_t shared_bytes) {
  for (const Op& op : model.program.ops) {
    switch (op.kind) {
      case OpKind::kAttend:
      case OpKind::kAttendAll:
        BATON_OK(check_size(op, "heads", op.width, kAttendWidthMax));
        break;
      case OpKind::kDeltaRule:
        BATON_OK(check_size(op, "keys", op.key_dim, kDeltaKeyDimMax));
        break;
      default:
        break;
    }
  }
  BATON_OK(check_products(model, plan, RowCount::kFew, shared_bytes));
  return check_products(model, plan, RowCount::kMany, shared_bytes);
}

}  // namespace baton::cuda
