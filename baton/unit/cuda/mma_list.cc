// Products of one form each.
#include "baton/unit/cuda/mma_list.h"

#include <algorithm>

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
  std::vector<Instruction> list, products;
  for (const Instruction& in : step) {
    if (in.what != Do::kMultiply) {
      list.push_back(in);
      continue;
    }
    products.clear();
    if (in.epilogue == Epilogue::kNone) {
      add_split(in, products);
    } else {
      products.push_back(in);
    }
    for (const Instruction& product : products) {
      if (!takes_mma(product)) return std::nullopt;
      list.push_back(product);
      list.back().what = Do::kPrepare;
      list.back().to_planes = true;
      list.push_back(product);
    }
  }
  return list;
}

uint64_t planes_bytes_of(std::span<const Instruction> list) {
  uint64_t bytes = 0;
  for (const Instruction& in : list) {
    if (in.what == Do::kMultiply) bytes = std::max(bytes, planes_bytes(in));
  }
  return bytes;
}

void set_planes(std::span<Instruction> list, Address planes) {
  for (Instruction& in : list) {
    if (in.what == Do::kMultiply || in.to_planes) in.scratch = planes;
  }
}

}  // namespace baton::cuda
