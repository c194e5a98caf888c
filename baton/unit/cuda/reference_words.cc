// Instructions whose registers are words: the bodies of all others work on values.
#include <bit>
#include <vector>

#include "baton/unit/cuda/reference.h"

namespace baton::cuda {

void reference_worded(const Instruction& instruction, const Pass& pass) {
  if (instruction.worded == 0) return reference(instruction, pass);
  Instruction plain = instruction;
  plain.worded = 0;
  std::vector<std::vector<float>> held;
  const auto values = [&](int32_t width) {
    held.emplace_back(static_cast<size_t>(pitch_of(width)), 0.0f);
    return held.back().data();
  };
  const auto take = [&](Worded which, Address& from, int32_t width) {
    if ((instruction.worded & which) == 0) return;
    float* const to = values(width);
    for (int32_t i = 0; i < width; ++i) {
      // One that has not come, for which a card's readers would wait for ever, is no number.
      to[i] = std::bit_cast<float>(host_at<const uint32_t>(from)[i]);
    }
    from = reinterpret_cast<Address>(to);
  };
  take(kWordsX, plain.x, plain.x_width);
  take(kWordsY, plain.y, plain.y_width);
  take(kWordsZ, plain.z, plain.z_width);
  if ((instruction.worded & kWordsOut) == 0) return reference(plain, pass);
  struct Output {
    Address words;
    const float* values;
    int32_t width;
  };
  std::vector<Output> outputs;
  const auto put = [&](Address& to, int32_t width) {
    float* const at = values(width);
    outputs.push_back({to, at, width});
    to = reinterpret_cast<Address>(at);
  };
  if (plain.what == Do::kAttendJoin) return;  // nothing is in parts
  if (plain.what != Do::kMultiply) {
    put(plain.out, plain.out_width);
    if (plain.out2 != 0) put(plain.out2, plain.out2_width);
  } else {
    for (int32_t i = 0; i < plain.matrices; ++i) {
      if (plain.outs[i] != 0) put(plain.outs[i], plain.matrix[i].rows);
    }
  }
  reference(plain, pass);
  for (const Output& of : outputs) {
    for (int32_t i = 0; i < of.width; ++i) {
      const auto bits = std::bit_cast<uint32_t>(of.values[i]);
      host_at<uint32_t>(of.words)[i] = bits == kNoWord ? kNoNumberWord : bits;
    }
  }
}

}  // namespace baton::cuda
