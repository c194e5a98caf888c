// Who reads what a product writes.
#include "baton/unit/cuda/word_list.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/staging.h"

namespace baton::cuda {
namespace {

struct Output {
  Address at = 0;
  int32_t width = 0;
};

bool has_words(const Instruction& in) {
  return in.what == Do::kMultiply || in.what == Do::kConvDelta || in.what == Do::kAttendRow;
}

// Of those.
std::span<const Output> outputs_of(const Instruction& in, std::span<Output, kMatricesMax> to) {
  if (in.what != Do::kMultiply) {
    to[0] = {in.out, in.out_width};
    to[1] = {in.out2, in.out2_width};
    return to.first(in.out2 != 0 ? 2 : 1);
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
  if (in.what == Do::kConvDelta || in.what == Do::kAttendRow) return kWordsX | kWordsY | kWordsZ;
  if (in.what != Do::kMultiply) return 0;
  const bool fours = by_fours(in), gated = in.prologue == Prologue::kGated || in.prologue == Prologue::kGate;
  return static_cast<uint8_t>((fours ? kWordsX : 0) | (fours && gated ? kWordsY : 0) |
                              (in.epilogue == Epilogue::kAdd ? kWordsZ : 0));
}

// Whether `in` is a product of a whole one of `outputs`.
bool multiplies_one_of(const Instruction& in, std::span<const Output> outputs) {
  return in.what == Do::kMultiply && (knows(in) & kWordsX) != 0 &&
         std::any_of(outputs.begin(), outputs.end(),
                     [&](const Output& of) { return of.at == in.x && of.width == in.x_width; });
}

// Whether it goes on with what the kAttendRow before it writes.
bool joins(std::span<const Instruction> list, size_t i) {
  return i > 0 && i < list.size() && list[i].what == Do::kAttendJoin && list[i - 1].what == Do::kAttendRow;
}

// Calls reader(j, inputs) for each instruction behind i that reads what i wrote at `at`.
template <class Reader>
void each_reader(std::span<const Instruction> list, size_t i, Address at, Reader reader) {
  for (size_t j = i + 1; j < list.size(); ++j) {
    if (joins(list, j)) continue;
    if (const uint8_t as = read_as(list[j], at); as != 0) reader(j, as);
    if (writes(list[j], at)) return;
  }
}

bool may_be_words(std::span<const Instruction> list, size_t i) {
  const Instruction& in = list[i];
  if (!has_words(in)) return false;
  const auto behind = [&](size_t of) { return of + (joins(list, of + 1) ? 2 : 1); };
  const size_t next = behind(i);
  if (next >= list.size()) return false;
  std::array<Output, kMatricesMax> room;
  const std::span<const Output> outputs = outputs_of(in, room);
  size_t last = next;
  if (in.what == Do::kMultiply && list[next].what != Do::kMultiply) {
    if (!has_words(list[next]) || list[next].x != in.outs[0] || list[next].x_width != in.matrix[0].rows) return false;
    if (!may_be_words(list, next)) return false;
    last = behind(next);
    const Output out = {list[next].out, list[next].out_width};
    if (!multiplies_one_of(list[last], {&out, 1})) return false;
  } else if (!multiplies_one_of(list[next], outputs)) {
    return false;
  }
  return std::all_of(outputs.begin(), outputs.end(), [&](const Output& of) {
    bool known = of.at != 0 && (read_as(list[next], of.at) != 0 || read_as(list[last], of.at) != 0);
    each_reader(list, i, of.at, [&](size_t j, uint8_t as) { known = known && (as & ~knows(list[j])) == 0; });
    return known;
  });
}

bool is_read(std::span<const Instruction> list, size_t behind, Address at) {
  bool read = false;
  each_reader(list, behind, at, [&](size_t, uint8_t) { read = true; });
  return read;
}

// What kHeads and kAttend are together, and kAttendJoin behind it, if the kernel does such.
std::optional<std::array<Instruction, 2>> row_of(const Instruction& heads, const Instruction& attend,
                                                 const Instruction& join) {
  const bool together = heads.what == Do::kHeads && attend.what == Do::kAttend && join.what == Do::kAttendJoin &&
                        attend.x == heads.out && heads.op.slot == attend.op.slot && heads.op.slot2 == attend.op.slot2 &&
                        join.out == attend.out && join.scratch == attend.scratch;
  if (!together || !attends_by_mma(attend) || head_parts(attend.op) != 1 ||
      !is_plain_turn(heads.rope.rotary, heads.op.width, heads.rope.pairing == RopePairing::kAdjacent) ||
      (heads.rope.rotary != 0 && heads.vectors[3] == 0))
    return std::nullopt;
  std::array<Instruction, 2> row = {heads, join};
  row[0].what = Do::kAttendRow;
  row[0].out = attend.out, row[0].out_width = attend.out_width;
  row[0].scratch = attend.scratch, row[0].splits = attend.splits;
  row[1].x = row[1].y = row[1].z = 0;
  return row;
}

void join_attention(std::vector<Instruction>& list) {
  for (size_t i = 1; i + 3 < list.size(); ++i) {
    const auto row = row_of(list[i], list[i + 1], list[i + 2]);
    if (!row || is_read(list, i + 2, list[i].out)) continue;  // queries are in no register any more
    std::vector<Instruction> joined(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i));
    joined.insert(joined.end(), row->begin(), row->end());
    joined.insert(joined.end(), list.begin() + static_cast<std::ptrdiff_t>(i) + 3, list.end());
    if (may_be_words(joined, i - 1)) list = std::move(joined);
  }
}

// Of one row, whose outputs are asked for.
void leave_picks_out(std::vector<Instruction>& list) {
  for (size_t i = 1; i + 1 < list.size(); ++i) {
    const Instruction pick = list[i];
    if (pick.what != Do::kPick || list[i - 1].what != Do::kMultiply) continue;
    if (read_as(list[i + 1], pick.out) != kWordsX || is_read(list, i + 1, pick.out)) continue;
    std::vector<Instruction> left = list;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    left[i].x = pick.x;
    if (may_be_words(left, i - 1)) list = std::move(left);
  }
}

}  // namespace

uint64_t put_words(std::vector<Instruction>& list, Address words) {
  join_attention(list);
  leave_picks_out(list);
  Address next = words;
  const auto take = [&next](int64_t count) {
    const Address to = next;
    next += (static_cast<uint64_t>(count) * sizeof(uint32_t) + 255) / 256 * 256;
    return to;
  };
  for (size_t i = 0; i < list.size(); ++i) {
    if (!may_be_words(list, i)) continue;
    std::array<Output, kMatricesMax> room;
    for (const Output& of : outputs_of(list[i], room)) {
      const Address to = take(pitch_of(of.width));
      std::vector<std::pair<size_t, uint8_t>> readers;
      each_reader(list, i, of.at, [&](size_t j, uint8_t as) { readers.emplace_back(j, as); });
      for (const auto& [j, as] : readers) {
        list[j].worded |= as;
        if ((as & kWordsX) != 0) list[j].x = to;
        if ((as & kWordsY) != 0) list[j].y = to;
        if ((as & kWordsZ) != 0) list[j].z = to;
      }
      if (list[i].what == Do::kMultiply) {
        for (Address& out : list[i].outs) {
          if (out == of.at) out = to;
        }
        continue;
      }
      (list[i].out == of.at ? list[i].out : list[i].out2) = to;
      if (joins(list, i + 1) && list[i + 1].out == of.at) list[i + 1].out = to, list[i + 1].worded = kWordsOut;
    }
    if (joins(list, i + 1) && list[i].scratch != 0) {
      list[i].scratch = list[i + 1].scratch =
          take(int64_t{list[i].op.heads} * list[i].splits * part_values(list[i].op));
    }
    list[i].worded |= kWordsOut;
  }
  return next - words;
}

}  // namespace baton::cuda
