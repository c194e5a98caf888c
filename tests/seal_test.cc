// One flipped bit, one missing byte, one wrong owner: no sealed state that is not exactly what the sender made, for
// exactly this receiver and prompt, ever reaches the receiver's memory. Crosses state and bridge.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "baton/bridge/bridge.h"
#include "baton/model/model.h"
#include "baton/quant/format.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::fake_tokens;
using test::FakeOrder;
using test::FakeState;

constexpr StateIdentity kIdentity{0xa1, 0xb2, 0xc3};
constexpr uint64_t kPosition = 37, kRoom = 50;
constexpr uint64_t kHeaderFixed = 88 + 8 + 128 + 16 + 8;  // with one maker and one step, without sections

// Eight layers of the shape of Qwen3.5, small: 24 KB to 60 KB sealed.
Program hybrid() { return fake_program(8, 4, 2, 16, 16, 16, 3, 96); }

struct Sealed {
  std::vector<int32_t> tokens = fake_tokens(1, kPosition);
  std::vector<std::byte> block;

  explicit Sealed(const FakeOrder& how) {
    FakeState from(fake_layout(hybrid(), kRoom, how), kRoom);
    from.fill(2, kPosition);
    block = seal_state(from, kIdentity, tokens).value();
  }
};

// Receivers, a new one each time, in whose memory any write shows.
class SealedStates : public testing::Test {
 protected:
  SealedStates() {
    renew();
    before_ = into_->memory();
  }
  void renew() { into_.emplace(fake_layout(hybrid(), kRoom, FakeOrder{{1, 0, 2}, DType::kF16}), kRoom); }

  Result<std::vector<int32_t>> unseal(std::span<const std::byte> block, const StateIdentity& identity = kIdentity) {
    SealExpectation expected;
    expected.identity = identity;
    expected.tokens = &sealed_.tokens;
    renew();
    return unseal_state(SealSource::borrowed(block), expected, *into_);
  }
  // The message of the refusal; "" when it was not refused, or the receiver was touched before header and tokens held.
  std::string refusal(std::span<const std::byte> block, const StateIdentity& identity = kIdentity) {
    const auto result = unseal(block, identity);
    if (result || into_->position() != 0) return "";
    const auto head = std::span(sealed_.block).first(load_as<uint64_t>(sealed_.block.data() + 88 + 40));
    const bool head_holds = std::equal(head.begin(), head.end(), block.begin(),
                                       block.begin() + static_cast<ptrdiff_t>(std::min(head.size(), block.size())));
    if (!head_holds && !untouched()) return "";
    return result.error().message;
  }
  bool untouched() const { return into_->memory() == before_; }

  const Sealed sealed_{FakeOrder{{0, 1, 2}, DType::kF16}};
  std::optional<FakeState> into_;
  std::vector<std::vector<std::byte>> before_;
};

TEST_F(SealedStates, TenThousandFlippedBits) {
  auto block = sealed_.block;
  Random random(4);
  for (int i = 0; i < scaled(10000, 1500); ++i) {
    const uint64_t bit = random.below(block.size() * 8);
    block[bit / 8] ^= std::byte{1} << (bit % 8);
    const std::string message = refusal(block);
    ASSERT_NE(message, "") << "bit " << bit;
    ASSERT_NE(message.find("sealed state: "), std::string::npos) << message;
    block[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(unseal(block).has_value());
  EXPECT_FALSE(untouched());
}

TEST_F(SealedStates, EveryBitOfTheHeader) {
  auto block = sealed_.block;
  const uint64_t header_bytes = load_as<uint32_t>(block.data() + 12);
  ASSERT_EQ(header_bytes, kHeaderFixed + 64 * into_->shape().segments.size());
  for (uint64_t bit = 0; bit < header_bytes * 8; ++bit) {
    block[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(refusal(block), "") << "bit " << bit;
    block[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_TRUE(untouched());
}

TEST_F(SealedStates, CutAtEveryBorderAndEveryByteOfTheHeader) {
  const auto& block = sealed_.block;
  std::vector<uint64_t> lengths{block.size() - 1};
  for (uint64_t i = 0; i <= kHeaderFixed + 64 * into_->shape().segments.size(); ++i) lengths.push_back(i);
  for (size_t i = 0; i < into_->shape().segments.size(); ++i) {
    const auto offset = load_as<uint64_t>(block.data() + 88 + 64 * i + 40);
    const auto bytes = load_as<uint64_t>(block.data() + 88 + 64 * i + 48);
    for (const uint64_t at : {offset - 1, offset, offset + 1, offset + bytes - 1, offset + bytes}) {
      if (at != block.size()) lengths.push_back(at);
    }
  }
  for (const uint64_t length : lengths) {
    ASSERT_NE(refusal(std::span(block).first(length)).find("truncated"), std::string::npos) << length;
    // Also when the header was adapted to the new length.
    std::vector<std::byte> cut(block.begin(), block.begin() + static_cast<ptrdiff_t>(length));
    if (length >= 24) store_as<uint64_t>(cut.data() + 16, length);
    test::reseal(cut);
    ASSERT_NE(refusal(cut), "") << length;
  }
  auto longer = block;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(longer).find("total length"), std::string::npos);
  store_as<uint64_t>(longer.data() + 16, longer.size());
  test::reseal(longer);
  EXPECT_NE(refusal(longer).find("total length"), std::string::npos);
  EXPECT_TRUE(untouched());
}

TEST_F(SealedStates, OfAnotherOwner) {
  EXPECT_NE(refusal(sealed_.block, {0xa0, 0xb2, 0xc3}).find("model fingerprint"), std::string::npos);
  EXPECT_NE(refusal(sealed_.block, {0xa1, 0xb0, 0xc3}).find("quantization fingerprint"), std::string::npos);
  EXPECT_NE(refusal(sealed_.block, {0xa1, 0xb2, 0xc0}).find("tokenizer fingerprint"), std::string::npos);
  SealExpectation expected;
  expected.identity = kIdentity;
  for (const uint64_t at : {uint64_t{0}, kPosition / 2, kPosition - 1}) {
    auto prompt = sealed_.tokens;
    prompt[at] ^= 1;
    expected.tokens = &prompt;
    const auto result = unseal_state(SealSource::borrowed(sealed_.block), expected, *into_);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Code::kMismatch);
    EXPECT_NE(result.error().message.find(fmt::format("state of another prompt: token {} ", at)), std::string::npos);
  }
  EXPECT_TRUE(untouched());
}

// A model of which one bit differs is another model: its states are refused, whatever the seal's checksums say.
TEST(SealedModels, AnEvilCopyIsNotTheModel) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "seal_test_evil";
  std::filesystem::create_directories(folder);
  const auto copy = folder / "copy.gguf";
  const auto source = std::filesystem::path(BATON_SOURCE_DIR) / "models" / "dictionary-3m.Q8_0.gguf";
  std::filesystem::copy_file(source, copy, std::filesystem::copy_options::overwrite_existing);
  const auto bytes = std::filesystem::file_size(copy);
  std::fstream(copy, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(bytes / 2))
      .put('\x55');
  const auto ours = load_model(source).value(), evil = load_model(copy).value();
  const auto identity = [](const Model& model) {
    const Fingerprints prints = model.fingerprints().value();
    return StateIdentity{prints.model, prints.quantization, 0};
  };
  EXPECT_EQ(ours->shape_prints, evil->shape_prints);
  const auto tokens = fake_tokens(1, 20);
  const test::FakeLayout layout = fake_layout(ours->program, 20, FakeOrder{{0, 1, 2}, DType::kF16});
  FakeState from(layout, 20), into(layout, 20);
  from.fill(3, 20);
  const auto block = seal_state(from, identity(*evil), tokens).value();
  SealExpectation expected;
  expected.identity = identity(*evil);
  EXPECT_TRUE(unseal_state(SealSource::borrowed(block), expected, into));
  expected.identity = identity(*ours);
  const auto refused = unseal_state(SealSource::borrowed(block), expected, into);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kMismatch);
  EXPECT_NE(refused.error().message.find("quantization fingerprint"), std::string::npos) << refused.error().message;
  std::filesystem::remove_all(folder);
}

// Sections exchanged, with right checksums: same sizes, another place.
TEST_F(SealedStates, SectionsOfAnotherLayer) {
  for (const size_t a : {size_t{0}, size_t{1}}) {
    auto block = sealed_.block;
    const size_t b = a + 2;  // the same part of the next layer
    std::byte* const first = block.data() + 88 + 64 * a;
    std::byte* const second = block.data() + 88 + 64 * b;
    std::swap_ranges(first, first + 8, second);
    test::reseal(block);
    EXPECT_NE(refusal(block).find("layout: section"), std::string::npos);
    // Values without their entries: the checksums notice.
    block = sealed_.block;
    const auto bytes = static_cast<ptrdiff_t>(load_as<uint64_t>(block.data() + 88 + 64 * a + 48));
    std::byte* const values_a = block.data() + load_as<uint64_t>(block.data() + 88 + 64 * a + 40);
    std::byte* const values_b = block.data() + load_as<uint64_t>(block.data() + 88 + 64 * b + 40);
    std::swap_ranges(values_a, values_a + bytes, values_b);
    EXPECT_NE(refusal(block).find(fmt::format("section {} (layer 0 ", a)), std::string::npos);
  }
}

// Every type on either side, for every part: the table of formats says which types there are.
TEST(SealedTypes, EveryPairMovesWithinHalfAUnitInTheLastPlace) {
  for (const Format& a : formats()) {
    for (const Format& b : formats()) {
      if (value_bytes(a.dtype) == 0 || value_bytes(b.dtype) == 0) continue;
      FakeState from(fake_layout(hybrid(), kRoom, FakeOrder{{0, 2, 1}, a.dtype, a.dtype, 3}), kRoom);
      FakeState to(fake_layout(hybrid(), kRoom, FakeOrder{{2, 0, 1}, b.dtype, b.dtype, 1}), kRoom);
      from.fill(5, kPosition);
      ASSERT_TRUE(move_state(from, to).has_value()) << a.name << " " << b.name;
      const double relative = b.dtype == DType::kF32 ? 0 : b.dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
      const double smallest = b.dtype == DType::kF16 ? 0x1p-25 : 0;
      for (size_t i = 0; i < from.shape().segments.size(); ++i) {
        from.for_each_index(i, [&](const Dims& index) {
          const double value = from.get(i, index);
          EXPECT_LE(std::fabs(to.get(i, index) - value), std::max(std::fabs(value) * relative, smallest))
              << a.name << " " << b.name;
        });
      }
    }
  }
}

}  // namespace
}  // namespace baton
