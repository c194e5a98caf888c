// Products of one form each.
#include "baton/unit/cuda/mma_list.h"

#include "baton/unit/cuda/mma_layout.h"

namespace baton::cuda {
namespace {

void add_split(const Instruction& in, std::vector<Instruction>& to) {
  const size_t first = to.size();
  for (int32_t i = 0; i < in.matrices; ++i) {
    if (to.size() == first || to.back().matrix[0].form != in.matrix[i].form) {
      to.push_back(in);
      to.back().matrices = 0;
    }
    Instruction& part = to.back();
    part.matrix[part.matrices] = in.matrix[i];
    part.outs[part.matrices++] = in.outs[i];
  }
}

}  // namespace

std::optional<std::vector<Instruction>> mma_list(std::span<const Instruction> step) {
  std::vector<Instruction> list;
  for (const Instruction& in : step) {
    const size_t first = list.size();
    if (in.what == Do::kMultiply && in.epilogue == Epilogue::kNone) {
      add_split(in, list);
    } else {
      list.push_back(in);
    }
    for (size_t i = first; i < list.size(); ++i) {
      if (list[i].what == Do::kMultiply && !takes_mma(list[i])) return std::nullopt;
    }
  }
  return list;
}

}  // namespace baton::cuda
