// Which checkpoints there are, by the tokens they were made from: a tree over token ids whose branches share their
// beginnings. Pure like the scheduler, which owns it: no threads, no clock, no randomness; the same calls give the same
// answers. Knows nothing of how states are made; the memory they take is counted by CheckpointMemory.
//
// What goes first when room is needed: the checkpoint whose time to compute it again is least for the bytes that
// dropping it frees, aged by how long nobody asked for it (GreedyDual-Size; Cao and Irani, 1997: the priority of an
// entry is cost / size, plus the priority of the last one dropped when it was last used).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/bridge/checkpoint.h"

namespace baton {

// A request leaves two, at a page's end and at its own: those of two requests, so that one may be taken back.
inline constexpr size_t kPassingMax = 4;

// Checkpoints of one key alone are found: states of another model, of another tenant or made in another way are not
// there for who asks.
struct CheckpointKey {
  uint32_t model = 0;   // which of SchedulerFacts::models
  uint64_t tenant = 0;  // Request::tenant
  uint32_t lane = 0;    // whose unit made all of it
  bool exact = false;   // by prefills alone, in the steps that any prompt that begins so takes
  friend auto operator<=>(const CheckpointKey&, const CheckpointKey&) = default;
};

// One, as it lies in the tree.
struct FoundCheckpoint {
  CheckpointKey key;
  std::vector<int32_t> tokens;  // it was made from
  KeptState kept;
  double ms = 0;  // that all of its tokens took, at the speed of its last
};

class CheckpointTree {
 public:
  CheckpointTree();
  ~CheckpointTree();

  // The longest checkpoint of the key that was made from a beginning of `tokens`; none: an empty one. Of states that
  // can go back (Checkpoint::at) also what one held at an earlier position, a multiple of `piece`. Counts as use.
  // `passes`: who asks leaves it passing, if it is (see insert).
  KeptState find(const CheckpointKey& key, std::span<const int32_t> tokens, uint64_t piece, bool passes = false);
  // How many of these tokens the longest beginning has that they share with a checkpoint of the key: where prompts
  // branch, and others will.
  uint64_t shared(const CheckpointKey& key, std::span<const int32_t> tokens) const;
  // Whether there is one of exactly these tokens. No use of it.
  bool contains(const CheckpointKey& key, std::span<const int32_t> tokens) const;
  // Keeps one that was made from `tokens`, as many as its position and one at least; `ms_per_token`: what they took, to
  // weigh it by. False when there was one already: that stays. `passing`: Request::passing; of one number the last
  // kPassingMax stay, and all_of and next_to_store know none.
  bool insert(const CheckpointKey& key, std::span<const int32_t> tokens, KeptState kept, double ms_per_token,
              uint64_t passing = 0);
  // `found`, which `find` gave for a beginning of exactly these tokens, turned out to be damaged: drops it, and every
  // one that holds all of its bytes, whoever still holds them. One that only begins with the same tokens stays.
  void erase(const CheckpointKey& key, std::span<const int32_t> tokens, const Checkpoint& found);

  // All of a model that no tenant has, the most valuable first: that which drop_one would take last.
  std::vector<FoundCheckpoint> all_of(uint32_t model) const;

  // Of all_of those the one that drop_one would take first, or `last`, among those that nobody was given here yet and
  // that are worth a file: one was used, or took `ms` to make. None: there is none.
  std::optional<FoundCheckpoint> next_to_store(uint32_t model, double ms, bool last = false);

  // Drops the least valuable one that nobody else holds. False: there is none.
  bool drop_one();
  size_t size() const { return entries_; }

 private:
  struct Node;
  // Where a way along the tokens ends.
  struct Way {
    Node* kept = nullptr;  // the last checkpoint on it
    Node* last = nullptr;  // whose edge begins like what is left of the tokens
    uint64_t alike = 0;    // tokens, to the end of that or within it
  };
  Way way_of(const CheckpointKey& key, std::span<const int32_t> tokens) const;
  template <class Visit>
  static void for_each(Node& root, Visit visit);
  Node* node_of(const CheckpointKey& key, std::span<const int32_t> tokens) const;
  void remove(const CheckpointKey& key, Node& node);
  void drop_passing(uint64_t passing);
  static Node& kept_below(Node& node);
  static KeptState at_earlier(Node& node, uint64_t position, double age);
  static uint64_t freed_bytes(const Node& node);
  static uint64_t replayed_tokens(const Node& node);
  static double priority(const Node& node);
  static std::vector<int32_t> tokens_of(const Node& node);

  std::map<CheckpointKey, std::unique_ptr<Node>> roots_;
  size_t entries_ = 0;
  uint64_t inserted_ = 0;  // so far
  double age_ = 0;         // priority of the last one dropped
};

}  // namespace baton
