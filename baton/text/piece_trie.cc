// Builds a trie level by level from sorted texts.
#include "baton/text/piece_trie.h"

#include <algorithm>

namespace baton {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> texts) {
  std::erase_if(texts, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end;  // of the texts that begin with the node's
    uint32_t node;
  };
  nodes_.resize(1);
  bytes_.resize(1);
  std::vector<Range> level{{0, texts.size(), 0}}, next;
  for (size_t depth = 0; !level.empty(); ++depth) {
    next.clear();
    for (const Range& range : level) {
      nodes_[range.node].first = static_cast<uint32_t>(nodes_.size());
      for (size_t at = range.begin; at < range.end;) {
        if (texts[at].first.size() == depth) {
          ++at;  // the node's own text
          continue;
        }
        const auto byte = static_cast<uint8_t>(texts[at].first[depth]);
        size_t end = at + 1;
        while (end < range.end && static_cast<uint8_t>(texts[end].first[depth]) == byte) ++end;
        Node node;
        if (texts[at].first.size() == depth + 1) node.value = texts[at].second;
        const auto made = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back(node);
        bytes_.push_back(byte);
        ++nodes_[range.node].count;
        next.push_back({at, end, made});
        at = end;
      }
    }
    level.swap(next);
  }
  for (uint32_t i = nodes_[0].first; i < nodes_[0].first + nodes_[0].count; ++i) roots_[bytes_[i]] = i;
}

}  // namespace baton
