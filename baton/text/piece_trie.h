// Which texts of a set begin at a place of a text: a trie with the children of a node side by side. Immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

class PieceTrie {
 public:
  PieceTrie() = default;
  // Texts with values from 0; of two equal texts the first counts. Takes n log n and about 12 bytes a node.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts);

  // Calls `visit(length, value)` for each text that `text` begins with, the shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit&& visit) const {
    if (text.empty() || nodes_.empty()) return;
    uint32_t node = roots_[static_cast<uint8_t>(text[0])];
    for (size_t length = 1; node != 0; ++length) {
      if (nodes_[node].value >= 0) visit(length, nodes_[node].value);
      if (length >= text.size()) return;
      node = child(node, static_cast<uint8_t>(text[length]));
    }
  }

 private:
  struct Node {
    uint32_t first = 0;  // child
    int32_t value = -1;
    uint16_t count = 0;  // of children
  };
  // 0: none; node 0 is the root.
  uint32_t child(uint32_t node, uint8_t byte) const {
    uint32_t begin = nodes_[node].first, count = nodes_[node].count;
    while (count > 8) {
      const uint32_t half = count / 2;
      if (bytes_[begin + half] <= byte) {
        begin += half;
        count -= half;
      } else {
        count = half;
      }
    }
    for (uint32_t i = begin; i < begin + count; ++i) {
      if (bytes_[i] == byte) return i;
    }
    return 0;
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> bytes_;  // that lead to each node
  std::array<uint32_t, 256> roots_{};
};

}  // namespace baton
