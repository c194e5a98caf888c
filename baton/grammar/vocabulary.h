// The texts of a tokenizer's tokens as a trie, and which of them an automaton's state lets through: computed once for
// each state that comes up, and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "baton/grammar/terminal.h"

namespace baton::grammar {

// Depth first: a node's subtree is the nodes from behind it to its `end`. Node 0 is the root and has no byte.
struct TokenTrie {
  struct Node {
    uint32_t end = 0;
    uint32_t tokens = 0;  // where its tokens begin in `ids`; they end where the next node's begin
    uint16_t depth = 0;   // bytes
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;  // and one more behind the last
  std::vector<int32_t> ids;
  uint32_t longest = 0;  // bytes

  uint32_t count() const { return static_cast<uint32_t>(nodes.size() - 1); }
  std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(ids).subspan(nodes[node].tokens, nodes[node + 1].tokens - nodes[node].tokens);
  }
};

// What of the vocabulary a terminal lets through from one of its states, whatever comes behind it.
struct StateMask {
  std::vector<int32_t> ids;    // when few,
  std::vector<uint32_t> bits;  // else as bits
  // Nodes in front of which the terminal may have ended, by their byte: from `first[byte]` to `first[byte + 1]`. What
  // comes behind the terminal decides on these.
  std::vector<uint32_t> crossings;
  std::array<uint32_t, 257> first{};

  size_t bytes() const { return sizeof(*this) + 4 * (ids.size() + bits.size() + crossings.size()); }
};

// Any thread.
class Vocabulary {
 public:
  struct Token {
    int32_t id = -1;
    std::string_view bytes;  // copied
  };
  // `tokens`: those that may be part of an answer, without the ids that end one. Masks take at most `cache_bytes`.
  Vocabulary(std::span<const Token> tokens, std::vector<int32_t> stop_ids, uint64_t cache_bytes = 256ull << 20);

  const TokenTrie& trie() const { return trie_; }
  std::span<const int32_t> stop_ids() const { return stop_ids_; }
  bool stops(int32_t id) const;
  // Empty: none that may be part of an answer.
  std::string_view bytes(int32_t id) const;
  size_t words() const { return words_; }  // of 32 ids each

  // Of the tokens in the subtree of `node`, from behind it: `state` is where its bytes have led.
  std::shared_ptr<const StateMask> mask(const Terminal& terminal, uint32_t state, uint32_t node = 0) const;

 private:
  struct Key {
    uint32_t terminal = 0, state = 0, node = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      const uint64_t hash = (uint64_t{key.terminal} << 32 | key.state) * 0x9e3779b97f4a7c15ull;
      return (hash ^ key.node ^ hash >> 31) * 0xff51afd7ed558ccdull;
    }
  };
  void build(std::span<const Token> sorted);

  TokenTrie trie_;
  std::vector<int32_t> stop_ids_;  // sorted
  std::string arena_;
  std::vector<std::pair<uint32_t, uint32_t>> spans_;  // by id: offset and length in arena_
  size_t words_ = 0;

  uint64_t cache_bytes_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, std::shared_ptr<const StateMask>, KeyHash> masks_;
  mutable uint64_t bytes_ = 0;
};

}  // namespace baton::grammar
