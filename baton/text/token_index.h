// Token texts to ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace baton {

// The texts lie end to end in storage that must outlive it: text `id` is
// [offsets[id], offsets[id + 1]).
class TokenIndex {
 public:
  TokenIndex() = default;
  // Of two equal texts the lower id is found; empty texts are not.
  TokenIndex(const char* texts, std::span<const uint32_t> offsets);
  int32_t find(std::string_view text) const;  // -1: not there
  std::string_view text(int32_t id) const {
    return {texts_ + offsets_[static_cast<size_t>(id)],
            offsets_[static_cast<size_t>(id) + 1] - offsets_[static_cast<size_t>(id)]};
  }
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  const char* texts_ = nullptr;
  std::span<const uint32_t> offsets_;
  uint64_t seed_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace baton
