// A sequence's state in host memory, canonical order: keys and values f16, convolution and recurrent state f32.
#pragma once

#include <vector>

#include "baton/unit/cpu/memory.h"
#include "baton/unit/unit.h"

namespace baton::cpu {

class CpuState final : public SequenceState {
 public:
  static Result<std::unique_ptr<CpuState>> create(const Program& program, uint64_t tokens_max);
  Result<std::unique_ptr<CpuState>> clone() const;

  const Layout& layout() const override { return layout_; }
  std::span<const Segment> segments() const override { return segments_; }

  float* floats(SlotId slot) { return reinterpret_cast<float*>(segments_[static_cast<size_t>(slot)].data); }
  // Keys or values of one kv head: [tokens_max, head_dim].
  uint16_t* halves(SlotId slot, int64_t head) {
    const Segment& segment = segments_[static_cast<size_t>(slot)];
    return reinterpret_cast<uint16_t*>(segment.data) + head * static_cast<int64_t>(segment.layout->strides[0]);
  }

 private:
  explicit CpuState(uint64_t tokens_max) : SequenceState(tokens_max) {}
  Status place();

  Layout layout_;
  std::vector<Segment> segments_;
  Memory memory_;
};

}  // namespace baton::cpu
