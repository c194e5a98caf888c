// What is written when something cannot be.
#include "baton/engine/checkpoint_writer.h"

#include <gtest/gtest.h>

#include "baton/bridge/bridge.h"
#include "tests/support/fake_unit.h"

namespace baton {
namespace {

// Keeps what it is given by its tokens; fails where it is told to.
class Shelf final : public StoredStates {
 public:
  std::optional<CachedState> find(std::span<const int32_t>, uint64_t,
                                  const std::function<bool(const Provenance&)>&) override {
    return std::nullopt;
  }
  bool contains(std::span<const int32_t> tokens, const std::function<bool(const Provenance&)>& like) const override {
    return tokens.size() == there && like(of_there);
  }
  Result<bool> keep(const SealSource& state, std::span<const int32_t> tokens, const Provenance&, double) override {
    if (tokens.size() == full_at) return fail(Code::kDevice, "no space is left");
    BATON_TRY(const auto block, state.block());
    kept.push_back(tokens.size());
    return !block.empty();
  }
  void refuse(const std::filesystem::path&, bool) override {}
  uint64_t bytes_max() const override { return bytes; }

  std::vector<size_t> kept;  // tokens of each
  size_t full_at = 0, there = 0;
  Provenance of_there;
  uint64_t bytes = UINT64_MAX;
};

class Writing : public testing::Test {
 protected:
  // Of so many tokens each.
  std::vector<FoundCheckpoint> found(const std::vector<size_t>& lengths) {
    std::vector<FoundCheckpoint> all;
    for (const size_t length : lengths) {
      LiveStates live;
      fake::State state({}, length, live);
      FoundCheckpoint& one = all.emplace_back();
      for (size_t i = 0; i < length; ++i) {
        one.tokens.push_back(static_cast<int32_t>(i % fake::kVocab));
        state.append(one.tokens.back());
      }
      auto kept = memory_.keep(state, nullptr);
      BATON_CHECK(kept);
      one.kept.state = *kept;
      one.kept.provenance.add({"fake", "fake"}, StepKind::kPrefill, length);
    }
    return all;
  }
  static void damage(const FoundCheckpoint& one) {
    auto* row = const_cast<std::byte*>(one.kept.state->view(0, {0, 1}));
    row[1] ^= std::byte{4};
  }
  Status write(std::vector<FoundCheckpoint> all) {
    const auto identity = [](uint32_t) -> Result<StateIdentity> { return StateIdentity{1, 2, 3}; };
    return write_checkpoints(shelf_, identity, std::move(all), {});
  }

  CheckpointMemory memory_;
  Shelf shelf_;
};

TEST_F(Writing, TheMostValuableIsLast) {
  EXPECT_TRUE(write(found({30, 20, 10})));
  EXPECT_EQ(shelf_.kept, (std::vector<size_t>{10, 20, 30}));
}

TEST_F(Writing, ADamagedOneIsLeftOutAlone) {
  const auto all = found({50, 40, 30, 20, 10});
  damage(all[1]);
  damage(all[3]);
  const Status status = write(all);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCorrupt);
  EXPECT_EQ(status.error().message.find("2 of 5 were left out, the first: "), 0u) << status.error().message;
  EXPECT_EQ(shelf_.kept, (std::vector<size_t>{10, 30, 50}));
}

TEST_F(Writing, AFileThatFailsKeepsNoOtherOut) {
  shelf_.full_at = 10;
  const auto all = found({40, 30, 20, 10});
  damage(all[1]);
  const Status status = write(all);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "2 of 4 were left out, the first: no space is left");
  EXPECT_EQ(shelf_.kept, (std::vector<size_t>{20, 40}));
}

TEST_F(Writing, OnlyWhatThereIsRoomFor) {
  const auto all = found({30, 20, 10});
  const KeptState& most = all[0].kept;
  shelf_.bytes = sealed_bytes(most.state->shape(), 30, most.provenance);
  EXPECT_TRUE(write(all));
  EXPECT_EQ(shelf_.kept, (std::vector<size_t>{30}));
}

}  // namespace
}  // namespace baton
