// The tree against a plain list of all checkpoints.
#include "baton/engine/checkpoint_tree.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/base/random.h"
#include "tests/support/fake_state.h"
#include "tests/support/fake_unit.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

std::shared_ptr<const Checkpoint> checkpoint_of(CheckpointMemory& memory, const std::vector<int32_t>& tokens,
                                                const std::shared_ptr<const Checkpoint>& before = nullptr) {
  LiveStates live;
  fake::State state({}, tokens.size(), live);
  for (const int32_t token : tokens) state.append(token);
  auto kept = memory.keep(state, before);
  BATON_CHECK(kept);
  return *kept;
}

// Of keys and values alone, so that it can go back.
std::shared_ptr<const Checkpoint> that_goes_back(CheckpointMemory& memory, uint64_t tokens,
                                                 const std::shared_ptr<const Checkpoint>& before) {
  const Program program = test::fake_program(2, 1, 3, 5, 7, 11, 3, 13);
  test::FakeState state(test::fake_layout(program, tokens, {}), tokens);
  state.fill(1, tokens);
  auto kept = memory.keep(state, before);
  BATON_CHECK(kept);
  return *kept;
}

bool begins(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

TEST(CheckpointTree, FindsWhatAListFinds) {
  for (int seed = 0; seed < scaled(300, 40); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    CheckpointMemory memory;
    CheckpointTree tree;
    std::vector<std::pair<CheckpointKey, std::vector<int32_t>>> all;
    const auto any_tokens = [&] {
      // Of three ids: many beginnings are shared.
      std::vector<int32_t> tokens(1 + random.below(12));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(3));
      return tokens;
    };
    for (int i = 0; i < 60; ++i) {
      const CheckpointKey key{.model = 0, .tenant = random.below(2), .lane = 0, .exact = random.below(2) == 0};
      const std::vector<int32_t> tokens = any_tokens();
      const auto entry = std::pair(key, tokens);
      const auto known = std::find(all.begin(), all.end(), entry);
      ASSERT_EQ(tree.contains(key, tokens), known != all.end());
      switch (random.below(3)) {
        case 0:
          ASSERT_EQ(tree.insert(key, tokens, {checkpoint_of(memory, tokens), {}}, 1), known == all.end());
          if (known == all.end()) all.push_back(entry);
          break;
        case 1:
          if (const KeptState held = tree.find(key, tokens, 1); held.state && held.state->position() == tokens.size())
            tree.erase(key, tokens, *held.state);
          if (known != all.end()) all.erase(known);
          break;
        default: {
          uint64_t best = 0;
          for (const auto& [other, held] : all) {
            if (other == key && begins(tokens, held)) best = std::max<uint64_t>(best, held.size());
          }
          const KeptState found = tree.find(key, tokens, 1);
          ASSERT_EQ(found.state ? found.state->position() : 0, best);
        }
      }
      ASSERT_EQ(tree.size(), all.size());
      ASSERT_EQ(memory.count(), static_cast<int64_t>(all.size()));
    }
    while (tree.drop_one()) {
    }
    ASSERT_EQ(tree.size(), 0u);
    ASSERT_EQ(memory.bytes(), 0u);
  }
}

// Tokens 0, 1, 2 ... , from `first` on.
std::vector<int32_t> run_of(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

TEST(CheckpointTree, DropsWhatIsSoonMadeAgain) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  // Of the same size; one of them lies a page behind another.
  const auto early = run_of(0, 160), late = run_of(0, 176), other = run_of(500, 176);
  const auto first = checkpoint_of(memory, early);
  tree.insert(key, late, {checkpoint_of(memory, late), {}}, 1);
  tree.insert(key, other, {checkpoint_of(memory, other), {}}, 1);
  tree.insert(key, early, {first, {}}, 1);
  EXPECT_EQ(tree.size(), 3u);
  // `early` is held here: it is not dropped, and `late` is 16 tokens away from it.
  ASSERT_TRUE(tree.drop_one());
  EXPECT_FALSE(tree.contains(key, late));
  ASSERT_TRUE(tree.drop_one());
  EXPECT_FALSE(tree.contains(key, other));
  EXPECT_FALSE(tree.drop_one());
  EXPECT_TRUE(tree.contains(key, early));
}

TEST(CheckpointTree, SaysHowFarPromptsAreAlike) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  const auto tokens = run_of(0, 100);
  EXPECT_EQ(tree.shared(key, tokens), 0u);
  tree.insert(key, tokens, {checkpoint_of(memory, tokens), {}}, 1);
  for (const size_t alike : {1, 40, 99, 100}) {
    auto other = tokens;
    other.resize(alike);
    other.push_back(7000);
    EXPECT_EQ(tree.shared(key, other), alike);
    EXPECT_EQ(tree.shared(key, std::span(other).first(alike)), alike);
  }
  EXPECT_EQ(tree.shared({.tenant = 1}, tokens), 0u);
  EXPECT_EQ(tree.shared(key, run_of(1, 10)), 0u);
}

TEST(CheckpointTree, WhatIsDamagedIsDroppedWhereItWasFound) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  const auto tokens = run_of(0, 96), other = run_of(500, 32);
  tree.insert(key, tokens, {that_goes_back(memory, tokens.size(), nullptr), {}}, 1);
  tree.insert(key, other, {checkpoint_of(memory, other), {}}, 1);
  const auto asked = std::span(tokens).first(70);
  // At an earlier position, in the middle of its tokens.
  const KeptState found = tree.find(key, asked, 16);
  ASSERT_TRUE(found.state);
  ASSERT_EQ(found.state->position(), 64u);
  tree.erase(key, std::span(tokens).first(64), *found.state);
  EXPECT_FALSE(tree.contains(key, tokens));
  EXPECT_FALSE(tree.find(key, asked, 16).state);
  EXPECT_TRUE(tree.contains(key, other));
  tree.erase(key, run_of(3, 4), *found.state);  // nothing of the kind
  EXPECT_EQ(tree.size(), 1u);
}

// Two that begin alike and were kept apart: each has pages of its own, and one damaged does not take the other with it.
TEST(CheckpointTree, OneThatOnlyBeginsAlikeStays) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  auto first = run_of(0, 96), second = first;
  std::fill(second.begin() + 70, second.end(), 900);
  tree.insert(key, first, {that_goes_back(memory, first.size(), nullptr), {}}, 1);
  const auto kept = that_goes_back(memory, second.size(), nullptr);
  tree.insert(key, second, {kept, {}}, 1);
  const auto longer = run_of(0, 112);  // behind the first, and with its pages
  tree.insert(key, longer, {that_goes_back(memory, longer.size(), tree.find(key, first, 16).state), {}}, 1);
  const auto asked = std::span(second).first(70);
  const KeptState found = tree.find(key, asked, 16);
  ASSERT_TRUE(found.state);
  ASSERT_EQ(found.state->position(), 64u);
  const bool of_second = found.state->bytes_beside(*kept) == 0;
  tree.erase(key, asked.first(64), *found.state);
  EXPECT_EQ(tree.contains(key, second), !of_second);
  EXPECT_EQ(tree.contains(key, first), of_second);
  EXPECT_EQ(tree.contains(key, longer), of_second);
  const KeptState next = tree.find(key, asked, 16);
  ASSERT_TRUE(next.state);
  EXPECT_EQ(next.state->bytes_beside(*kept) == 0, !of_second);
  tree.erase(key, asked.first(64), *next.state);
  EXPECT_EQ(tree.size(), 0u);
}

TEST(CheckpointTree, WhatIsAskedForStaysLonger) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  for (int32_t i = 0; i < 4; ++i) {
    const auto tokens = run_of(1000 * i, 32);
    tree.insert(key, tokens, {checkpoint_of(memory, tokens), {}}, 1);
  }
  ASSERT_TRUE(tree.drop_one());  // now what is used is worth more than what is not
  std::vector<int32_t> used;
  for (int32_t i = 0; i < 4; ++i) {
    if (tree.contains(key, run_of(1000 * i, 32))) used = run_of(1000 * i, 32);
  }
  tree.find(key, used, 1);
  ASSERT_TRUE(tree.drop_one());
  ASSERT_TRUE(tree.drop_one());
  EXPECT_TRUE(tree.contains(key, used));
}

TEST(CheckpointTree, ACostlyOneStaysLonger) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key;
  const auto cheap = run_of(0, 32), costly = run_of(100, 32);
  tree.insert(key, costly, {checkpoint_of(memory, costly), {}}, 10);
  tree.insert(key, cheap, {checkpoint_of(memory, cheap), {}}, 1);
  ASSERT_TRUE(tree.drop_one());
  EXPECT_TRUE(tree.contains(key, costly));
}

// Into files goes what was used or is dear, each once, and the least valuable first; nothing of a tenant.
TEST(CheckpointTree, WhatIsStoredIsWorthIt) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key{.model = 1, .tenant = 0, .lane = 0, .exact = true};
  CheckpointKey tenants = key;
  tenants.tenant = 3;
  const std::vector<int32_t> cheap = {1, 2, 3}, dear = {4, 5, 6, 7}, longer = {1, 2, 3, 4, 5};
  const auto keep = [&](const CheckpointKey& of, const std::vector<int32_t>& tokens, double ms_per_token) {
    ASSERT_TRUE(tree.insert(of, tokens, {checkpoint_of(memory, tokens), {}}, ms_per_token));
  };
  keep(key, cheap, 10);
  keep(key, longer, 10);
  keep(key, dear, 250);
  keep(tenants, dear, 1000);
  const auto next = [&] {
    const auto found = tree.next_to_store(1, 1000);
    return found ? found->tokens : std::vector<int32_t>();
  };
  EXPECT_EQ(next(), dear);
  EXPECT_EQ(next(), std::vector<int32_t>());
  ASSERT_TRUE(tree.find(key, longer, 16).state);
  EXPECT_EQ(next(), longer);
  ASSERT_TRUE(tree.find(key, std::vector<int32_t>({1, 2, 3, 9}), 16).state);
  EXPECT_EQ(next(), cheap);
  ASSERT_TRUE(tree.find(tenants, dear, 16).state);
  EXPECT_EQ(next(), std::vector<int32_t>());
  EXPECT_EQ(tree.next_to_store(0, 0), std::nullopt) << "of another model";
}

TEST(CheckpointTree, TheMostValuableIsStoredFirstWhereThatIsAskedFor) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key{.model = 1};
  const std::vector<int32_t> cheap = {1, 2, 3}, dear = {4, 5, 6, 7}, between = {8, 9, 8, 9};
  const auto keep = [&](const std::vector<int32_t>& tokens, double ms_per_token) {
    ASSERT_TRUE(tree.insert(key, tokens, {checkpoint_of(memory, tokens), {}}, ms_per_token));
  };
  keep(cheap, 10);
  keep(dear, 250);
  keep(between, 100);
  std::vector<std::vector<int32_t>> stored;
  while (const auto found = tree.next_to_store(1, 50, true)) stored.push_back(found->tokens);
  EXPECT_EQ(stored, (std::vector<std::vector<int32_t>>{dear, between}));
}

// Of a question that is typed the last few stay, and none is for others, until somebody asks for it.
TEST(CheckpointTree, WhatPassesIsForNobodyUntilItIsAskedFor) {
  CheckpointMemory memory;
  CheckpointTree tree;
  const CheckpointKey key{}, other{.lane = 1};
  const auto question = [](int32_t length) { return std::vector<int32_t>(static_cast<size_t>(length), 7); };
  const auto put = [&](const CheckpointKey& of, int32_t length, uint64_t passing) {
    return tree.insert(of, question(length), {checkpoint_of(memory, question(length)), {}}, 1, passing);
  };
  ASSERT_TRUE(put(key, 3, 0));
  for (int32_t length = 10; length < 20; ++length) ASSERT_TRUE(put(length % 2 == 0 ? key : other, length, 5));
  ASSERT_TRUE(put(key, 30, 6));
  EXPECT_EQ(tree.size(), 1 + kPassingMax + 1);
  EXPECT_TRUE(tree.contains(key, question(3)) && tree.contains(other, question(19)) &&
              tree.contains(key, question(16)));
  EXPECT_FALSE(tree.contains(key, question(14)));
  EXPECT_EQ(tree.all_of(0).size(), 1u);
  EXPECT_FALSE(tree.next_to_store(0, 1e9));

  EXPECT_EQ(tree.find(key, question(17), 16, true).state->position(), 16u);
  EXPECT_EQ(tree.all_of(0).size(), 1u);
  EXPECT_EQ(tree.find(key, question(17), 16).state->position(), 16u);
  EXPECT_EQ(tree.all_of(0).size(), 2u);
  EXPECT_FALSE(put(key, 18, 0));  // there already: what others ask for too
  EXPECT_EQ(tree.all_of(0).size(), 3u);
  for (int32_t length = 40; length < 50; ++length) ASSERT_TRUE(put(key, length, 5));
  EXPECT_TRUE(tree.contains(key, question(16)) && tree.contains(key, question(18)) && tree.contains(key, question(30)));
  EXPECT_FALSE(tree.contains(other, question(19)));
}

}  // namespace
}  // namespace baton
