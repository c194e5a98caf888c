// The seal as a stream: pieces cut anywhere and in any allowed order give the block's bytes and the reader's verdict;
// pieces that are missing, doubled, out of order or changed are refused, and what is told is told as early as it can
// be.
#include "baton/state/seal_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

constexpr StateIdentity kStreamed{7, 8, 9};

struct Piece {
  uint64_t offset;
  std::vector<std::byte> bytes;
};

// What a receiver is told, and when.
struct Heard : SealedValues {
  uint64_t begun = 0, values = 0;
  std::vector<std::vector<std::byte>> sections;
  Status begin(const SealedView& head) override {
    ++begun;
    sections.resize(head.sections.size());
    return {};
  }
  Status rows(size_t section, uint64_t, std::span<const std::byte> bytes) override {
    EXPECT_EQ(begun, 1u);
    values += bytes.size();
    sections[section].insert(sections[section].end(), bytes.begin(), bytes.end());
    return {};
  }
};

class SealStream : public testing::Test {
 protected:
  SealStream() {
    Random random(3);
    block_ = test::sealed_block(kStreamed, tokens_, shape_, made_, [&](size_t) { return random.normal(); });
    expected_ = {kStreamed, &shape_, nullptr, 16, 0};
    view_ = open_seal(block_, expected_).value();
    EXPECT_TRUE(SealSource::borrowed(block_).give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
      if (offset == 0) header_.assign(bytes.begin(), bytes.end());
      return {};
    }));
    const uint64_t first = begin_of(0);
    pieces_ = {{0, draft()}, piece(header_.size(), first)};
    for (size_t i = 0; i < view_.sections.size(); ++i)
      pieces_.push_back(piece(begin_of(i), i + 1 < view_.sections.size() ? begin_of(i + 1) : block_.size()));
    pieces_.push_back({0, header_});
  }

  uint64_t begin_of(size_t section) const { return view_.sections[section].bytes.data() - block_.data(); }
  Piece piece(uint64_t from, uint64_t to) const { return {from, {block_.begin() + from, block_.begin() + to}}; }
  // The header without the sections' checksums.
  std::vector<std::byte> draft() const {
    auto draft = header_;
    for (size_t i = 0; i < view_.sections.size(); ++i) store_as<uint64_t>(&draft[88 + 64 * i + 56], 0);
    sum(draft);
    return draft;
  }
  static void sum(std::span<std::byte> header) {
    store_as<uint64_t>(&header[header.size() - 8], checksum(header.first(header.size() - 8)));
  }

  // The reader's verdict: "" when the state was taken. `cut`: bytes given at a time.
  std::string read(const std::vector<Piece>& pieces, uint64_t cut = 1 << 20) {
    heard_ = {};
    SealReader reader(expected_, &heard_);
    for (const Piece& piece : pieces) {
      for (uint64_t at = 0; at < piece.bytes.size(); at += cut) {
        const auto bytes = std::span(piece.bytes).subspan(at, std::min<uint64_t>(cut, piece.bytes.size() - at));
        if (const Status took = reader.take(piece.offset + at, bytes); !took) {
          const auto again = reader.finish();
          EXPECT_TRUE(!again && again.error().message == took.error().message) << "an error stays";
          return took.error().message;
        }
      }
    }
    const auto view = reader.finish();
    return view ? "" : "at the end: " + view.error().message;
  }

  const StateShape shape_ = state_shape(test::fake_program(4, 2, 2, 6, 9, 7, 3, 11), DType::kF16);
  const std::vector<int32_t> tokens_ = test::fake_tokens(1, 13);
  const Provenance made_{{{"cpu", "cpu/x"}}, {{0, StepKind::kPrefill, false, 13, 1}}};
  std::vector<std::byte> block_, header_;
  SealExpectation expected_;
  SealedView view_;
  std::vector<Piece> pieces_;  // draft, zeros with tokens, each section, header
  Heard heard_;
};

void expect_says(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' does not say '" << part << "'";
}

TEST_F(SealStream, TheWriterGivesTheseBytesInThisOrder) {
  std::vector<std::byte> put(block_.size(), std::byte{0xee});
  uint64_t calls = 0;
  Random random(3);
  SealWriter writer(kStreamed, tokens_, shape_, made_,
                    [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
                      std::ranges::copy(bytes, put.begin() + static_cast<ptrdiff_t>(offset));
                      ++calls;
                      return {};
                    });
  ASSERT_TRUE(writer.begin());
  EXPECT_EQ(std::vector(put.begin(), put.begin() + static_cast<ptrdiff_t>(header_.size())), draft());
  for (const size_t i : {5u, 0u, 7u, 1u, 2u, 6u, 4u, 3u}) {
    const auto values = view_.sections[i].bytes;
    for (size_t at = 0; at < values.size(); at += 100)
      ASSERT_TRUE(writer.add(i, values.subspan(at, std::min<size_t>(100, values.size() - at))));
  }
  ASSERT_TRUE(writer.finish());
  EXPECT_EQ(put, block_);
  EXPECT_GT(calls, 20u);
}

TEST_F(SealStream, AnyCutAndAnyOrderOfSectionsIsTheSameState) {
  for (const uint64_t cut : {1u, 2u, 3u, 7u, 64u, 100u, 1000u, 1u << 20}) {
    EXPECT_EQ(read(pieces_, cut), "") << cut;
    for (size_t i = 0; i < view_.sections.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(heard_.sections[i], view_.sections[i].bytes)) << cut << " " << i;
  }
  auto pieces = pieces_;
  std::reverse(pieces.begin() + 2, pieces.end() - 1);
  EXPECT_EQ(read(pieces), "");
  // A block as it lies in a file: its checksums are there from the start.
  pieces = pieces_;
  pieces.front().bytes = header_;
  EXPECT_EQ(read(pieces), "");
}

TEST_F(SealStream, WhoseStateItIsIsSaidBeforeAnySection) {
  const auto refused = [&](std::string_view part) {
    SealReader reader(expected_, &heard_);
    Status took = reader.take(0, pieces_[0].bytes);
    if (took) took = reader.take(pieces_[1].offset, pieces_[1].bytes);
    ASSERT_FALSE(took) << part;
    expect_says(took.error().message, part);
    EXPECT_EQ(heard_.begun, 0u);
  };
  expected_.identity.model = 1;
  refused("model fingerprint");
  expected_.identity = {7, 1, 9};
  refused("quantization fingerprint");
  expected_.identity = {7, 8, 1};
  refused("tokenizer fingerprint");
  expected_.identity = kStreamed;
  expected_.position_max = 12;
  refused("room for 12");
  expected_.position_max = 16;
  const StateShape other = state_shape(test::fake_program(4, 2, 2, 5, 9, 7, 3, 11), DType::kF16);
  expected_.shape = &other;
  refused("layout: section 2");
  expected_.shape = &shape_;
  auto prompt = tokens_;
  prompt[12] ^= 1;
  expected_.tokens = &prompt;
  refused("state of another prompt: token 12");
}

TEST_F(SealStream, MissingDoubledAndMisplacedPiecesAreRefused) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    auto pieces = pieces_;
    pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_NE(read(pieces), "") << "without piece " << i;
    pieces = pieces_;
    pieces.insert(pieces.begin() + static_cast<ptrdiff_t>(i), pieces_[i]);
    expect_says(read(pieces), "pieces: bytes ");
    for (size_t j = 0; j < i; ++j) {
      pieces = pieces_;
      std::swap(pieces[i], pieces[j]);
      const bool sections = j >= 2 && i + 1 < pieces.size();
      EXPECT_EQ(read(pieces) == "", sections) << i << " " << j;
    }
    for (const size_t less : {size_t{1}, pieces_[i].bytes.size() / 2}) {
      pieces = pieces_;
      pieces[i].bytes.resize(pieces[i].bytes.size() - less);
      EXPECT_NE(read(pieces), "") << "piece " << i << " without its last " << less;
    }
    pieces = pieces_;
    pieces[i].offset += 64;
    expect_says(read(pieces), "pieces: bytes from");
    pieces = pieces_;
    pieces[i].bytes.push_back(std::byte{0});
    EXPECT_NE(read(pieces), "") << "piece " << i << " with one byte more";
  }
  auto pieces = pieces_;
  pieces.push_back({block_.size(), std::vector<std::byte>(64)});
  expect_says(read(pieces), "pieces: bytes");
  pieces = pieces_;
  pieces.pop_back();
  expect_says(read(pieces), "at the end: sealed state: truncated: the header did not come again");
  pieces.pop_back();
  expect_says(read(pieces), "truncated: section 7 (layer 3 values): bytes from");
  // Two sections, one begun before the other has ended.
  pieces = pieces_;
  pieces[2].bytes.resize(8);
  expect_says(read(pieces),
              fmt::format("bytes from {} on where those from {} on are due", begin_of(1), begin_of(0) + 8));
  EXPECT_NE(read({}), "");
}

TEST_F(SealStream, EveryFlippedBitIsRefused) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    auto pieces = pieces_;
    for (uint64_t bit = 0; bit < pieces[i].bytes.size() * 8; bit += i >= 2 && i + 1 < pieces.size() ? 5 : 1) {
      pieces[i].bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_NE(read(pieces), "") << "piece " << i << ", bit " << bit;
      if (i < 2) {
        ASSERT_EQ(heard_.values, 0u) << "piece " << i << ", bit " << bit;
      }
      pieces[i].bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

// Both headers hold by themselves and say different things.
TEST_F(SealStream, ALastHeaderUnlikeTheDraftIsRefused) {
  for (uint64_t byte = 0; byte + 8 < header_.size(); ++byte) {
    auto pieces = pieces_;
    pieces.back().bytes[byte] ^= std::byte{0x20};
    sum(pieces.back().bytes);
    const std::string message = read(pieces);
    const uint64_t in_entry = byte >= 88 ? (byte - 88) % 64 : 0;
    const bool is_sum = byte >= 88 && byte < 88 + 64 * 8 && in_entry >= 56;
    expect_says(message, is_sum ? "checksum: stored" : fmt::format("another than before them, from byte {} on", byte));
  }
}

// A value that is not finite is told at the end, when it is known not to be damage; nothing behind it is passed on.
TEST_F(SealStream, BadValuesAreToldAtTheEnd) {
  auto block = block_;
  store_as<float>(&block[begin_of(1) + 20], std::numeric_limits<float>::quiet_NaN());
  const auto damaged = std::vector<std::byte>(block.begin() + static_cast<ptrdiff_t>(begin_of(1)),
                                              block.begin() + static_cast<ptrdiff_t>(begin_of(2)));
  auto pieces = pieces_;
  pieces[3].bytes = damaged;
  expect_says(read(pieces), "at the end: sealed state: section 1 (layer 0 recurrent) checksum");
  test::reseal(block);
  pieces.back().bytes.assign(block.begin(), block.begin() + static_cast<ptrdiff_t>(header_.size()));
  expect_says(read(pieces), "at the end: sealed state: section 1 (layer 0 recurrent): value 5 is nan");
  EXPECT_LE(heard_.values, view_.sections[0].bytes.size());
  EXPECT_TRUE(heard_.sections[3].empty());
}

}  // namespace
}  // namespace baton
