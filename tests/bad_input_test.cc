// Damaged and hostile GGUF and safetensors bytes: each is refused with its code and a message that says what is wrong,
// quickly, and without reading outside the bytes (run under asan-ubsan too). Attacks known from other readers are among
// them. Folders, splits and special files are in bad_input_folder_test.cc.
#include "tests/bad_input_bytes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "baton/base/bytes.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "tests/support/smoke.h"

namespace baton::test {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 63;
constexpr uint64_t kAllOnes = std::numeric_limits<uint64_t>::max();

struct Case {
  const char* name;
  std::string bytes;
  Code code;
  const char* fragment;  // of the message
};

GgufBytes gguf() { return {}; }

std::vector<Case> gguf_header_cases() {
  std::vector<Case> cases = {
      {"empty file", "", Code::kInvalidInput, "an empty file"},
      {"one byte", "G", Code::kInvalidInput, "does not begin with 'GGUF'"},
      {"wrong magic", "GGML" + std::string(60, '\0'), Code::kInvalidInput, "does not begin with 'GGUF'"},
      {"big-endian magic", "FUGG" + std::string(60, '\0'), Code::kInvalidInput, "big-endian"},
      {"magic only", "GGUF", Code::kCorrupt, "the version needs 4 bytes, 0 remain"},
      {"counts missing", "GGUF" + raw<uint32_t>(3), Code::kCorrupt, "the tensor count needs 8 bytes"},
  };
  const auto version = [](uint32_t number) {
    GgufBytes file;
    file.version = number;
    return file.bytes();
  };
  cases.push_back({"version 0", version(0), Code::kInvalidInput, "big-endian"});
  cases.push_back({"version 1", version(1), Code::kUnsupported, "GGUF version 1"});
  cases.push_back({"version 4", version(4), Code::kUnsupported, "GGUF version 4"});
  cases.push_back({"version 2^32-1", version(0xffffffffu), Code::kUnsupported, "GGUF version 4294967295"});
  cases.push_back({"big-endian version", version(0x03000000u), Code::kInvalidInput, "big-endian"});
  const auto counts = [](uint64_t tensors, uint64_t entries, size_t padding) {
    GgufBytes file;
    file.tensor_count = tensors;
    file.entry_count = entries;
    return file.bytes() + std::string(padding, '\0');
  };
  cases.push_back(
      {"tensor count 2^63", counts(kHuge, 0, 0), Code::kCorrupt, "the tensor count of 9223372036854775808 cannot fit"});
  cases.push_back({"tensor count all ones", counts(kAllOnes, 0, 0), Code::kCorrupt, "the tensor count"});
  cases.push_back(
      {"key count 2^63", counts(0, kHuge, 0), Code::kCorrupt, "the key count of 9223372036854775808 cannot fit"});
  cases.push_back(
      {"key count beyond the bytes", counts(0, 100, 1299), Code::kCorrupt, "the key count of 100 cannot fit"});
  cases.push_back({"key count that fits but is absurd", counts(0, 100000, 1400000), Code::kCorrupt, "more than the"});
  cases.push_back({"tensor count one too many", counts(1, 0, 33), Code::kCorrupt, "a tensor name that is empty"});
  return cases;
}

std::vector<Case> gguf_entry_cases() {
  const auto lengths = [](uint64_t length) {
    GgufBytes file;
    file.entries = raw(length) + std::string(64, 'k');
    file.entries_added = 1;
    return file.bytes();
  };
  const auto key = [](std::string_view name) { return gguf().u32(name, 1).bytes(); };
  std::vector<Case> cases = {
      {"key length 2^63", lengths(kHuge), Code::kCorrupt, "a key is 9223372036854775808 bytes long"},
      {"key length all ones", lengths(kAllOnes), Code::kCorrupt, "a key is 18446744073709551615 bytes long"},
      {"key longer than the file", lengths(1000), Code::kCorrupt, "a key needs 1000 bytes"},
      {"key of 64 KiB", key(std::string(65536, 'k')), Code::kCorrupt, "a key is 65536 bytes long"},
      {"empty key", key(""), Code::kCorrupt, "a key that is empty"},
      {"key with NUL", key(std::string_view("a\0b", 3)), Code::kCorrupt, "control characters"},
      {"key with invalid UTF-8", key("a\xff\xfe"), Code::kCorrupt, "invalid UTF-8"},
      {"key with overlong UTF-8", key("a\xc0\xaf"), Code::kCorrupt, "invalid UTF-8"},
      {"duplicate key", gguf().u32("k", 1).u32("k", 2).bytes(), Code::kCorrupt, "key 'k' occurs twice"},
      {"value type 255", gguf().entry("k", 255, raw<uint64_t>(0)).bytes(), Code::kCorrupt, "value type 255 is unknown"},
      {"value type 13", gguf().entry("k", 13, raw<uint64_t>(0)).bytes(), Code::kCorrupt, "value type 13 is unknown"},
      {"value missing", gguf().entry("kkkkkkkk", 10, "abc").bytes(), Code::kCorrupt, "key 'kkkkkkkk': offset"},
      {"boolean 2", gguf().entry("k", 7, "\x02").bytes(), Code::kCorrupt, "a boolean of 2"},
      {"text longer than the file", gguf().entry("k", 8, raw<uint64_t>(kAllOnes - 7)).bytes(), Code::kCorrupt,
       "a text is"},
      {"array of unknown type", gguf().array("k", 99, 1, "xxxxxxxx").bytes(), Code::kCorrupt,
       "item type 99 is unknown"},
      {"array count wraps with its size", gguf().array("k", 10, (uint64_t{1} << 61) + 1, "xxxxxxxx").bytes(),
       Code::kCorrupt, "an array's length of 2305843009213693953 cannot fit"},
      {"array of u8, 2^64-1", gguf().array("k", 0, kAllOnes, "").bytes(), Code::kCorrupt, "cannot fit in the 0 bytes"},
      {"array of texts beyond the bytes", gguf().array("k", 8, 2, gguf_text("a")).bytes(), Code::kCorrupt,
       "cannot fit"},
      {"array of texts, one too long", gguf().array("k", 8, 2, gguf_text("a") + raw<uint64_t>(9)).bytes(),
       Code::kCorrupt, "a text of an array needs 9 bytes, 0 remain"},
      {"array of booleans with 7", gguf().array("k", 7, 2, "\x01\x07").bytes(), Code::kCorrupt, "a boolean of 7"},
      {"too many array items", gguf().array("k", 0, 9 << 20, std::string(9 << 20, 'x')).bytes(), Code::kCorrupt,
       "arrays of more than 8388608 items"},
  };
  GgufBytes deep;
  deep.entries = gguf_text("k") + raw<uint32_t>(9);
  for (int i = 0; i < 100000; ++i) deep.entries += raw<uint32_t>(9) + raw<uint64_t>(1);
  deep.entries_added = 1;
  cases.push_back({"arrays nested 10^5 deep", deep.bytes(), Code::kCorrupt, "an array of arrays"});
  for (const uint32_t alignment : {0u, 3u, 1u << 17, 1u << 31}) {
    cases.push_back({"alignment", gguf().u32("general.alignment", alignment).tensor("t", {1}, 0, 4).bytes(),
                     Code::kCorrupt, "'general.alignment' is"});
  }
  cases.push_back({"alignment as text", gguf().text("general.alignment", "32").bytes(), Code::kInvalidInput,
                   "'general.alignment' is a text"});
  return cases;
}

std::vector<Case> gguf_tensor_cases() {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t bytes,
                      std::optional<uint64_t> offset = {}) {
    return gguf().tensor("t", dims, type, bytes, offset).bytes();
  };
  const auto name = [](std::string_view text) { return gguf().tensor(text, {1}, 0, 4).bytes(); };
  const std::string good = gguf().u32("a.key", 1).tensor("a", {32, 2}, 8, 68).tensor("b", {4}, 0, 16).bytes();
  return {
      {"no dims", one({}, 0, 4), Code::kCorrupt, "'t' has 0 dimensions"},
      {"five dims", one({1, 1, 1, 1, 1}, 0, 4), Code::kCorrupt, "'t' has 5 dimensions"},
      {"a zero dim", one({4, 0}, 0, 0), Code::kCorrupt, "a dimension of zero"},
      {"zero dim in front of a huge one", one({0, kHuge}, 0, 0), Code::kCorrupt, "a dimension of zero"},
      {"dims whose product wraps to 0", one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 4), Code::kCorrupt,
       "more than 2^62"},
      {"dims whose product wraps to 4", one({kHuge, 2, 2}, 0, 16), Code::kCorrupt, "more than 2^62"},
      {"a dim of -1", one({kAllOnes}, 0, 4), Code::kCorrupt, "more than 2^62"},
      {"elements fit, bytes wrap", one({uint64_t{1} << 62}, 0, 4), Code::kCorrupt, "does not fit in 64 bits"},
      {"row not a multiple of the block", one({33, 2}, 8, 70), Code::kCorrupt,
       "rows of 33 are not a multiple of Q8_0's block of 32"},
      {"rows together fill blocks, one does not", one({48, 2}, 8, 102), Code::kCorrupt,
       "rows of 48 are not a multiple of Q8_0's block of 32"},
      {"K row of 128", one({128}, 12, 72), Code::kCorrupt, "Q4_K's block of 256"},
      {"unreadable type's row too", one({100}, 16, 66), Code::kCorrupt, "IQ2_XXS's block of 256"},
      {"removed type 4", one({32}, 4, 20), Code::kUnsupported, "'t' has type 4"},
      {"unknown type 43", one({32}, 43, 20), Code::kUnsupported, "'t' has type 43"},
      {"private type 139", one({256}, 139, 144), Code::kUnsupported, "'t' has type 139"},
      {"type 2^32-1", one({32}, 0xffffffffu, 20), Code::kUnsupported, "'t' has type 4294967295"},
      {"offset unaligned", one({1}, 0, 4, 1), Code::kCorrupt, "is at 1 of the data, but must follow"},
      {"offset past the end", one({1}, 0, 4, 64), Code::kCorrupt, "is at 64 of the data"},
      {"offset that wraps with the size", one({1}, 0, 4, kAllOnes - 3), Code::kCorrupt, "but must follow"},
      {"overlap", gguf().tensor("a", {8}, 0, 32).tensor("b", {8}, 0, 32, 0).bytes(), Code::kCorrupt,
       "'b' is at 0 of the data"},
      {"gap", gguf().tensor("a", {8}, 0, 32).tensor("b", {8}, 0, 32, 64).bytes(), Code::kCorrupt,
       "'b' is at 64 of the data"},
      {"out of order", gguf().tensor("a", {8}, 0, 32, 32).tensor("b", {8}, 0, 32, 0).bytes(), Code::kCorrupt,
       "'a' is at 32"},
      {"larger than the file", one({1000}, 0, 100), Code::kCorrupt,
       "'t' needs 4000 bytes at 0 of the data, but the data has only 100"},
      // Sums of sizes near 2^64: a check of offset + size alone passes after the wrap.
      {"sizes whose sum wraps",
       gguf().tensor("a", {uint64_t{1} << 61}, 0, 32).tensor("b", {uint64_t{1} << 61}, 0, 32, kHuge).bytes(),
       Code::kCorrupt, "'a' needs 9223372036854775808 bytes"},
      {"second size that wraps", gguf().tensor("a", {8}, 0, 32).tensor("b", {(uint64_t{1} << 62) - 8}, 0, 32).bytes(),
       Code::kCorrupt, "'b' needs 18446744073709551584 bytes"},
      {"no data at all", gguf().tensor("t", {8}, 0, 32).bytes().substr(0, 70), Code::kCorrupt, "(truncated)"},
      {"last byte missing", good.substr(0, good.size() - 1), Code::kCorrupt, "(truncated)"},
      {"duplicate tensor", gguf().tensor("t", {1}, 0, 4).tensor("t", {1}, 0, 4).bytes(), Code::kCorrupt,
       "'t' occurs twice"},
      {"name of 10^6 bytes", name(std::string(1000000, 'n')), Code::kCorrupt,
       "a tensor's name is 1000000 bytes long, more than 63"},
      {"name of 64 bytes", name(std::string(64, 'n')), Code::kCorrupt, "more than 63"},
      {"empty name", name(""), Code::kCorrupt, "a tensor name that is empty"},
      {"name with a line break", name("a\nb"), Code::kCorrupt, "control characters"},
      {"name with a surrogate", name("\xed\xa0\x80"), Code::kCorrupt, "invalid UTF-8"},
  };
}

std::vector<Case> safetensors_header_cases() {
  const auto header = [](std::string_view text, size_t data = 0) {
    return safetensors_bytes(text, std::string(data, 'x'));
  };
  const auto length = [](uint64_t number) { return safetensors_bytes("{}", "", number); };
  const std::string tensor = tensor_json("t", "F32", "[1]", "[0,4]");
  return {
      {"empty file", "", Code::kCorrupt, "the header length needs 8 bytes, 0 remain"},
      {"seven bytes", "1234567", Code::kCorrupt, "the header length needs 8 bytes"},
      {"length 0", length(0), Code::kCorrupt, "does not begin with '{'"},
      {"length 1", length(1), Code::kCorrupt, "header: not valid JSON"},
      {"length past the file", length(3), Code::kCorrupt, "the header length is 3, but 2 bytes remain"},
      {"length over 100 MB", length(100000001), Code::kCorrupt, "more than the 100000000"},
      {"length 2^64-1", length(kAllOnes), Code::kCorrupt, "more than the 100000000"},
      {"length 2^63", length(kHuge), Code::kCorrupt, "more than the 100000000"},
      {"not JSON", header("{tensors}"), Code::kCorrupt, "not valid JSON"},
      {"an array", header("[1]"), Code::kCorrupt, "does not begin with '{'"},
      {"a pickle", header("\x80\x02}q."), Code::kCorrupt, "does not begin with '{'"},
      {"bytes after the object", header("{}{}"), Code::kCorrupt, "not valid JSON"},
      {"header cut short", header("{" + tensor.substr(0, 20), 4), Code::kCorrupt, "not valid JSON"},
      {"invalid UTF-8", header("{\"\xff\":1}"), Code::kCorrupt, "not valid JSON"},
      {"nested 10^5 deep", header("{\"t\":" + std::string(100000, '[')), Code::kCorrupt, "an array is out of place"},
      {"objects nested 10^5 deep", header("{\"t\":{" + std::string(100000, '{')), Code::kCorrupt, "not valid JSON"},
      {"metadata nested 10^5 deep", header("{\"__metadata__\":{\"a\":" + std::string(100000, '[')), Code::kCorrupt,
       "out of place"},
      {"metadata with a number", header("{\"__metadata__\":{\"a\":1}}"), Code::kCorrupt, "1 is out of place"},
      {"duplicate tensor", header("{" + tensor + "," + tensor + "}", 4), Code::kCorrupt, "'t' occurs twice"},
      {"duplicate field", header(R"({"t":{"dtype":"F32","dtype":"F16"}})"), Code::kCorrupt,
       "field 'dtype' occurs twice"},
      {"unknown field", header(R"({"t":{"dtype":"F32","stride":[1]}})"), Code::kCorrupt, "unknown field 'stride'"},
      {"fields missing", header(R"({"t":{"dtype":"F32","shape":[1]}})", 4), Code::kCorrupt,
       "needs dtype, shape and data_offsets"},
      {"a tensor that is a number", header(R"({"t":5})"), Code::kCorrupt, "tensor 't': 5 is out of place"},
      {"a tensor that is null", header(R"({"t":null})"), Code::kCorrupt, "null is out of place"},
      {"dtype as number", header(R"({"t":{"dtype":5}})"), Code::kCorrupt, "5 is out of place in dtype"},
      {"shape as text", header(R"({"t":{"shape":"1"}})"), Code::kCorrupt, "a text is out of place in shape"},
      {"empty name", header("{" + tensor_json("", "F32", "[1]", "[0,4]") + "}", 4), Code::kCorrupt,
       "a name that is empty"},
      {"name with an escaped control character", header("{" + tensor_json("a\\u0000b", "F32", "[1]", "[0,4]") + "}", 4),
       Code::kCorrupt, "control characters"},
      {"name of 10^6 bytes", header("{" + tensor_json(std::string(1000000, 'n'), "F32", "[1]", "[0,4]") + "}", 4),
       Code::kCorrupt, "too long"},
  };
}

std::vector<Case> safetensors_tensor_cases() {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets, size_t data) {
    return safetensors_bytes("{" + tensor_json("t", dtype, shape, offsets) + "}", std::string(data, 'x'));
  };
  const auto two = [](std::string_view first, std::string_view second, size_t data) {
    return safetensors_bytes(
        "{" + tensor_json("a", "F32", "[1]", first) + "," + tensor_json("b", "F32", "[1]", second) + "}",
        std::string(data, 'x'));
  };
  std::string many = "[1";
  for (int i = 0; i < 100000; ++i) many += ",1";
  return {
      {"offsets reversed", one("F32", "[1]", "[4,0]", 4), Code::kCorrupt, "data_offsets 4 and 0 are reversed"},
      {"offsets negative", one("F32", "[1]", "[-4,0]", 4), Code::kCorrupt, "-4 is out of place in data_offsets"},
      {"offsets past the end", one("F32", "[2]", "[0,8]", 4), Code::kCorrupt,
       "data_offsets end at 8, but there are 4 bytes"},
      {"offsets 2^64", one("F32", "[1]", "[0,18446744073709551616]", 4), Code::kCorrupt,
       "out of place in data_offsets"},
      {"offsets all ones", one("F32", "[1]", "[18446744073709551612,18446744073709551615]", 4), Code::kCorrupt,
       "data_offsets end at"},
      {"one offset", one("F32", "[1]", "[0]", 4), Code::kCorrupt, "data_offsets must be two numbers"},
      {"three offsets", one("F32", "[1]", "[0,2,4]", 4), Code::kCorrupt, "more than 2 numbers"},
      {"overlap", two("[0,4]", "[2,6]", 6), Code::kCorrupt, "'b': begins at 2, overlapping"},
      {"same place", two("[0,4]", "[0,4]", 4), Code::kCorrupt, "begins at 0, overlapping"},
      {"hole", two("[0,4]", "[8,12]", 12), Code::kCorrupt, "'b': begins at 8, leaving a hole"},
      {"hole at the start", one("F32", "[1]", "[4,8]", 8), Code::kCorrupt, "begins at 4, leaving a hole"},
      {"bytes at the end", one("F32", "[1]", "[0,4]", 5), Code::kCorrupt, "1 bytes after the last tensor"},
      {"data without tensors", safetensors_bytes("{}", "xxxx"), Code::kCorrupt, "4 bytes after the last tensor"},
      {"shape too large for the offsets", one("F32", "[2]", "[0,4]", 4), Code::kCorrupt,
       "take 8 bytes, but data_offsets give 4"},
      {"shape product wraps to 1", one("U8", "[4294967296,4294967296]", "[0,0]", 0), Code::kCorrupt,
       "more than 2^59 elements"},
      {"shape times size wraps", one("F64", "[2305843009213693953]", "[0,8]", 8), Code::kCorrupt,
       "more than 2^59 elements"},
      {"shape negative", one("F32", "[-1]", "[0,4]", 4), Code::kCorrupt, "-1 is out of place in shape"},
      {"shape fraction", one("F32", "[1.5]", "[0,4]", 4), Code::kCorrupt, "1.5 is out of place in shape"},
      {"shape exponent", one("F32", "[1e0]", "[0,4]", 4), Code::kCorrupt, "out of place in shape"},
      {"shape of 10^5 dims", one("F32", many + "]", "[0,4]", 4), Code::kCorrupt, "more than 8 numbers"},
      {"shape nested", one("F32", "[[1]]", "[0,4]", 4), Code::kCorrupt, "an array is out of place"},
      {"dtype unknown", one("Q4_K", "[1]", "[0,4]", 4), Code::kUnsupported, "dtype 'Q4_K' is unknown"},
      {"dtype with control characters", one("F\\u001b[2J", "[1]", "[0,4]", 4), Code::kUnsupported,
       "dtype 'F?[2J' is unknown"},
      {"half a byte", one("F4", "[1]", "[0,1]", 1), Code::kCorrupt, "4 bits are not whole bytes"},
  };
}

template <class Parse>
void expect_refused(const std::vector<Case>& cases, Parse parse) {
  for (const Case& item : cases) {
    // Exactly sized memory: reading one byte too far is seen by the address sanitizer.
    const std::vector<char> exact(item.bytes.begin(), item.bytes.end());
    const auto start = std::chrono::steady_clock::now();
    Container container;
    const Status status = parse(as_bytes({exact.data(), exact.size()}), "the file", container);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_FALSE(status) << item.name << " was accepted";
    EXPECT_EQ(to_string(status.error().code), to_string(item.code)) << item.name << ": " << status.error().message;
    EXPECT_NE(status.error().message.find(item.fragment), std::string::npos)
        << item.name << ": " << status.error().message;
    EXPECT_EQ(status.error().message.rfind("the file: ", 0), 0u) << item.name << ": " << status.error().message;
    EXPECT_LT(status.error().message.size(), 400u) << item.name;
    EXPECT_LT(seconds, scaled(1, 20)) << item.name;
  }
}

TEST(BadInput, GgufHeader) { expect_refused(gguf_header_cases(), parse_gguf); }
TEST(BadInput, GgufMetadata) { expect_refused(gguf_entry_cases(), parse_gguf); }
TEST(BadInput, GgufTensors) { expect_refused(gguf_tensor_cases(), parse_gguf); }
TEST(BadInput, SafetensorsHeader) { expect_refused(safetensors_header_cases(), parse_safetensors); }
TEST(BadInput, SafetensorsTensors) { expect_refused(safetensors_tensor_cases(), parse_safetensors); }

// The tables above are worth nothing if the builders' right files were refused too.
TEST(BadInput, RightFilesAreAccepted) {
  Container container;
  const auto file = gguf()
                        .u32("general.alignment", 32)
                        .array("k", 8, 2, gguf_text("a") + gguf_text(""))
                        .tensor("a", {32, 2}, 8, 68)
                        .tensor("b", {4}, 0, 16);
  const auto status = parse_gguf(as_bytes(file.bytes()), "f", container);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(container.tensors.size(), 2u);
  GgufBytes wide;
  wide.alignment = 4096;
  wide.u32("general.alignment", 4096).tensor("a", {1}, 0, 4).tensor("b", {1}, 0, 4);
  EXPECT_TRUE(parse_gguf(as_bytes(wide.bytes()), "f", container = {}));
  GgufBytes second;
  second.version = 2;
  EXPECT_TRUE(parse_gguf(as_bytes(second.tensor("a", {1}, 0, 4).bytes()), "f", container = {}));
  // The last tensor's padding may be missing, and bytes may follow it.
  EXPECT_TRUE(parse_gguf(as_bytes(gguf().tensor("a", {1}, 0, 4).bytes() + "tail"), "f", container = {}));
  const std::string two =
      "{" + tensor_json("b", "BF16", "[2]", "[4,8]") + "," + tensor_json("a", "F32", "[]", "[0,4]") + "}   ";
  EXPECT_TRUE(parse_safetensors(as_bytes(safetensors_bytes(two, "12345678")), "f", container = {}));
  EXPECT_EQ(container.tensors.size(), 2u);
}

// A right file cut at any place, or with one byte changed, is refused or read within its bytes, never worse.
TEST(BadInput, EveryTruncationAndFlip) {
  const auto touch = [](const Container& container) {
    unsigned sum = 0;
    for (const TensorView& tensor : container.tensors)
      sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
    for (const auto& [key, value] : container.gguf.entries) sum += static_cast<unsigned>(key.size() + value.index());
    return sum;
  };
  const std::string gguf_file = gguf()
                                    .text("general.architecture", "llama")
                                    .array("k", 8, 3, gguf_text("a") + gguf_text("bc") + gguf_text(""))
                                    .array("s", 6, 2, "12345678")
                                    .tensor("blk.0.a", {32, 2}, 8, 68)
                                    .tensor("b", {3}, 1, 6)
                                    .bytes();
  const std::string safetensors_file =
      safetensors_bytes("{\"__metadata__\":{\"format\":\"pt\"}," + tensor_json("b", "BF16", "[2,1]", "[4,8]") + "," +
                            tensor_json("a", "F32", "[1]", "[0,4]") + "}",
                        "12345678");
  unsigned sum = 0;
  for (const bool is_gguf : {true, false}) {
    const std::string& file = is_gguf ? gguf_file : safetensors_file;
    const auto parse = is_gguf ? parse_gguf : parse_safetensors;
    for (size_t length = 0; length < file.size(); ++length) {
      const std::vector<char> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(length));
      Container container;
      EXPECT_FALSE(parse(as_bytes({cut.data(), cut.size()}), "f", container)) << length;
    }
    for (size_t at = 0; at < file.size(); ++at) {
      for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
        std::vector<char> changed(file.begin(), file.end());
        changed[at] = static_cast<char>(value);
        Container container;
        if (parse(as_bytes({changed.data(), changed.size()}), "f", container)) sum += touch(container);
      }
    }
  }
  RecordProperty("touched", static_cast<int>(sum % 1000));
}

}  // namespace
}  // namespace baton::test
