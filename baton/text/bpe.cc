// Byte pair merges: lowest rank first, leftmost on ties; O(n log n) for long pre-tokens.
#include "baton/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "baton/text/byte_alphabet.h"
#include "baton/text/hash.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

struct SeededHash {
  size_t operator()(std::string_view text) const { return hash_bytes(text, table_seed()); }
};

}  // namespace

int32_t Bpe::find_token(std::string_view text) const {
  const int32_t id = index_->find(text);
  if (id < 0) return -1;
  const TokenKind kind = kinds_[static_cast<size_t>(id)];
  return kind == TokenKind::kControl || kind == TokenKind::kUnused ? -1 : id;
}

Result<Bpe> Bpe::create(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds) {
  const int32_t vocab_size = index.size();
  Bpe bpe;
  bpe.index_ = &index;
  bpe.kinds_ = kinds;
  bpe.vocab_size_ = vocab_size;
  bpe.unk_id_ = spec.unk_id;
  bpe.ignore_merges_ = spec.ignore_merges;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(byte_to_char(static_cast<uint8_t>(byte)), &text);
    bpe.byte_ids_[static_cast<size_t>(byte)] = bpe.find_token(text);
  }
  bpe.pairs_ = PairTable(spec.merges.size());

  // Merge results (and parts) that are no tokens get symbols of their own; they end as single-byte tokens.
  std::unordered_map<std::string, int32_t, SeededHash> loose_symbols;
  std::string bytes, joined;
  const auto symbol_of = [&](std::string_view text, uint32_t rank) -> Result<int32_t> {
    if (const int32_t id = bpe.find_token(text); id >= 0) return id;
    if (spec.merges_complete) {
      return fail(Code::kInvalidInput, fmt::format("merge {}: '{}' is not a token of the vocabulary", rank, text));
    }
    const auto [found, is_new] =
        loose_symbols.try_emplace(std::string(text), vocab_size + static_cast<int32_t>(loose_symbols.size()));
    if (is_new) {
      bytes.clear();
      if (!from_byte_alphabet(text, &bytes)) {
        return fail(Code::kInvalidInput, fmt::format("merge {}: '{}' is not in the byte-level alphabet", rank, text));
      }
      if (bpe.loose_ids_.size() + bytes.size() > (size_t{1} << 26)) {
        return fail(Code::kInvalidInput, fmt::format("merge {}: too many merges whose result is no token", rank));
      }
      bpe.loose_.push_back({static_cast<uint32_t>(bpe.loose_ids_.size()), static_cast<uint32_t>(bytes.size())});
      for (const char byte : bytes) bpe.loose_ids_.push_back(bpe.byte_ids_[static_cast<uint8_t>(byte)]);
    }
    return found->second;
  };
  int32_t last_result = -1;
  for (uint32_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left_text, right_text] = spec.merges[rank];
    if (left_text.empty() || right_text.empty()) {
      return fail(Code::kInvalidInput, fmt::format("merge {}: a part is empty", rank));
    }
    joined.assign(left_text).append(right_text);
    BATON_TRY(const int32_t left, symbol_of(left_text, rank));
    BATON_TRY(const int32_t right, symbol_of(right_text, rank));
    // Most vocabularies list the results of merges in order: look there before searching.
    int32_t result = last_result + 1;
    const bool in_order =
        result < vocab_size && index.text(result) == joined && kinds[static_cast<size_t>(result)] == TokenKind::kNormal;
    if (!in_order) {
      BATON_TRY(result, symbol_of(joined, rank));
    }
    bpe.pairs_.add(left, right, rank, result);
    last_result = result < vocab_size ? result : last_result;
  }
  return bpe;
}

// Quadratic in the comparison of ranks, linear in look-ups: for the short pre-tokens that nearly all are.
void Bpe::merge_by_scan(std::vector<int32_t>* symbols) const {
  std::vector<int32_t>& s = *symbols;
  const PairTable::Pair* pairs[kScanBytesMax];
  size_t count = s.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = pairs_.find(s[i], s[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && (best == count || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == count) break;
    s[best] = pairs[best]->result;
    std::copy(s.begin() + static_cast<ptrdiff_t>(best) + 2, s.begin() + static_cast<ptrdiff_t>(count),
              s.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0) pairs[best - 1] = pairs_.find(s[best - 1], s[best]);
    if (best + 1 < count) pairs[best] = pairs_.find(s[best], s[best + 1]);
  }
  s.resize(count);
}

void Bpe::merge_by_heap(std::vector<int32_t>* symbols) const {
  struct Node {
    int32_t symbol, previous, next;  // symbol -1: merged away
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, left, right;
    // For a min-heap by rank, then position.
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::vector<Node> nodes(symbols->size());
  std::vector<Candidate> heap;
  const auto propose = [&](int32_t at) {
    if (at < 0 || nodes[static_cast<size_t>(at)].next < 0) return;
    const Node& node = nodes[static_cast<size_t>(at)];
    const int32_t right = nodes[static_cast<size_t>(node.next)].symbol;
    if (const PairTable::Pair* pair = pairs_.find(node.symbol, right))
      heap.push_back({pair->rank, at, node.symbol, right});
  };
  const auto count = static_cast<int32_t>(nodes.size());
  for (int32_t i = 0; i < count; ++i) {
    nodes[static_cast<size_t>(i)] = {(*symbols)[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i < count; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](int32_t at) {
    const size_t before = heap.size();
    propose(at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate candidate = heap.back();
    heap.pop_back();
    Node& left = nodes[static_cast<size_t>(candidate.at)];
    if (left.symbol != candidate.left || left.next < 0) continue;
    Node& right = nodes[static_cast<size_t>(left.next)];
    if (right.symbol != candidate.right) continue;
    left.symbol = pairs_.find(candidate.left, candidate.right)->result;
    right.symbol = -1;
    left.next = right.next;
    if (left.next >= 0) nodes[static_cast<size_t>(left.next)].previous = candidate.at;
    push(left.previous);
    push(candidate.at);
  }
  symbols->clear();
  for (int32_t i = 0; i >= 0; i = nodes[static_cast<size_t>(i)].next) {
    symbols->push_back(nodes[static_cast<size_t>(i)].symbol);
  }
}

Status Bpe::encode(std::string_view bytes, std::vector<int32_t>* out) const {
  if (bytes.empty()) return {};
  if (ignore_merges_) {
    if (const int32_t id = find_token(to_byte_alphabet(bytes)); id >= 0) {
      out->push_back(id);
      return {};
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(bytes.size());
  for (const char c : bytes) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0 && unk_id_ < 0) {
      return fail(Code::kInvalidInput,
                  fmt::format("the byte 0x{:02X} has no token in this model's vocabulary", static_cast<uint8_t>(c)));
    }
    symbols.push_back(id < 0 ? unk_id_ : id);
  }
  if (symbols.size() > 1) {
    if (bytes.size() <= kScanBytesMax) {
      merge_by_scan(&symbols);
    } else {
      merge_by_heap(&symbols);
    }
  }
  for (const int32_t symbol : symbols) {
    if (symbol < vocab_size_) {
      out->push_back(symbol);
      continue;
    }
    const Loose& loose = loose_[static_cast<size_t>(symbol - vocab_size_)];
    out->insert(out->end(), loose_ids_.begin() + loose.offset, loose_ids_.begin() + loose.offset + loose.length);
  }
  return {};
}

}  // namespace baton
