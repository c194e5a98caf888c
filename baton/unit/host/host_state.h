// A sequence's state in host memory, canonical order: keys and values f16, convolution and recurrent state f32.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/host/memory.h"
#include "baton/unit/unit.h"

namespace baton::host {

class HostState final : public SequenceState {
 public:
  // `unit` begins the messages.
  static Result<std::unique_ptr<HostState>> create(const Program& program, uint64_t tokens_max, std::string_view unit);
  Result<std::unique_ptr<HostState>> clone() const;
  ~HostState() override { Recycled::give(std::move(memory_)); }

  const Layout& layout() const override { return layout_; }
  std::span<const Segment> segments() const override { return segments_; }

  float* floats(SlotId slot) { return reinterpret_cast<float*>(segments_[static_cast<size_t>(slot)].data); }
  // Keys or values of one kv head: [tokens_max, head_dim].
  uint16_t* halves(SlotId slot, int64_t head) {
    const Segment& segment = segments_[static_cast<size_t>(slot)];
    return reinterpret_cast<uint16_t*>(segment.data) + head * static_cast<int64_t>(segment.layout->strides[0]);
  }

 private:
  HostState(uint64_t tokens_max, std::string_view unit) : SequenceState(tokens_max), unit_(unit) {}
  // Convolution and recurrent states are zero, keys and values whatever the memory held.
  Status place();

  const std::string unit_;
  Layout layout_;
  std::vector<Segment> segments_;
  Memory memory_;
};

}  // namespace baton::host
