// A radix tree: a node for each checkpoint and each branch.
#include "baton/engine/checkpoint_tree.h"

#include <algorithm>
#include <utility>

namespace baton {

struct CheckpointTree::Node {
  Node* parent = nullptr;
  std::vector<int32_t> tokens;                        // of the edge that leads here, one at least but for a root
  uint64_t depth = 0;                                 // tokens from the root to here
  std::map<int32_t, std::unique_ptr<Node>> children;  // by the first token of their edge
  KeptState kept;                                     // its state null: a branch
  double ms_per_token = 0, last_used_age = 0;
  bool used = false;    // by a request
  bool stored = false;  // given to who writes it into a file
  uint64_t passing = 0, inserted = 0;
  double ms() const { return ms_per_token * static_cast<double>(depth); }
};

CheckpointTree::CheckpointTree() = default;
CheckpointTree::~CheckpointTree() = default;

namespace {

// Whether it may outlive the engine: no tenant's.
bool lasts(const CheckpointKey& key, uint32_t model) { return key.model == model && key.tenant == 0; }

size_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

// A checkpoint at the node or below it, which all begin alike.
CheckpointTree::Node& CheckpointTree::kept_below(Node& node) {
  Node* of = &node;
  while (of->kept.state == nullptr) of = of->children.begin()->second.get();  // a branch has ways on
  return *of;
}

// What such a checkpoint held at a position.
KeptState CheckpointTree::at_earlier(Node& node, uint64_t position, double age) {
  Node& of = kept_below(node);
  auto state = of.kept.state->at(position);
  if (!state || *state == nullptr) return {};
  of.last_used_age = age;
  of.used = true;
  const std::vector<StateMaker>& makers = of.kept.provenance.makers;
  return {std::move(*state), makers.size() == 1 ? Provenance::of(makers[0].unit, makers[0].arithmetic, position)
                                                : Provenance::unknown(position)};
}

CheckpointTree::Way CheckpointTree::way_of(const CheckpointKey& key, std::span<const int32_t> tokens) const {
  Way way;
  const auto root = roots_.find(key);
  if (root == roots_.end()) return way;
  for (Node* node = root->second.get(); node != nullptr;) {
    if (node->kept.state != nullptr) way.kept = node;
    const auto rest = tokens.subspan(node->depth);
    const auto next = rest.empty() ? node->children.end() : node->children.find(rest.front());
    if (next == node->children.end()) break;
    way.last = next->second.get();
    way.alike = node->depth + common(way.last->tokens, rest);
    node = way.alike == way.last->depth ? way.last : nullptr;
  }
  return way;
}

KeptState CheckpointTree::find(const CheckpointKey& key, std::span<const int32_t> tokens, uint64_t piece, bool passes) {
  const Way way = way_of(key, tokens);
  const uint64_t earlier = way.alike / piece * piece;
  if (way.last != nullptr && earlier > (way.kept == nullptr ? 0 : way.kept->depth)) {
    if (KeptState back = at_earlier(*way.last, earlier, age_); back.state != nullptr) return back;
  }
  if (way.kept == nullptr) return {};
  way.kept->last_used_age = age_;
  way.kept->used = true;
  if (!passes) way.kept->passing = 0;
  return way.kept->kept;
}

uint64_t CheckpointTree::shared(const CheckpointKey& key, std::span<const int32_t> tokens) const {
  return way_of(key, tokens).alike;
}

CheckpointTree::Node* CheckpointTree::node_of(const CheckpointKey& key, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(key);
  Node* node = root == roots_.end() ? nullptr : root->second.get();
  while (node != nullptr && node->depth < tokens.size()) {
    const auto rest = tokens.subspan(node->depth);
    const auto next = node->children.find(rest.front());
    const bool leads =
        next != node->children.end() && common(next->second->tokens, rest) == next->second->tokens.size();
    node = leads ? next->second.get() : nullptr;
  }
  return node;
}

bool CheckpointTree::contains(const CheckpointKey& key, std::span<const int32_t> tokens) const {
  const Node* node = node_of(key, tokens);
  return node != nullptr && node->kept.state != nullptr;
}

bool CheckpointTree::insert(const CheckpointKey& key, std::span<const int32_t> tokens, KeptState kept,
                            double ms_per_token, uint64_t passing) {
  BATON_CHECK(!tokens.empty() && kept.state != nullptr && kept.state->position() == tokens.size());
  std::unique_ptr<Node>& root = roots_[key];
  if (root == nullptr) root = std::make_unique<Node>();
  Node* node = root.get();
  while (node->depth < tokens.size()) {
    const auto rest = tokens.subspan(node->depth);
    std::unique_ptr<Node>& next = node->children[rest.front()];
    if (next == nullptr) {
      next = std::make_unique<Node>();
      next->parent = node;
      next->tokens.assign(rest.begin(), rest.end());
      next->depth = tokens.size();
    } else if (const size_t shared = common(next->tokens, rest); shared < next->tokens.size()) {
      auto branch = std::make_unique<Node>();
      const auto split = next->tokens.begin() + static_cast<ptrdiff_t>(shared);
      branch->parent = node;
      branch->tokens.assign(next->tokens.begin(), split);
      branch->depth = node->depth + shared;
      next->tokens.erase(next->tokens.begin(), split);
      next->parent = branch.get();
      branch->children.emplace(next->tokens.front(), std::move(next));
      next = std::move(branch);
    }
    node = next.get();
  }
  if (node->kept.state != nullptr) {
    if (passing == 0) node->passing = 0;
    return false;
  }
  node->kept = std::move(kept);
  node->ms_per_token = ms_per_token;
  node->last_used_age = age_;
  node->used = node->stored = false;  // of one that was here before
  node->passing = passing;
  node->inserted = ++inserted_;
  ++entries_;
  if (passing != 0) drop_passing(passing);
  return true;
}

void CheckpointTree::drop_passing(uint64_t passing) {
  size_t count = 0;
  const CheckpointKey* key = nullptr;
  Node* oldest = nullptr;
  for (const auto& entry : roots_) {
    for_each(*entry.second, [&](Node& node) {
      if (node.passing != passing) return;
      ++count;
      if (oldest != nullptr && node.inserted > oldest->inserted) return;
      key = &entry.first;
      oldest = &node;
    });
  }
  if (count <= kPassingMax) return;
  const CheckpointKey of = *key;
  remove(of, *oldest);
}

void CheckpointTree::erase(const CheckpointKey& key, std::span<const int32_t> tokens, const Checkpoint& found) {
  const Way way = way_of(key, tokens);
  std::vector<Node*> left, damaged;
  if (way.kept != nullptr && way.kept->depth == tokens.size()) {
    left.push_back(way.kept);
  } else if (way.last != nullptr && way.alike == tokens.size()) {
    left.push_back(way.last);
  }
  while (!left.empty()) {
    Node* node = left.back();
    left.pop_back();
    for (auto& [first, child] : node->children) left.push_back(child.get());
    if (node->kept.state != nullptr && found.bytes_beside(*node->kept.state) == 0) damaged.push_back(node);
  }
  for (Node* node : damaged) remove(key, *node);
}

void CheckpointTree::remove(const CheckpointKey& key, Node& node) {
  node.kept = {};
  --entries_;
  Node* at = &node;
  while (at->parent != nullptr && at->children.empty() && at->kept.state == nullptr) {
    Node* parent = at->parent;
    parent->children.erase(at->tokens.front());
    at = parent;
  }
  if (at->parent == nullptr) {
    if (at->children.empty()) roots_.erase(key);
    return;
  }
  if (at->kept.state != nullptr || at->children.size() != 1) return;
  // A branch with one way on is none.
  std::unique_ptr<Node> only = std::move(at->children.begin()->second);
  only->tokens.insert(only->tokens.begin(), at->tokens.begin(), at->tokens.end());
  only->parent = at->parent;
  at->parent->children[only->tokens.front()] = std::move(only);
}

// Each checkpoint at the node or below it, in the order of no tokens.
template <class Visit>
void CheckpointTree::for_each(Node& root, Visit visit) {
  std::vector<Node*> left = {&root};
  while (!left.empty()) {
    Node* node = left.back();
    left.pop_back();
    for (auto& [first, child] : node->children) left.push_back(child.get());
    if (node->kept.state != nullptr) visit(*node);
  }
}

std::vector<FoundCheckpoint> CheckpointTree::all_of(uint32_t model) const {
  std::vector<std::pair<double, FoundCheckpoint>> found;
  for (const auto& entry : roots_) {  // lambdas take no structured bindings
    const CheckpointKey& key = entry.first;
    if (!lasts(key, model)) continue;
    for_each(*entry.second, [&](Node& node) {
      if (node.passing == 0) found.push_back({priority(node), {key, tokens_of(node), node.kept, node.ms()}});
    });
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<FoundCheckpoint> all;
  for (auto& [value, each] : found) all.push_back(std::move(each));
  return all;
}

std::vector<int32_t> CheckpointTree::tokens_of(const Node& node) {
  std::vector<int32_t> tokens(node.depth);
  for (const Node* at = &node; at->parent != nullptr; at = at->parent)
    std::copy(at->tokens.begin(), at->tokens.end(), tokens.begin() + static_cast<ptrdiff_t>(at->parent->depth));
  return tokens;
}

std::optional<FoundCheckpoint> CheckpointTree::next_to_store(uint32_t model, double ms, bool last) {
  Node* next = nullptr;
  CheckpointKey of;
  for (const auto& entry : roots_) {
    const CheckpointKey& key = entry.first;
    if (!lasts(key, model)) continue;
    for_each(*entry.second, [&](Node& node) {
      if (node.passing != 0 || node.stored || (!node.used && node.ms() < ms)) return;
      if (next != nullptr && (last ? priority(node) <= priority(*next) : priority(node) >= priority(*next))) return;
      next = &node;
      of = key;
    });
  }
  if (next == nullptr) return std::nullopt;
  next->stored = true;
  return FoundCheckpoint{of, tokens_of(*next), next->kept, next->ms()};
}

uint64_t CheckpointTree::replayed_tokens(const Node& node) {
  const Node* before = node.parent;
  while (before->parent != nullptr && before->kept.state == nullptr) before = before->parent;
  return node.depth - before->depth;
}

// Pages that the checkpoints before it and behind it do not hold.
uint64_t CheckpointTree::freed_bytes(const Node& node) {
  const Checkpoint& state = *node.kept.state;
  uint64_t freed = state.bytes();
  const auto beside = [&](const Node& other) {
    if (other.kept.state != nullptr) freed = std::min(freed, state.bytes_beside(*other.kept.state));
  };
  for (const Node* before = node.parent; before != nullptr; before = before->parent) {
    beside(*before);
    if (before->kept.state != nullptr) break;
  }
  for (const auto& [first, child] : node.children) beside(*child);
  return freed;
}

double CheckpointTree::priority(const Node& node) {
  const double ms = node.ms_per_token * static_cast<double>(replayed_tokens(node));
  return node.last_used_age + ms / static_cast<double>(std::max<uint64_t>(freed_bytes(node), 1));
}

bool CheckpointTree::drop_one() {
  const CheckpointKey* key = nullptr;
  Node* least = nullptr;
  double least_priority = 0;
  for (const auto& entry : roots_) {
    for_each(*entry.second, [&](Node& node) {
      if (node.kept.state.use_count() > 1) return;
      const double value = priority(node);
      if (least != nullptr && value >= least_priority) return;
      key = &entry.first;
      least = &node;
      least_priority = value;
    });
  }
  if (least == nullptr) return false;
  age_ = least_priority;
  const CheckpointKey of = *key;
  remove(of, *least);
  return true;
}

}  // namespace baton
