// Who reads what a product writes.
#include "baton/unit/cuda/word_list.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "baton/unit/cuda/staging.h"

namespace baton::cuda {
namespace {

struct Output {
  Address at = 0;
  int32_t width = 0;
};

// Of a product or a delta rule.
std::span<const Output> outputs_of(const Instruction& in, std::span<Output, kMatricesMax> to) {
  if (in.what == Do::kConvDelta) {
    to[0] = {in.out, in.out_width};
    return to.first(1);
  }
  const bool pairs = in.epilogue == Epilogue::kSwiGlu || in.epilogue == Epilogue::kGeGlu;
  const auto count = static_cast<size_t>(pairs ? 1 : in.matrices);
  for (size_t i = 0; i < count; ++i) to[i] = {in.outs[i], in.matrix[i].rows};
  return to.first(count);
}

bool writes(const Instruction& in, Address at) {
  return in.out == at || in.out2 == at || std::find(std::begin(in.outs), std::end(in.outs), at) != std::end(in.outs);
}

// As which of its inputs it reads that register.
uint8_t read_as(const Instruction& in, Address at) {
  return static_cast<uint8_t>((in.x == at ? kWordsX : 0) | (in.y == at ? kWordsY : 0) | (in.z == at ? kWordsZ : 0));
}

// Those that it could read as words.
uint8_t knows(const Instruction& in) {
  if (in.what == Do::kConvDelta) return kWordsX | kWordsY | kWordsZ;
  if (in.what != Do::kMultiply) return 0;
  const bool fours = by_fours(in);
  return static_cast<uint8_t>((fours ? kWordsX : 0) | (fours && in.prologue == Prologue::kGated ? kWordsY : 0) |
                              (in.epilogue == Epilogue::kAdd ? kWordsZ : 0));
}

// Whether `in` is a product of a whole one of `outputs`.
bool multiplies_one_of(const Instruction& in, std::span<const Output> outputs) {
  return in.what == Do::kMultiply && (knows(in) & kWordsX) != 0 &&
         std::any_of(outputs.begin(), outputs.end(),
                     [&](const Output& of) { return of.at == in.x && of.width == in.x_width; });
}

// Calls reader(j, inputs) for each instruction behind i that reads what i wrote at `at`.
template <class Reader>
void each_reader(std::span<const Instruction> list, size_t i, Address at, Reader reader) {
  for (size_t j = i + 1; j < list.size(); ++j) {
    if (const uint8_t as = read_as(list[j], at); as != 0) reader(j, as);
    if (writes(list[j], at)) return;
  }
}

bool may_be_words(std::span<const Instruction> list, size_t i) {
  const Instruction& in = list[i];
  if ((in.what != Do::kMultiply && in.what != Do::kConvDelta) || i + 1 == list.size()) return false;
  std::array<Output, kMatricesMax> room;
  const std::span<const Output> outputs = outputs_of(in, room);
  const Instruction& next = list[i + 1];
  const Instruction* behind = nullptr;
  if (next.what == Do::kConvDelta && in.what == Do::kMultiply && i + 2 < list.size()) {
    const Output out = {next.out, next.out_width};
    if (next.x != in.outs[0] || next.x_width != in.matrix[0].rows || !may_be_words(list, i + 1)) return false;
    behind = &list[i + 2];
    if (!multiplies_one_of(*behind, {&out, 1})) return false;
  } else if (!multiplies_one_of(next, outputs)) {
    return false;
  }
  return std::all_of(outputs.begin(), outputs.end(), [&](const Output& of) {
    bool known = of.at != 0 && (read_as(next, of.at) != 0 || (behind != nullptr && read_as(*behind, of.at) != 0));
    each_reader(list, i, of.at, [&](size_t j, uint8_t as) { known = known && (as & ~knows(list[j])) == 0; });
    return known;
  });
}

}  // namespace

uint64_t put_words(std::span<Instruction> list, Address words) {
  Address next = words;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!may_be_words(list, i)) continue;
    std::array<Output, kMatricesMax> room;
    for (const Output& of : outputs_of(list[i], room)) {
      const Address to = next;
      next += (static_cast<uint64_t>(pitch_of(of.width)) * sizeof(uint64_t) + 255) / 256 * 256;
      std::vector<std::pair<size_t, uint8_t>> readers;
      each_reader(list, i, of.at, [&](size_t j, uint8_t as) { readers.emplace_back(j, as); });
      for (const auto& [j, as] : readers) {
        list[j].worded |= as;
        if ((as & kWordsX) != 0) list[j].x = to;
        if ((as & kWordsY) != 0) list[j].y = to;
        if ((as & kWordsZ) != 0) list[j].z = to;
      }
      if (list[i].what == Do::kConvDelta) list[i].out = to;
      for (Address& out : list[i].outs) {
        if (out == of.at && list[i].what == Do::kMultiply) out = to;
      }
    }
    list[i].worded |= kWordsOut;
  }
  return next - words;
}

}  // namespace baton::cuda
