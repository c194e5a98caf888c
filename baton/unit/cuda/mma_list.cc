// Products of one form each, and where their rows of x come from.
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

uint64_t buffer_bytes(std::span<const Instruction> list) {
  uint64_t bytes = 0;
  for (const Instruction& in : list) {
    if (in.what == Do::kMultiply) bytes = std::max(bytes, planes_bytes(in));
  }
  return (bytes + 255) / 256 * 256;
}

bool is_pairs(const Instruction& in) { return in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu; }

bool writes(const Instruction& in, Address to) {
  return in.out == to || in.out2 == to || std::find(std::begin(in.outs), std::end(in.outs), to) != std::end(in.outs);
}

// Rows that a product makes for those behind it: how they are scaled, how they lie, and which instructions have them.
struct Handed {
  Address scales = 0;
  bool groups = false;
  int buffer = -1;  // none: nobody takes them
  size_t last = 0;  // who takes them last
};

// The product whose outputs alone are an instruction's rows, as they are or scaled.
std::optional<size_t> maker_of(std::span<const Instruction> list, size_t i) {
  const Instruction& in = list[i];
  if (in.what != Do::kMultiply || (in.prologue != Prologue::kNone && !scales_products(in))) return std::nullopt;
  if (in.x_width % kMmaSpan != 0 || in.matrix[0].pitch != in.x_width) return std::nullopt;
  for (size_t by = i; by-- > 0;) {
    const Instruction& before = list[by];
    if (!writes(before, in.x)) continue;
    const bool whole = before.what == Do::kMultiply && before.outs[0] == in.x &&
                       (before.matrices == 1 || is_pairs(before)) && before.matrix[0].rows == in.x_width &&
                       before.wanted_only == in.wanted_only;
    return whole ? std::optional(by) : std::nullopt;
  }
  return std::nullopt;
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

uint64_t planes_bytes_of(std::span<const Instruction> list) { return kPlaneBuffers * buffer_bytes(list); }

std::vector<Instruction> with_planes(std::span<const Instruction> list, Address planes) {
  const uint64_t bytes = buffer_bytes(list);
  const auto address = [&](int buffer) { return planes + static_cast<uint64_t>(buffer) * bytes; };
  std::vector<Handed> handed(list.size());  // by whom
  // Whether no other has it while an instruction from `first` to `last` is at work.
  const auto is_free = [&](int buffer, size_t by, size_t first, size_t last) {
    for (size_t i = 0; i <= last; ++i) {
      if (i != by && handed[i].buffer == buffer && handed[i].last >= first) return false;
    }
    return true;
  };
  std::vector<Instruction> made(list.begin(), list.end());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto by = maker_of(list, i);
    if (!by) continue;
    const Instruction& in = list[i];
    Handed& of = handed[*by];
    const Handed wanted = {scales_products(in) ? in.vectors[0] : 0, in.matrix[0].form != Form::kBF16};
    if (of.buffer < 0) {
      int buffer = 0;
      while (buffer < kPlanesHanded && !is_free(buffer, *by, *by, i)) ++buffer;
      if (buffer == kPlanesHanded) continue;
      of = wanted, of.buffer = buffer;
    } else if (of.scales != wanted.scales || of.groups != wanted.groups || !is_free(of.buffer, *by, of.last, i)) {
      continue;
    }
    of.last = i;
    made[*by].next = address(of.buffer), made[*by].next_scales = of.scales, made[*by].next_groups = of.groups;
    made[i].scratch = address(of.buffer);
  }
  std::vector<Instruction> with;
  for (Instruction& in : made) {
    if (in.what == Do::kMultiply && in.scratch == 0) {
      in.scratch = address(kPlanesHanded);
      with.push_back(in);
      with.back().what = Do::kPrepare;
      with.back().to_planes = true;
    }
    with.push_back(in);
  }
  return with;
}

void share_mma(Instruction& in, uint32_t blocks) {
  if (in.what != Do::kMultiply) return;
  ProductShares& to = in.product;
  to = {};
  const bool pairs = is_pairs(in);
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
