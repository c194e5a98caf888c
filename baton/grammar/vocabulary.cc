// Building the trie, and walking it with one terminal.
#include "baton/grammar/vocabulary.h"

#include <algorithm>

namespace baton::grammar {
namespace {

constexpr size_t kFew = 2048;  // ids are kept as a list up to here

// `crossings` by byte.
void sort_crossings(const TokenTrie& trie, std::vector<uint32_t> nodes, StateMask* mask) {
  for (const uint32_t node : nodes) ++mask->first[size_t{trie.nodes[node].byte} + 1];
  for (size_t b = 0; b < 256; ++b) mask->first[b + 1] += mask->first[b];
  std::array<uint32_t, 256> at{};
  std::copy_n(mask->first.begin(), 256, at.begin());
  mask->crossings.resize(nodes.size());
  for (const uint32_t node : nodes) mask->crossings[at[trie.nodes[node].byte]++] = node;
}

StateMask compute_mask(const TokenTrie& trie, size_t words, const Terminal& terminal, uint32_t start, uint32_t root) {
  StateMask mask;
  const uint32_t base = trie.nodes[root].depth;
  std::vector<uint32_t> states(trie.longest + 1 - base), crossings;
  std::vector<uint8_t> accepts(states.size());
  std::vector<int32_t> ids;
  states[0] = start;  // what comes behind a terminal that may end at once is on its way already
  for (uint32_t i = root + 1; i < trie.nodes[root].end;) {
    const TokenTrie::Node& node = trie.nodes[i];
    const uint32_t depth = node.depth - base;
    if (accepts[depth - 1] != 0) crossings.push_back(i);
    const uint32_t state = terminal.step(states[depth - 1], node.byte);
    if (state == kDead) {
      i = node.end;
      continue;
    }
    states[depth] = state;
    accepts[depth] = terminal.accepting(state);
    for (const int32_t id : trie.tokens(i)) ids.push_back(id);
    ++i;
  }
  sort_crossings(trie, std::move(crossings), &mask);
  if (ids.size() <= kFew) {
    mask.ids.assign(ids.begin(), ids.end());
  } else {
    mask.bits.resize(words);
    for (const int32_t id : ids) mask.bits[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  return mask;
}

}  // namespace

Vocabulary::Vocabulary(std::span<const Token> tokens, std::vector<int32_t> stop_ids, uint64_t cache_bytes)
    : stop_ids_(std::move(stop_ids)), cache_bytes_(cache_bytes) {
  std::sort(stop_ids_.begin(), stop_ids_.end());
  std::vector<Token> sorted(tokens.begin(), tokens.end());
  std::erase_if(sorted, [this](const Token& t) {
    return t.id < 0 || t.bytes.empty() || t.bytes.size() > UINT16_MAX || stops(t.id);
  });
  int32_t highest = stop_ids_.empty() ? 0 : stop_ids_.back();
  for (const Token& token : sorted) highest = std::max(highest, token.id);
  words_ = static_cast<size_t>(highest) / 32 + 1;
  spans_.resize(static_cast<size_t>(highest) + 1);
  for (const Token& token : sorted) {
    spans_[static_cast<size_t>(token.id)] = {static_cast<uint32_t>(arena_.size()),
                                             static_cast<uint32_t>(token.bytes.size())};
    arena_ += token.bytes;
    trie_.longest = std::max(trie_.longest, static_cast<uint32_t>(token.bytes.size()));
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Token& a, const Token& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id; });
  build(sorted);
}

void Vocabulary::build(std::span<const Token> sorted) {
  std::vector<uint32_t> path = {0};  // nodes from the root
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      trie_.nodes[path.back()].end = static_cast<uint32_t>(trie_.nodes.size());
  };
  trie_.nodes.push_back({});
  std::string_view last;
  for (const Token& token : sorted) {
    const std::string_view text = token.bytes;
    const size_t same =
        static_cast<size_t>(std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin());
    close(same + 1);
    for (size_t i = same; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie_.nodes.size()));
      trie_.nodes.push_back({.tokens = static_cast<uint32_t>(trie_.ids.size()),
                             .depth = static_cast<uint16_t>(i + 1),
                             .byte = static_cast<uint8_t>(text[i])});
    }
    trie_.ids.push_back(token.id);
    last = text;
  }
  close(0);
  trie_.nodes.push_back({.tokens = static_cast<uint32_t>(trie_.ids.size())});
}

bool Vocabulary::stops(int32_t id) const { return std::binary_search(stop_ids_.begin(), stop_ids_.end(), id); }

std::string_view Vocabulary::bytes(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= spans_.size()) return {};
  const auto& [from, count] = spans_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(from, count);
}

std::shared_ptr<const StateMask> Vocabulary::mask(const Terminal& terminal, uint32_t state, uint32_t node) const {
  state = terminal.representative(state, trie_.longest);
  const Key key{terminal.id(), state, node};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
  }
  auto made = std::make_shared<const StateMask>(compute_mask(trie_, words_, terminal, state, node));
  const std::lock_guard lock(mutex_);
  bytes_ += made->bytes();
  if (bytes_ > cache_bytes_) {
    masks_.clear();
    bytes_ = made->bytes();
  }
  masks_.insert_or_assign(key, made);
  return made;
}

}  // namespace baton::grammar
