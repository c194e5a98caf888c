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
  std::vector<Instruction> list;
  for (const Instruction& in : step) {
    const size_t first = list.size();
    if (in.what == Do::kMultiply && in.epilogue == Epilogue::kNone) {
      add_split(in, list);
    } else {
      list.push_back(in);
    }
    for (size_t i = first; i < list.size(); ++i) {
      if (list[i].what != Do::kMultiply) continue;
      if (!takes_mma(list[i])) return std::nullopt;
      list[i].scratch = 0;  // its rows of x are not made before
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

std::vector<Instruction> with_planes(std::span<const Instruction> list, Address planes) {
  std::vector<Instruction> with;
  for (const Instruction& in : list) {
    if (in.what == Do::kMultiply) {
      with.push_back(in);
      with.back().what = Do::kPrepare;
      with.back().to_planes = true;
      with.back().scratch = planes;
    }
    with.push_back(in);
    if (in.what == Do::kMultiply) with.back().scratch = planes;
  }
  return with;
}

void share_mma(Instruction& in, uint32_t blocks) {
  if (in.what != Do::kMultiply) return;
  ProductShares& to = in.product;
  to = {};
  const bool pairs = in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
  const int32_t each = pairs ? 8 : 16, all = static_cast<int32_t>(blocks);
  int32_t units = 0;
  for (int32_t i = 0; i < (pairs ? 1 : in.matrices); ++i) units += (in.matrix[i].rows + each - 1) / each;
  to.outputs = units / all;
  to.more = units % all;
  to.spans = mma_spans(in);
  to.parts = std::max(1, all / units);
  // By what a card of 132 processors needs for all its warps: bits of a product must not depend on the card's blocks.
  to.slices_log2 = units <= 132 ? 4 : units <= 264 ? 3 : units <= 528 ? 2 : units <= 1056 ? 1 : 0;
  while ((1 << to.slices_log2) > to.spans) --to.slices_log2;
  to.flags = pairs ? ProductShares::kPairs : 0;
}

}  // namespace baton::cuda
