// Keys and MACs: what was not made with the key is refused, in any byte and any length.
#include "baton/state/state_key.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_file.h"
#include "baton/state/seal_list.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr StateIdentity kKeyedIdentity{1, 2, 3};

std::vector<std::byte> secret(uint8_t first, size_t bytes = 32) {
  std::vector<std::byte> key(bytes);
  for (size_t i = 0; i < bytes; ++i) key[i] = static_cast<std::byte>(first + i);
  return key;
}

StateKey key_of(uint8_t first) { return StateKey::from_bytes(secret(first)).value(); }

class StateKeys : public testing::Test {
 protected:
  std::vector<std::byte> sealed() const {
    // Bytes of 0x3c.
    return test::sealed_block(kKeyedIdentity, tokens_, layout_, {}, [&](size_t section) {
      return layout_.segments[section].dtype == DType::kF32 ? std::bit_cast<float>(0x3c3c3c3cu) : f16_to_f32(0x3c3c);
    });
  }
  // As it lies in a file.
  std::vector<std::byte> keyed(const StateKey& key) const {
    const fs::path file = path_.string() + ".state";
    EXPECT_TRUE(write_seal_file(file, SealSource::owned(sealed()), &key));
    const std::string text = read_file(file, 1 << 20).value();
    fs::remove(file);
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  SealExpectation expected() const {
    SealExpectation expectation;
    expectation.identity = kKeyedIdentity;
    expectation.shape = &layout_;
    expectation.position_max = 8;
    return expectation;
  }
  void TearDown() override { fs::remove(path_); }

  const StateShape layout_ = state_shape(test::fake_program(2, 2, 1, 2, 2, 2, 1, 4), DType::kF16);
  const std::vector<int32_t> tokens_{11, 22, 33};
  const fs::path path_ = fs::path(testing::TempDir()) / ("state_key_test_" + std::to_string(::getpid()));
};

TEST_F(StateKeys, WhatWasSealedWithAKeyOpensWithIt) {
  const auto block = sealed();
  const auto keyed = this->keyed(key_of(1));
  EXPECT_EQ(keyed.size(), block.size() + kMacBytes);
  EXPECT_TRUE(has_mac(keyed, keyed.size()));
  EXPECT_FALSE(has_mac(block, block.size()));
  EXPECT_TRUE(check_mac(keyed, key_of(1)));
  EXPECT_TRUE(list_seal(keyed)->keyed);
  EXPECT_FALSE(list_seal(block)->keyed);
  const StateKey key = key_of(1);
  EXPECT_FALSE(write_seal_file(path_, SealSource::borrowed(keyed), &key));
  EXPECT_FALSE(write_seal_file(path_, SealSource::owned(std::vector<std::byte>(200)), &key));
}

TEST_F(StateKeys, WithoutTheKeyOrWithAnotherItIsRefused) {
  const auto block = sealed();
  const auto keyed = this->keyed(key_of(1));
  const auto without = open_seal(keyed, expected());
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Code::kMismatch);
  EXPECT_NE(without.error().message.find("used without that key"), std::string::npos);
  const auto other = check_mac(keyed, key_of(2));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kMismatch);
  EXPECT_NE(other.error().message.find("another key"), std::string::npos);
  // A state that nobody vouches for is not taken for one that somebody does.
  const auto unkeyed = check_mac(block, key_of(1));
  ASSERT_FALSE(unkeyed);
  EXPECT_NE(unkeyed.error().message.find("carries no MAC"), std::string::npos);
}

// With all checksums made right again, as somebody would who changes a state on purpose.
TEST_F(StateKeys, EveryByteIsUnderTheMac) {
  const auto keyed = this->keyed(key_of(1));
  const StateKey key = key_of(1);
  for (size_t at = 0; at < keyed.size(); ++at) {
    auto changed = keyed;
    changed[at] ^= std::byte{1};
    EXPECT_FALSE(check_mac(changed, key)) << at;
    test::reseal(std::span(changed).first(changed.size() - kMacBytes));
    // A checksum that was changed is what it was again.
    if (changed != keyed) {
      EXPECT_FALSE(check_mac(changed, key)) << at;
    }
    EXPECT_FALSE(open_seal(changed, expected())) << at;
  }
  for (size_t bytes = 0; bytes < keyed.size(); ++bytes) EXPECT_FALSE(check_mac(std::span(keyed).first(bytes), key));
  auto longer = keyed;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(check_mac(longer, key));
}

// The MAC taken off, and the header told that there never was one: refused by whoever has the key.
TEST_F(StateKeys, AMacCannotBeTakenOffUnnoticed) {
  const StateKey key = key_of(1);
  auto stripped = keyed(key);
  stripped.resize(stripped.size() - kMacBytes);
  sealed::mark(std::span(stripped).first(load_as<uint32_t>(&stripped[sealed::kHeaderBytesAt])), 0, stripped.size());
  EXPECT_EQ(stripped, sealed());
  ASSERT_TRUE(write_seal_file(path_, SealSource::borrowed(stripped)));
  EXPECT_TRUE(read_seal_file(path_, expected()));
  EXPECT_FALSE(read_seal_file(path_, expected(), &key));
}

TEST_F(StateKeys, FilesWithAKey) {
  const auto block = sealed();
  const StateKey key = key_of(1), other = key_of(9);
  ASSERT_TRUE(write_seal_file(path_, SealSource::borrowed(block), &key));
  const auto file = read_seal_file(path_, expected(), &key);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->source.block().value(), block);
  EXPECT_EQ(file->view.tokens, tokens_);
  for (const StateKey* wrong : {static_cast<const StateKey*>(nullptr), &other}) {
    const auto refused = read_seal_file(path_, expected(), wrong);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message.find(path_.string()), 0u) << refused.error().message;
    EXPECT_EQ(refused.error().code, Code::kMismatch);
  }
  ASSERT_TRUE(write_seal_file(path_, SealSource::borrowed(block)));
  EXPECT_TRUE(read_seal_file(path_, expected()));
  EXPECT_FALSE(read_seal_file(path_, expected(), &key));
  // The right key says who, not what: a state of another model stays one.
  ASSERT_TRUE(write_seal_file(path_, SealSource::borrowed(block), &key));
  SealExpectation elsewhere = expected();
  elsewhere.identity.model = 7;
  const auto foreign = read_seal_file(path_, elsewhere, &key);
  EXPECT_TRUE(!foreign && foreign.error().message.find("model fingerprint") != std::string::npos);
}

TEST_F(StateKeys, KeyFilesAreChecked) {
  const auto put = [&](const std::vector<std::byte>& bytes) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  };
  for (const size_t bytes : {0, 1, 31, 4097}) {
    put(secret(1, bytes));
    const auto key = StateKey::read(path_);
    ASSERT_FALSE(key) << bytes;
    EXPECT_EQ(key.error().message.find(path_.string()), 0u) << key.error().message;
  }
  put(std::vector<std::byte>(64, std::byte{0}));
  EXPECT_FALSE(StateKey::read(path_));
  EXPECT_FALSE(StateKey::read(path_.string() + ".none"));
  for (const size_t bytes : {32, 33, 4096}) {
    put(secret(1, bytes));
    const auto key = StateKey::read(path_);
    ASSERT_TRUE(key) << key.error().message;
    EXPECT_EQ(key->warning(), "");
    EXPECT_EQ(check_mac(keyed(*key), key_of(1)).has_value(), bytes == 32);
  }
  for (const auto open : {fs::perms::group_read, fs::perms::others_read, fs::perms::others_write}) {
    fs::permissions(path_, open, fs::perm_options::add);
    EXPECT_NE(StateKey::read(path_)->warning().find("chmod 600"), std::string::npos);
    fs::permissions(path_, open, fs::perm_options::remove);
  }
}

// Every byte of the key file counts, and the MAC is what libsodium's interface says: BLAKE2b-256, keyed with the
// BLAKE2b-256 of the purpose and the file. Computed with Python's hashlib.
TEST_F(StateKeys, TheMacIsTheDocumentedOne) {
  const auto keyed = this->keyed(key_of(1));
  std::string hex;
  for (const std::byte b : std::span(keyed).last(kMacBytes)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned>(b) >> 4];
    hex += kDigits[static_cast<unsigned>(b) & 15];
  }
  EXPECT_EQ(hex, "edd482790a549606ae720e9572d70774075b1942aadc0eec1236426ca2021575");
}

TEST_F(StateKeys, AKeyIsWipedWhereItWas) {
  alignas(StateKey) std::byte place[sizeof(StateKey)];
  auto* key = new (place) StateKey(key_of(5));
  StateKey moved(std::move(*key));
  EXPECT_TRUE(check_mac(keyed(moved), key_of(5)));
  EXPECT_FALSE(check_mac(keyed(moved), *key));
  key->~StateKey();
  // The secret of `moved` is not to be found in the memory of the one that is gone.
  const auto* secret_bytes = reinterpret_cast<const std::byte*>(&moved);
  EXPECT_EQ(std::search(place, place + sizeof(place), secret_bytes, secret_bytes + 32), place + sizeof(place));
}

}  // namespace
}  // namespace baton
