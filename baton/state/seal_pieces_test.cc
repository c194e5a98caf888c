// Sections longer than the piece a seal is read in (32 KiB), and fingerprints and digests at their edges.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/state/seal.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

constexpr StateIdentity kSealedAs{0x1111222233334444, 0x5555666677778888, 0x9999aaaabbbbcccc};
constexpr uint64_t kTokens = 300;

// Recurrent state of 128 KiB, keys and values of 75 KiB each: three pieces and more.
struct Large {
  StateShape shape = state_shape(test::fake_program(2, 2, 4, 32, 64, 128, 3, 256), DType::kF16);
  std::vector<int32_t> tokens = test::fake_tokens(1, kTokens);

  SealExpectation expected() const {
    SealExpectation expectation;
    expectation.identity = kSealedAs;
    expectation.shape = &shape;
    expectation.position_max = 512;
    return expectation;
  }
  std::vector<std::byte> block(const StateIdentity& identity = kSealedAs) const {
    Random random(3);
    return test::sealed_block(identity, tokens, shape, {}, [&](size_t) { return random.normal(); });
  }
};

std::string message_of(const Result<SealedView>& view) { return view ? "accepted" : view.error().message; }

TEST(SealPieces, AValueThatIsNotFiniteIsNamedByItsPlaceInTheSection) {
  const Large large;
  auto block = large.block();
  const auto view = open_seal(block, large.expected());
  ASSERT_TRUE(view.has_value()) << message_of(view);
  const auto offset_of = [&](size_t section) {
    return static_cast<size_t>(view->sections[section].bytes.data() - block.data());
  };
  struct Place {
    size_t section;
    uint64_t value;
  };
  // In the first piece, at a piece's first and last value, and in the last piece.
  for (const Place place : {Place{1, 5}, {1, 8191}, {1, 8192}, {1, 20000}, {1, 32767}, {2, 16384}, {3, 38399}}) {
    const SealedSection& section = view->sections[place.section];
    const uint64_t bytes = value_bytes(section.dtype), at = offset_of(place.section) + place.value * bytes;
    ASSERT_LT(place.value * bytes, section.bytes.size());
    auto damaged = block;
    if (bytes == 4) {
      store_as<float>(damaged.data() + at, std::numeric_limits<float>::infinity());
    } else {
      store_as<uint16_t>(damaged.data() + at, uint16_t{0x7c00});
    }
    test::reseal(damaged);
    const auto refused = open_seal(damaged, large.expected());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kCorrupt);
    EXPECT_NE(refused.error().message.find(fmt::format("): value {} is inf", place.value)), std::string::npos)
        << refused.error().message;
  }
}

TEST(SealPieces, ABitInAnyPieceIsRefused) {
  const Large large;
  auto block = large.block();
  for (size_t at = block.size() - 1; at > block.size() / 8; at -= block.size() / 23) {
    block[at] ^= std::byte{4};
    EXPECT_FALSE(open_seal(block, large.expected()).has_value()) << at;
    block[at] ^= std::byte{4};
  }
  EXPECT_TRUE(open_seal(block, large.expected()).has_value());
}

// The digest is checked whether or not the receiver has a prompt of its own to compare with.
TEST(SealPieces, ADamagedDigestIsRefusedWithAndWithoutAPrompt) {
  const Large large;
  auto block = large.block();
  constexpr uint64_t kDigestAt = 72;  // docs/state_format.md
  block[kDigestAt] ^= std::byte{1};
  // The header's own sum is made right again; reseal would make the digest right too.
  const auto header_bytes = load_as<uint32_t>(block.data() + 12);
  store_as<uint64_t>(block.data() + header_bytes - 8, checksum(std::span(block).first(header_bytes - 8)));
  for (const std::vector<int32_t>* prompt : {static_cast<const std::vector<int32_t>*>(nullptr), &large.tokens}) {
    SealExpectation expected = large.expected();
    expected.tokens = prompt;
    const auto refused = open_seal(block, expected);
    ASSERT_FALSE(refused.has_value()) << (prompt == nullptr ? "without a prompt" : "with a prompt");
    EXPECT_EQ(refused.error().code, Code::kCorrupt);
    EXPECT_NE(refused.error().message.find("tokens digest"), std::string::npos) << refused.error().message;
  }
}

// Fingerprint 0 is a fingerprint ("no text is involved"), not a wild card.
TEST(SealPieces, AFingerprintOfZeroIsNoWildCard) {
  const Large large;
  const auto refused = [&](const StateIdentity& state, const StateIdentity& receiver, std::string_view name) {
    SealExpectation expected = large.expected();
    expected.identity = receiver;
    const auto view = open_seal(large.block(state), expected);
    ASSERT_FALSE(view.has_value()) << name;
    EXPECT_EQ(view.error().code, Code::kMismatch);
    EXPECT_NE(view.error().message.find(fmt::format("{} fingerprint", name)), std::string::npos)
        << view.error().message;
  };
  const auto without = [](uint64_t StateIdentity::*member) {
    StateIdentity identity = kSealedAs;
    identity.*member = 0;
    return identity;
  };
  refused(without(&StateIdentity::tokenizer), kSealedAs, "tokenizer");
  refused(kSealedAs, without(&StateIdentity::tokenizer), "tokenizer");
  refused(without(&StateIdentity::model), kSealedAs, "model");
  refused(kSealedAs, without(&StateIdentity::quantization), "quantization");
}

}  // namespace
}  // namespace baton
