// The sealed envelope: every bit and every length, each check by name, and the example of docs/state_format.md.
#include "baton/state/seal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <limits>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/float.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_file.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

constexpr StateIdentity kIdentity{0x1111222233334444, 0x5555666677778888, 0x9999aaaabbbbcccc};

// The worked example: layer 0 linear attention, layer 1 full attention, three tokens.
struct Example {
  StateShape shape = state_shape(test::fake_program(2, 2, 1, 2, 2, 2, 1, 4), DType::kF16);
  std::vector<int32_t> tokens{11, 22, 33};
  Provenance provenance{{{"cpu", "cpu/avx512/0123abcd"}},
                        {{0, StepKind::kPrefill, false, 2, 1}, {0, StepKind::kDecode, false, 1, 1}}};

  SealExpectation expected() const {
    SealExpectation expectation;
    expectation.identity = kIdentity;
    expectation.shape = &shape;
    expectation.position_max = 8;
    return expectation;
  }

  std::vector<std::byte> block() const {
    float next = 1;
    return test::sealed_block(kIdentity, tokens, shape, provenance, [&](size_t) { return next++; });
  }
};

constexpr uint64_t kProvenanceAt = 88 + 4 * 64, kProvenanceBytes = 8 + 128 + 2 * 16;
constexpr uint64_t kHeaderBytes = kProvenanceAt + kProvenanceBytes + 8;
constexpr uint64_t kTokensAt = 576, kConvAt = 640, kRecurrentAt = 704, kKeysAt = 768, kValuesAt = 832, kTotal = 844;

std::string message_of(const Result<SealedView>& view) { return view ? "accepted" : view.error().message; }

TEST(Seal, OpensWhatWasWritten) {
  const Example example;
  const auto block = example.block();
  ASSERT_EQ(block.size(), kTotal);
  EXPECT_EQ(sealed_bytes(example.shape, 3, example.provenance), kTotal);
  const auto view = open_seal(block, example.expected());
  ASSERT_TRUE(view.has_value()) << message_of(view);
  EXPECT_EQ(view->identity, kIdentity);
  EXPECT_EQ(view->position, 3u);
  EXPECT_EQ(view->tokens, example.tokens);
  EXPECT_EQ(view->provenance, example.provenance);
  ASSERT_EQ(view->sections.size(), 4u);
  EXPECT_EQ(view->sections[2].kind, SlotKind::kKeys);
  EXPECT_EQ(view->sections[2].layer, 1);
  EXPECT_EQ(view->sections[2].dtype, DType::kF16);
  EXPECT_EQ(view->sections[2].dims, (Dims{1, 3, 2}));
  EXPECT_EQ(view->sections[2].bytes.data(), block.data() + kKeysAt);
  EXPECT_EQ(load_as<float>(view->sections[1].bytes.data()), 5.0f);
  EXPECT_EQ(f16_to_f32(load_as<uint16_t>(view->sections[3].bytes.data() + 10)), 20.0f);
}

// Which check a changed byte must fail, from its offset.
std::string check_of(uint64_t offset) {
  if (offset < 8) return "magic";
  if (offset < 12) return "version";
  if (offset < 16 || (offset >= 56 && offset < 64)) return "header length";
  if (offset < 24) return "total length";
  if (offset < kHeaderBytes) return "header checksum";
  if (offset < kTokensAt) return "padding";
  if (offset < kTokensAt + 12) return "tokens digest";
  if (offset < kConvAt) return "padding";
  if (offset < kConvAt + 16) return "section 0 (layer 0 conv) checksum";
  if (offset < kRecurrentAt) return "padding";
  if (offset < kRecurrentAt + 16) return "section 1 (layer 0 recurrent) checksum";
  if (offset < kKeysAt) return "padding";
  if (offset < kKeysAt + 12) return "section 2 (layer 1 keys) checksum";
  if (offset < kValuesAt) return "padding";
  return "section 3 (layer 1 values) checksum";
}

TEST(Seal, EveryFlippedBitIsRefusedByName) {
  const Example example;
  auto block = example.block();
  for (uint64_t offset = 0; offset < block.size(); ++offset) {
    for (int bit = 0; bit < 8; ++bit) {
      block[offset] ^= std::byte{1} << bit;
      const auto view = open_seal(block, example.expected());
      ASSERT_FALSE(view.has_value()) << "bit " << bit << " of byte " << offset;
      EXPECT_NE(view.error().message.find(check_of(offset)), std::string::npos)
          << "byte " << offset << ": " << view.error().message;
      EXPECT_EQ(view.error().code, check_of(offset) == "version" ? Code::kMismatch : Code::kCorrupt);
      block[offset] ^= std::byte{1} << bit;
    }
  }
  EXPECT_TRUE(open_seal(block, example.expected()).has_value());
}

TEST(Seal, EveryOtherLengthIsRefused) {
  const Example example;
  const auto block = example.block();
  for (uint64_t bytes = 0; bytes < block.size(); ++bytes) {
    const auto view = open_seal(std::span(block).first(bytes), example.expected());
    ASSERT_FALSE(view.has_value()) << bytes;
    EXPECT_EQ(view.error().code, Code::kCorrupt);
    EXPECT_NE(view.error().message.find("truncated"), std::string::npos) << bytes << ": " << view.error().message;
  }
  for (const uint64_t more : {1u, 7u, 64u, 1000u}) {
    for (const std::byte value : {std::byte{0}, std::byte{0xff}}) {
      auto longer = block;
      longer.resize(block.size() + more, value);
      EXPECT_NE(message_of(open_seal(longer, example.expected())).find("total length"), std::string::npos);
    }
  }
}

TEST(Seal, AnotherIdentityIsRefusedByNameWithBothFingerprints) {
  const Example example;
  const auto block = example.block();
  const auto refused = [&](auto member, std::string_view name) {
    SealExpectation expected = example.expected();
    const uint64_t right = expected.identity.*member;
    expected.identity.*member = 0xabcdef;
    const auto view = open_seal(block, expected);
    ASSERT_FALSE(view.has_value());
    EXPECT_EQ(view.error().code, Code::kMismatch);
    for (const std::string& part : {fmt::format("{} fingerprint", name), fmt::format("{:016x}", right),
                                    std::string("0000000000abcdef"), fmt::format("another {}", name)}) {
      EXPECT_NE(view.error().message.find(part), std::string::npos) << view.error().message;
    }
  };
  refused(&StateIdentity::model, "model");
  refused(&StateIdentity::quantization, "quantization");
  refused(&StateIdentity::tokenizer, "tokenizer");
}

TEST(Seal, IdentityIsCheckedBeforeLayoutAndLayoutBeforeTokens) {
  const Example example;
  auto block = example.block();
  block[kConvAt] ^= std::byte{1};
  const StateShape other = state_shape(test::fake_program(4, 2, 1, 2, 2, 2, 1, 4), DType::kF16);
  const std::vector<int32_t> prompt{1, 2, 3};
  SealExpectation expected{{1, 2, 3}, &other, &prompt, 8};
  EXPECT_NE(message_of(open_seal(block, expected)).find("model fingerprint"), std::string::npos);
  expected.identity = kIdentity;
  EXPECT_NE(message_of(open_seal(block, expected)).find("layout: 4 sections, expected 8"), std::string::npos);
  expected.shape = &example.shape;
  EXPECT_NE(message_of(open_seal(block, expected)).find("another prompt"), std::string::npos);
  expected.tokens = nullptr;
  EXPECT_NE(message_of(open_seal(block, expected)).find("layer 0 conv"), std::string::npos);
}

TEST(Seal, AnotherLayoutIsRefused) {
  const Example example;
  const auto block = example.block();
  const auto message = [&](const Program& program) {
    const StateShape shape = state_shape(program, DType::kF16);
    SealExpectation expected = example.expected();
    expected.shape = &shape;
    const auto view = open_seal(block, expected);
    EXPECT_TRUE(!view && view.error().code == Code::kMismatch);
    return message_of(view);
  };
  Program program = test::fake_program(2, 2, 1, 2, 2, 2, 1, 4);
  std::swap(program.slots[2], program.slots[3]);
  EXPECT_NE(message(program).find("section 2 is layer 1 keys [1, 3, 2], expected layer 1 values [1, 3, 2]"),
            std::string::npos);
  program = test::fake_program(2, 2, 1, 2, 2, 2, 1, 4);
  program.slots[0].layer = 5;
  EXPECT_NE(message(program).find("expected layer 5 conv"), std::string::npos);
  EXPECT_NE(message(test::fake_program(2, 2, 2, 2, 2, 2, 1, 4)).find("[2, 2, 2]"), std::string::npos);
  // The same number of bytes in other dims.
  EXPECT_NE(message(test::fake_program(2, 2, 1, 2, 1, 4, 1, 4)).find("expected layer 0 recurrent [1, 1, 4]"),
            std::string::npos);
  EXPECT_NE(message(test::fake_program(2, 2, 1, 2, 2, 2, 2, 2)).find("expected layer 0 conv [1, 2, 2]"),
            std::string::npos);
}

TEST(Seal, OtherTypesAreTheBridgesBusiness) {
  const Example example;
  const StateShape other = state_shape(test::fake_program(2, 2, 1, 2, 2, 2, 1, 4), DType::kBF16);
  SealExpectation expected = example.expected();
  expected.shape = &other;
  EXPECT_TRUE(open_seal(example.block(), expected).has_value());
}

TEST(Seal, TokensMustBeAPrefixOfThePrompt) {
  const Example example;
  const auto block = example.block();
  const auto open_for = [&](const std::vector<int32_t>& prompt) {
    SealExpectation expected = example.expected();
    expected.tokens = &prompt;
    return message_of(open_seal(block, expected));
  };
  EXPECT_EQ(open_for({11, 22, 33}), "accepted");
  EXPECT_EQ(open_for({11, 22, 33, 44}), "accepted");
  EXPECT_NE(open_for({11, 22}).find("state of another prompt: it holds 3 tokens, the prompt has 2"), std::string::npos);
  EXPECT_NE(open_for({11, 22, 34, 44}).find("state of another prompt: token 2 of 3 is 33, the prompt has 34"),
            std::string::npos);
  EXPECT_NE(open_for({}).find("another prompt"), std::string::npos);
}

TEST(Seal, MoreTokensThanTheReceiverHoldsAreRefused) {
  const Example example;
  SealExpectation expected = example.expected();
  expected.position_max = 2;
  const auto view = open_seal(example.block(), expected);
  ASSERT_FALSE(view.has_value());
  EXPECT_EQ(view.error().code, Code::kMismatch);
  EXPECT_NE(view.error().message.find("position: 3 tokens, the receiver has room for 2"), std::string::npos);
  expected.position_max = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(open_seal(example.block(), expected).has_value());
}

TEST(Seal, TokensOutsideTheVocabularyAreRefused) {
  Example example;
  SealExpectation expected = example.expected();
  expected.vocab = 33;
  EXPECT_NE(message_of(open_seal(example.block(), expected)).find("token 2 is 33, ids are below 33"),
            std::string::npos);
  expected.vocab = 34;
  EXPECT_EQ(message_of(open_seal(example.block(), expected)), "accepted");
  example.tokens[1] = -1;
  expected.vocab = 0;
  EXPECT_NE(message_of(open_seal(example.block(), expected)).find("token 1 is -1"), std::string::npos);
}

TEST(Seal, NotANumberIsRefusedByName) {
  const Example example;
  const auto message = [&](uint64_t at, auto bits) {
    auto block = example.block();
    store_as(block.data() + at, bits);
    test::reseal(block);
    const auto view = open_seal(block, example.expected());
    EXPECT_TRUE(!view && view.error().code == Code::kCorrupt);
    return message_of(view);
  };
  EXPECT_NE(message(kConvAt + 4, 0x7fc00000u).find("section 0 (layer 0 conv): value 1 is nan"), std::string::npos);
  EXPECT_NE(message(kRecurrentAt + 12, 0xff800000u).find("section 1 (layer 0 recurrent): value 3 is -inf"),
            std::string::npos);
  EXPECT_NE(message(kKeysAt, uint16_t{0x7c00}).find("section 2 (layer 1 keys): value 0 is inf"), std::string::npos);
  EXPECT_NE(message(kValuesAt + 10, uint16_t{0xfe00}).find("section 3 (layer 1 values): value 5 is"),
            std::string::npos);
}

// Blocks whose checksums are right and whose header lies: sizes come from the receiver.
TEST(Seal, LiesWithRightChecksumsAreRefused) {
  const Example example;
  struct Lie {
    std::string_view name;
    std::function<void(std::byte*)> tell;
  };
  const auto put32 = [](uint64_t at, uint32_t value) {
    return [=](std::byte* b) { store_as<uint32_t>(b + at, value); };
  };
  const auto put64 = [](uint64_t at, uint64_t value) {
    return [=](std::byte* b) { store_as<uint64_t>(b + at, value); };
  };
  constexpr uint64_t kHuge = uint64_t{1} << 63, kEntry2 = 88 + 2 * 64;
  constexpr uint64_t kSteps = kProvenanceAt + 8 + 128;
  const Lie lies[] = {
      {"version", put32(8, 0)},
      {"version", put32(8, 99)},
      {"header length", put32(12, 0)},
      {"header length", put32(12, 0xffffffff)},
      {"header length", put32(56, 0xffffffff)},
      {"total length", put64(16, kHuge)},
      {"position", put64(48, kHuge)},
      {"the steps make 3 tokens", put64(48, 4)},
      {"header length", put32(60, 1)},
      {"sealed with a key", put32(80, 1)},
      {"header: MAC of kind 2", put32(80, 2)},
      {"header: bytes at 84", put32(84, 1)},
      {"version: 1", put32(8, 1)},
      {"provenance: 2 makers and 2 steps in 168 bytes", put32(kProvenanceAt, 2)},
      {"provenance: 4294967295 makers", put32(kProvenanceAt, 0xffffffff)},
      {"provenance: 1 makers and 1 steps", put32(kProvenanceAt + 4, 1)},
      {"maker 0: a name of 1 to 31", [](std::byte* b) { b[kProvenanceAt + 8] = std::byte{0x1b}; }},
      {"maker 0: a name without its end", [](std::byte* b) { b[kProvenanceAt + 8 + 31] = std::byte{'x'}; }},
      {"maker 0: a name without its end", [](std::byte* b) { b[kProvenanceAt + 8 + 127] = std::byte{'x'}; }},
      {"maker 0: a name of 1 to 31", [](std::byte* b) { std::fill_n(b + kProvenanceAt + 8, 3, std::byte{}); }},
      {"maker 0: a name of 1 to 31", [](std::byte* b) { std::fill_n(b + kProvenanceAt + 40, 19, std::byte{}); }},
      {"step 0: maker 1 of 1", put32(kSteps, 1)},
      {"step 0: kind 3", put32(kSteps + 4, 3)},
      {"step 0: kind 0, shared 2", put32(kSteps + 4, 0x20000)},
      {"step 0: 1 x 0 tokens", put32(kSteps + 8, 0)},
      {"step 0: 0 x 2 tokens", put32(kSteps + 12, 0)},
      {"the steps make 4 tokens", put32(kSteps + 8, 3)},
      {"the steps make", put32(kSteps + 12, 0xffffffff)},
      {"step 1: 1 x 2 tokens of kind 1", put32(kSteps + 16 + 8, 2)},
      {"step 1: 1 x 1 tokens of kind 2", put32(kSteps + 16 + 4, 0x10002)},
      {"step 1 continues the one before", [](std::byte* b) { std::copy_n(b + kSteps, 16, b + kSteps + 16); }},
      {"tokens", put64(64, 448)},
      {"tokens", put64(64, kHuge)},
      {"layout: section 2 is layer 1 of kind 7", put32(kEntry2, 7)},
      {"layout: section 2 is layer 1000000000 keys", put32(kEntry2 + 4, 1000000000)},
      {"type number 5", put32(kEntry2 + 8, 5)},
      {"offset", put32(kEntry2 + 8, 0)},  // F32: twice the bytes
      {"offset", put32(kEntry2 + 12, 1)},
      {"layout", put64(kEntry2 + 16, kHuge)},
      {"layout", put64(kEntry2 + 24, 0)},
      {"offset", put64(kEntry2 + 40, kKeysAt + 4)},
      {"offset", put64(kEntry2 + 40, ~uint64_t{0})},
      {"offset", put64(kEntry2 + 48, 0)},
      {"offset", put64(kEntry2 + 48, ~uint64_t{0} - 3)},
      {"padding: byte 590", [](std::byte* b) { b[590] = std::byte{1}; }},
      {"padding: byte 530", [](std::byte* b) { b[530] = std::byte{1}; }},
  };
  for (const Lie& lie : lies) {
    auto block = example.block();
    lie.tell(block.data());
    test::reseal(block);
    EXPECT_NE(message_of(open_seal(block, example.expected())).find(lie.name), std::string::npos)
        << lie.name << ": " << message_of(open_seal(block, example.expected()));
  }
}

// The fields at the end of the header are as long as the block says: no other length may be believed.
TEST(Seal, AHeaderWithoutProvenanceIsRefused) {
  const Example example;
  auto block = example.block();
  store_as<uint32_t>(block.data() + 60, 0);
  store_as<uint32_t>(block.data() + 12, static_cast<uint32_t>(kHeaderBytes - kProvenanceBytes));
  test::reseal(block);
  EXPECT_NE(message_of(open_seal(block, example.expected())).find("header length"), std::string::npos);
}

TEST(Seal, NobodyNamedIsUnknown) {
  const Example example;
  const auto block = test::sealed_block(kIdentity, example.tokens, example.shape, {}, [](size_t) { return 0; });
  EXPECT_EQ(block.size(), sealed_bytes(example.shape, 3));
  const auto view = open_seal(block, example.expected());
  ASSERT_TRUE(view.has_value()) << message_of(view);
  EXPECT_EQ(view->provenance, Provenance::unknown(3));
  EXPECT_EQ(view->provenance.makers.front().unit, kMakerUnknown);
  EXPECT_FALSE(view->provenance.replayable());
  EXPECT_TRUE(example.provenance.replayable());
}

TEST(Seal, BF16KeysAreTheSameBytesAsF16ButNotTheSameType) {
  const Example example;
  auto block = example.block();
  store_as<uint32_t>(block.data() + 88 + 2 * 64 + 8, static_cast<uint32_t>(DType::kBF16));
  EXPECT_NE(message_of(open_seal(block, example.expected())).find("header checksum"), std::string::npos);
}

TEST(Seal, AtPositionZero) {
  const Example example;
  auto block = test::sealed_block(kIdentity, {}, example.shape, {}, [](size_t) { return 0; });
  const auto view = open_seal(block, example.expected());
  ASSERT_TRUE(view.has_value()) << message_of(view);
  EXPECT_EQ(view->position, 0u);
  EXPECT_TRUE(view->sections[2].bytes.empty());
  block.back() ^= std::byte{1};
  EXPECT_FALSE(open_seal(block, example.expected()).has_value());
}

// With right checksums too: what no token has made is no state of a sequence.
TEST(Seal, AtPositionZeroTheFixedStateIsZero) {
  const Example example;
  for (const size_t section : {size_t{0}, size_t{1}}) {
    int left = 4;  // values of the section: its last is not zero
    const auto block = test::sealed_block(kIdentity, {}, example.shape, {},
                                          [&](size_t i) { return i == section && --left == 0 ? 0.5f : 0.0f; });
    const auto view = open_seal(block, example.expected());
    ASSERT_FALSE(view.has_value());
    EXPECT_EQ(view.error().code, Code::kCorrupt);
    EXPECT_NE(message_of(view).find("a sequence of no tokens holds zeros"), std::string::npos) << message_of(view);
  }
}

TEST(Seal, NeedsNoAlignment) {
  const Example example;
  const auto block = example.block();
  for (size_t shift = 1; shift < 9; ++shift) {
    std::vector<std::byte> shifted(shift + block.size());
    std::copy(block.begin(), block.end(), shifted.begin() + static_cast<ptrdiff_t>(shift));
    EXPECT_TRUE(open_seal(std::span<const std::byte>(shifted).subspan(shift), example.expected()).has_value());
  }
}

TEST(Seal, AFileComesIntoItsPlaceWithTheCommit) {
  const Example example;
  const auto block = example.block();
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "seal_test.folder";
  std::filesystem::create_directory(folder);
  const auto path = folder / "a.state";
  const auto source = SealSource::borrowed(block);
  {
    SealFile dropped(path);
    ASSERT_TRUE(dropped.take(source));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  {
    SealFile file(path);
    EXPECT_FALSE(file.taken());
    ASSERT_TRUE(file.take(source));
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(file.commit());
    EXPECT_TRUE(read_seal_file(path, example.expected()));
  }
  // What the file refuses is for the commit; what the source says is not.
  SealFile nowhere(folder / "none" / "a.state");
  EXPECT_TRUE(nowhere.take(source));
  EXPECT_TRUE(nowhere.taken());
  EXPECT_EQ(nowhere.commit().error().message.find((folder / "none" / "a.state").string()), 0u);
  int asked = 0;
  const SealSource fails(block.size(), [&](const SealSink& sink) -> Status {
    if (++asked == 2) return fail(Code::kDevice, "gone");
    return source.give(sink);
  });
  SealFile unread(path);
  const Status gone = unread.take(fails);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().message, "gone");
  EXPECT_FALSE(unread.taken());
  // Into a pipe nothing goes before.
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  SealFile piped(pipe);
  ASSERT_TRUE(piped.take(source));
  std::vector<std::byte> got(block.size() + 1);
  EXPECT_LE(::read(reader, got.data(), got.size()), 0);
  ASSERT_TRUE(piped.commit());
  EXPECT_EQ(::read(reader, got.data(), got.size()), static_cast<ssize_t>(block.size()));
  ::close(reader);
  std::filesystem::remove_all(folder);
}

// A block as others may give it: cut anywhere, changed at a byte in the second reading, or short.
SealSource given_in(const std::vector<std::byte>& block, size_t header, size_t piece, int* asked,
                    std::optional<size_t> changed = {}, size_t missing = 0, bool header_again = true) {
  return {block.size(), [=](const SealSink& sink) -> Status {
            std::vector<std::byte> bytes = block;
            if (++*asked == 2 && changed) bytes[*changed] ^= std::byte{1};
            for (size_t at = 0; at < bytes.size() - missing; at += piece)
              BATON_OK(sink(at, std::span(bytes).subspan(at, std::min(piece, bytes.size() - missing - at))));
            BATON_OK(sink(bytes.size(), {}));  // zeros behind the last section: none
            for (size_t at = 0; header_again && at < header; at += piece)
              BATON_OK(sink(at, std::span(bytes).subspan(at, std::min(piece, header - at))));
            return {};
          }};
}

TEST(Seal, AFileIsWhatItsSourceGaveBothTimes) {
  const Example example;
  const auto block = example.block();
  const size_t header = load_as<uint32_t>(block.data() + sealed::kHeaderBytesAt);
  const auto path = std::filesystem::path(testing::TempDir()) / "seal_test.both";
  for (const size_t piece : {size_t{1}, size_t{7}, header - 1, header, header + 1, block.size()}) {
    int asked = 0;
    std::filesystem::remove(path);
    const Status written = write_seal_file(path, given_in(block, header, piece, &asked));
    ASSERT_TRUE(written) << piece << ": " << written.error().message;
    EXPECT_EQ(read_file(path, 1 << 20).value(), std::string(reinterpret_cast<const char*>(block.data()), block.size()));
    const auto before = read_file(path, 1 << 20).value();
    for (const size_t changed : {header + 3, block.size() - 1}) {
      asked = 0;
      const Status refused = write_seal_file(path, given_in(block, header, piece, &asked, changed));
      ASSERT_FALSE(refused) << piece;
      EXPECT_EQ(refused.error().code, Code::kInternal);
    }
    asked = 0;
    EXPECT_FALSE(write_seal_file(path, given_in(block, header, piece, &asked, {}, 5))) << piece;
    EXPECT_FALSE(write_seal_file(path, given_in(block, header, piece, &asked, {}, 0, false))) << piece;
    EXPECT_EQ(read_file(path, 1 << 20).value(), before) << "the old file is gone";
  }
  std::filesystem::remove(path);
}

TEST(Seal, FileRoundTripAndErrorsNameTheFile) {
  const Example example;
  const auto path = std::filesystem::path(testing::TempDir()) / "seal_test.state";
  const auto block = example.block();
  ASSERT_TRUE(write_seal_file(path, SealSource::borrowed(block)).has_value());
  auto file = read_seal_file(path, example.expected());
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->source.block().value(), block);
  EXPECT_EQ(file->view.tokens, example.tokens);
  // A source keeps what it reads from, whatever becomes of the file's name.
  const SealSource kept = read_seal_file(path, example.expected())->source;
  std::filesystem::remove(path);
  EXPECT_EQ(kept.block().value(), block);
  const SealSource owned = SealSource::owned(example.block());
  EXPECT_EQ(owned.block().value(), block);

  const auto refused = [&](std::span<const std::byte> bytes, std::string_view part) {
    std::ofstream(path, std::ios::binary) << as_text(bytes);
    const auto result = read_seal_file(path, example.expected());
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message.find(path.string()), 0u) << result.error().message;
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  };
  refused({}, "truncated");
  refused(std::span(block).first(100), "truncated");
  auto damaged = block;
  damaged[kKeysAt] ^= std::byte{8};
  refused(damaged, "section 2 (layer 1 keys) checksum");
  std::filesystem::remove(path);
  const auto missing = read_seal_file(path, example.expected());
  EXPECT_TRUE(!missing && missing.error().code == Code::kNotFound && missing.error().message.find(path.string()) == 0);
  const auto folder = read_seal_file(testing::TempDir(), example.expected());
  EXPECT_TRUE(!folder && folder.error().message.find("folder") != std::string::npos);
}

std::string hex_dump(std::span<const std::byte> bytes) {
  std::string text;
  for (size_t line = 0; line < bytes.size(); line += 16) {
    text += fmt::format("{:08x} ", line);
    for (size_t i = line; i < std::min(line + 16, bytes.size()); ++i)
      text += fmt::format(" {:02x}", static_cast<unsigned>(bytes[i]));
    text += '\n';
  }
  return text;
}

// The bytes of the code block that begins with offset 00000000.
std::vector<std::byte> documented_bytes() {
  std::ifstream document(std::filesystem::path(BATON_SOURCE_DIR) / "docs" / "state_format.md");
  std::vector<std::byte> bytes;
  for (std::string line; std::getline(document, line);) {
    if (line.size() < 10 || line.substr(0, 10) != fmt::format("{:08x}  ", bytes.size())) continue;
    for (size_t at = 10; at + 1 < line.size(); at += 3) {
      bytes.push_back(static_cast<std::byte>(std::stoul(line.substr(at, 2), nullptr, 16)));
    }
  }
  return bytes;
}

TEST(Seal, TheDocumentedExampleIsWhatIsWritten) {
  const Example example;
  const auto documented = documented_bytes();
  EXPECT_EQ(hex_dump(documented), hex_dump(example.block()));
  EXPECT_TRUE(open_seal(documented, example.expected()).has_value());
}

}  // namespace
}  // namespace baton
