// Steps, what follows an end, and masks.
#include "baton/grammar/matcher.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

namespace baton::grammar {
namespace {

constexpr uint32_t kSmallSubtree = 96;    // nodes: it is walked; of larger ones masks are kept
constexpr uint32_t kBottom = UINT32_MAX;  // a node: behind it the answer ends

void set_bits(std::span<const int32_t> ids, std::span<uint32_t> bits) {
  for (const int32_t id : ids) bits[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

// Goes on from places until each way stands in front of a byte. A rule that several ways call here is begun once, with
// all of them to come back to: callers are done before what they call (Grammar::Rule::order).
class Matcher::Closing {
 public:
  explicit Closing(Matcher* matcher) : m_(*matcher), g_(*matcher->grammar_) {}

  void from(Frame place) {
    if (seen_.insert(uint64_t{place.node} << 32 | place.stack).second) open_.push_back(place);
  }
  State run() {
    expand_all();
    while (!calls_.empty()) {
      auto call = calls_.extract(calls_.begin());
      const uint32_t stack = m_.intern(&call.mapped().second);
      if (m_.stacks_[stack].depth > kDepthMax) continue;
      from({g_.rules[call.mapped().first].start, stack});
      expand_all();
    }
    State out;
    out.ends = ends_;
    for (auto& [terminal, places] : begun_) out.ways.push_back({terminal, 0, m_.intern(&places)});
    return out;
  }

 private:
  void expand_all() {
    while (!open_.empty()) {
      const Frame at = open_.back();
      open_.pop_back();
      if (at.node == kBottom) {
        ends_ = true;
        continue;
      }
      if (g_.nodes[at.node].ends) {
        for (const Frame& back : m_.frames(at.stack)) from(back);
      }
      for (const Grammar::Edge& edge : g_.edges_of(at.node)) {
        if (edge.symbol < 0) {
          auto& [rule, places] = calls_[g_.rules[static_cast<size_t>(~edge.symbol)].order];
          rule = static_cast<uint32_t>(~edge.symbol);
          put(edge.target, at.stack, &places);
        } else {
          put(edge.target, at.stack, &begun_[static_cast<uint32_t>(edge.symbol)]);
        }
      }
    }
  }
  // Where a rule would only end, its caller's places are put in its stead: recursion at the end costs no depth.
  void put(uint32_t node, uint32_t stack, std::vector<Frame>* places) {
    if (g_.nodes[node].ends && g_.edges_of(node).empty()) {
      const auto back = m_.frames(stack);
      places->insert(places->end(), back.begin(), back.end());
    } else {
      places->push_back({node, stack});
    }
  }

  Matcher& m_;
  const Grammar& g_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Frame> open_;
  std::map<uint32_t, std::pair<uint32_t, std::vector<Frame>>> calls_;  // by order
  std::map<uint32_t, std::vector<Frame>> begun_;                       // by terminal
  bool ends_ = false;
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, bool spaced) : grammar_(std::move(grammar)), spaced_(spaced) {
  reset();
}

void Matcher::reset() {
  overflowed_ = false;
  stacks_.clear();
  frames_.clear();
  known_.clear();
  behind_.clear();
  std::vector<Frame> bottom = {{kBottom, 0}};
  stacks_.push_back({.frames = 0, .count = 1});
  frames_.push_back(bottom[0]);
  Closing closing(this);
  closing.from({grammar_->rules[spaced_ ? grammar_->spaced_root : grammar_->root].start, 0});
  now_ = closing.run();
}

uint32_t Matcher::intern(std::vector<Frame>* frames) {
  std::sort(frames->begin(), frames->end());
  frames->erase(std::unique(frames->begin(), frames->end()), frames->end());
  if (frames->size() == 1 && frames->front().node == kBottom) return 0;
  uint64_t hash = frames->size();
  uint32_t depth = 0;
  for (const Frame& f : *frames) {
    hash = (hash ^ (uint64_t{f.node} << 32 | f.stack)) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 29;
    if (f.node != kBottom) depth = std::max(depth, stacks_[f.stack].depth + 1);
  }
  const auto [begin, end] = known_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (std::ranges::equal(this->frames(at->second), *frames)) return at->second;
  }
  const uint32_t id = static_cast<uint32_t>(stacks_.size());
  stacks_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames->size()), depth});
  frames_.insert(frames_.end(), frames->begin(), frames->end());
  known_.emplace(hash, id);
  return id;
}

uint32_t Matcher::join(uint32_t a, uint32_t b) {
  if (a == b) return a;
  std::vector<Frame> both(frames(a).begin(), frames(a).end());
  both.insert(both.end(), frames(b).begin(), frames(b).end());
  return intern(&both);
}

const Matcher::State& Matcher::behind(uint32_t stack) {
  if (const auto found = behind_.find(stack); found != behind_.end()) return found->second;
  Closing closing(this);
  for (uint32_t i = 0; i < stacks_[stack].count; ++i) closing.from(frames_[stacks_[stack].frames + i]);
  State made = closing.run();
  return behind_.emplace(stack, std::move(made)).first->second;
}

bool Matcher::step(const State& from, uint8_t byte, State* to) {
  to->ways.clear();
  to->ends = false;
  completed_.clear();
  for (const Way& way : from.ways) {
    const Terminal& terminal = *grammar_->terminals[way.terminal];
    const uint32_t state = terminal.step(way.state, byte);
    if (state == kDead) continue;
    to->ways.push_back({way.terminal, state, way.stack});
    if (terminal.accepting(state)) completed_.push_back(way.stack);
  }
  if (to->ways.empty()) return false;
  if (!completed_.empty()) {
    uint32_t stack = completed_[0];
    for (size_t i = 1; i < completed_.size(); ++i) stack = join(stack, completed_[i]);
    const State& next = behind(stack);
    to->ends = next.ends;
    to->ways.insert(to->ways.end(), next.ways.begin(), next.ways.end());
  }
  if (to->ways.size() > 1) {
    std::sort(to->ways.begin(), to->ways.end(), [](const Way& a, const Way& b) {
      return a.terminal != b.terminal ? a.terminal < b.terminal : a.state < b.state;
    });
    size_t kept = 0;
    for (size_t i = 1; i < to->ways.size(); ++i) {
      Way& last = to->ways[kept];
      const Way& way = to->ways[i];
      if (last.terminal == way.terminal && last.state == way.state) {
        last.stack = join(last.stack, way.stack);
      } else {
        to->ways[++kept] = way;
      }
    }
    to->ways.resize(kept + 1);
  }
  if (to->ways.size() > kWaysMax || frames_.size() > kFramesMax) {
    overflowed_ = true;
    return false;
  }
  return true;
}

bool Matcher::push(std::string_view bytes) {
  State at = now_;
  for (const char c : bytes) {
    if (!step(at, static_cast<uint8_t>(c), &scratch_)) return false;
    std::swap(at, scratch_);
  }
  std::swap(now_, at);
  if (frames_.size() > collect_at_) collect();
  return true;
}

void Matcher::allow(const Vocabulary& vocabulary, std::span<uint32_t> bits) {
  for (const Way way : now_.ways) allow(vocabulary, way, 0, 0, bits);
}

void Matcher::allow(const Vocabulary& vocabulary, const Way& way, uint32_t node, size_t level,
                    std::span<uint32_t> bits) {
  const auto mask = vocabulary.mask(*grammar_->terminals[way.terminal], way.state, node);
  set_bits(mask->ids, bits);
  for (size_t i = 0; i < mask->bits.size(); ++i) bits[i] |= mask->bits[i];
  if (mask->crossings.empty()) return;
  const TokenTrie& trie = vocabulary.trie();
  const State& ended = behind(way.stack);
  if (levels_.size() <= level) levels_.emplace_back();
  State& state = levels_[level];
  for (uint32_t b = 0; b < 256; ++b) {
    if (mask->first[b] == mask->first[b + 1] || !step(ended, static_cast<uint8_t>(b), &state)) continue;
    for (uint32_t i = mask->first[b]; i < mask->first[b + 1]; ++i) {
      const uint32_t next = mask->crossings[i];
      if (trie.nodes[next].end - next < kSmallSubtree) {
        walk(vocabulary, next, state, bits);
        continue;
      }
      set_bits(trie.tokens(next), bits);
      for (const Way& further : state.ways) allow(vocabulary, further, next, level + 1, bits);
    }
  }
}

// The subtree of `node`, of which the byte was taken: `from` is the state behind it.
void Matcher::walk(const Vocabulary& vocabulary, uint32_t node, const State& from, std::span<uint32_t> bits) {
  const TokenTrie& trie = vocabulary.trie();
  set_bits(trie.tokens(node), bits);
  const uint32_t base = trie.nodes[node].depth;
  for (uint32_t i = node + 1; i < trie.nodes[node].end;) {
    const uint32_t depth = trie.nodes[i].depth - base;
    if (depths_.size() <= depth) depths_.resize(depth + 1);
    if (!step(depth == 1 ? from : depths_[depth - 1], trie.nodes[i].byte, &depths_[depth])) {
      i = trie.nodes[i].end;
      continue;
    }
    set_bits(trie.tokens(i), bits);
    ++i;
  }
}

// Keeps what the ways need. A stack's frames name stacks that are older than it.
void Matcher::collect() {
  std::vector<uint8_t> needed(stacks_.size());
  for (const Way& way : now_.ways) needed[way.stack] = 1;
  for (size_t s = stacks_.size(); s-- > 1;) {
    if (needed[s] == 0) continue;
    for (const Frame& f : frames(static_cast<uint32_t>(s))) needed[f.stack] = 1;
  }
  const std::vector<Stack> old = std::move(stacks_);
  const std::vector<Frame> old_frames = std::move(frames_);
  stacks_.assign(1, old[0]);
  frames_.assign(1, old_frames[0]);
  known_.clear();
  behind_.clear();
  std::vector<uint32_t> renamed(old.size());
  std::vector<Frame> copied;
  for (size_t s = 1; s < old.size(); ++s) {
    if (needed[s] == 0) continue;
    copied.assign(old_frames.begin() + old[s].frames, old_frames.begin() + old[s].frames + old[s].count);
    for (Frame& f : copied) f.stack = renamed[f.stack];
    renamed[s] = intern(&copied);
  }
  for (Way& way : now_.ways) way.stack = renamed[way.stack];
  collect_at_ = std::max<size_t>(1 << 16, frames_.size() * 2);
}

}  // namespace baton::grammar
