// Bounds of kernels, op by op.
#include "baton/unit/cuda/limits.h"

#include <fmt/format.h>

#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/staging.h"

namespace baton::cuda {
namespace {

constexpr std::string_view kRemedy = "use another unit, such as cpu";

uint64_t staged_of(Form form, int32_t columns) {
  Matrix matrix;
  matrix.form = form;
  matrix.pitch = pitch_of(columns);
  return staged_bytes(matrix, 1);
}

// A row that decodes is staged whole, whatever prompts do.
Status check_product(const Model& model, const WeightPlan& plan, WeightId id) {
  const Matrix& matrix = plan.of(id).shape.matrix;
  if (staged_bytes(matrix, 1) <= kSharedBytes) return {};
  const Weight& weight = model.weights[static_cast<size_t>(id)];
  return fail(Code::kUnsupported,
              fmt::format("cuda: tensor '{}' ({}) has rows of {} values: products with {} take up to {}; {}",
                          weight.name, format_of(weight.dtype).name, weight.columns,
                          matrix.form == Form::kCodes ? "quantised rows" : "rows", columns_max(matrix.form), kRemedy));
}

Status check_size(const Op& op, std::string_view what, int32_t size, int32_t most) {
  if (size <= most) return {};
  return fail(Code::kUnsupported,
              fmt::format("cuda: op {} of layer {} has {} of {} values: its kernels take up to {}; {}",
                          to_string(op.kind), op.layer, what, size, most, kRemedy));
}

}  // namespace

int32_t columns_max(Form form) {
  int32_t columns = 0;
  while (staged_of(form, columns + kPadding) <= kSharedBytes) columns += kPadding;
  return columns;
}

Status check_limits(const Model& model, const WeightPlan& plan) {
  for (const Op& op : model.program.ops) {
    switch (op.kind) {
      case OpKind::kLinear:
      case OpKind::kHead:
        BATON_OK(check_product(model, plan, op.weights[Op::kMatrix]));
        break;
      case OpKind::kExperts:  // the experts' own rows are not staged
        BATON_OK(check_product(model, plan, op.weights[Op::kRouter]));
        break;
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
  return {};
}

}  // namespace baton::cuda
