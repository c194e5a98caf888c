// GGUF v2 and v3. Layout: "GGUF", u32 version, u64 tensor count, u64 key count; keys: string, u32 type, value; tensors:
// string name, u32 dims, u64 dims (innermost first), u32 type, u64 offset; padding to general.alignment; data.
// A string is u64 bytes and the bytes. The checks are those of ggml's own reader and stricter ones for our bounds.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <unordered_set>

#include "baton/base/bytes.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"
#include "baton/model/gguf_types.h"

namespace baton {
namespace {

using enum gguf::ValueType;

constexpr uint64_t kEntriesMax = 1 << 16;  // metadata keys; real files have about 50
constexpr uint64_t kTensorsMax = 1 << 18;
constexpr uint64_t kKeyBytesMax = 65535;  // by the format
constexpr uint64_t kStringBytesMax = 1 << 30;
constexpr uint64_t kArrayItemsMax = 8 << 20;  // of all arrays of a file: 30 times the largest vocabulary known
constexpr uint64_t kAlignmentMax = 1 << 16;
constexpr uint64_t kElementsMax = uint64_t{1} << 62;

constexpr std::array<uint8_t, kTypes> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // at least

// Tensor types of ggml without a decoder here: their sizes are needed to check the offsets of their neighbours.
struct OtherType {
  uint32_t id;
  std::string_view name;
  uint32_t block_elements, block_bytes;
};
constexpr OtherType kOtherTypes[] = {
    {9, "Q8_1", 32, 36}, {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},  {25, "I16", 1, 2},
    {26, "I32", 1, 4},   {27, "I64", 1, 8},      {28, "F64", 1, 8},
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, Container& into) : bytes_(bytes), reader_(bytes), into_(into) {}

  Status parse() {
    BATON_OK(header());
    for (uint64_t i = 0; i < entry_count_; ++i) BATON_OK(entry());
    BATON_OK(alignment());
    for (uint64_t i = 0; i < tensor_count_; ++i) BATON_OK(tensor());
    return data();
  }

 private:
  struct Declared {
    TensorView view;
    uint64_t bytes;
    uint64_t offset;
    uint64_t info_offset;    // where the file declares it, for messages
    std::string_view other;  // name of a type without a decoder, else empty
  };

  template <class... Args>
  tl::unexpected<Error> corrupt(uint64_t offset, fmt::format_string<Args...> text, Args&&... args) const {
    return fail(Code::kCorrupt, fmt::format("offset {}: {}", offset, fmt::format(text, std::forward<Args>(args)...)));
  }

  // What is often saved in a model's place.
  const char* no_gguf() const {
    std::string_view text = as_text(bytes_.first(std::min<size_t>(bytes_.size(), 512)));
    if (text.starts_with("version https://git-lfs"))
      return "a pointer of git-lfs, not the file itself: fetch it with 'git lfs pull' or 'baton pull'";
    while (!text.empty() && (static_cast<unsigned char>(text[0]) <= ' ' || static_cast<unsigned char>(text[0]) >= 0x80))
      text.remove_prefix(1);  // a byte order mark too
    if (text.starts_with("<!") || text.starts_with("<html") || text.starts_with("<HTML"))
      return "an HTML page, not a GGUF file: the address led to a page; fetch it with 'baton pull', or from /resolve/ "
             "instead of /blob/";
    return "not a GGUF file: it does not begin with 'GGUF'";
  }

  Status header() {
    if (bytes_.size() < 4 || as_text(bytes_.first(4)) != "GGUF") {
      const bool reversed = bytes_.size() >= 4 && as_text(bytes_.first(4)) == "FUGG";
      return fail(Code::kInvalidInput, reversed ? "a big-endian GGUF file; convert it again for little-endian machines"
                                       : bytes_.empty() ? "an empty file"
                                                        : no_gguf());
    }
    BATON_OK(reader_.take(4, "the magic"));
    BATON_TRY(const auto version, reader_.read<uint32_t>("the version"));
    if ((version & 0xffffu) == 0) {
      return fail(Code::kInvalidInput, fmt::format("GGUF version {}: a big-endian file; convert it again for "
                                                   "little-endian machines",
                                                   version));
    }
    if (version != 2 && version != 3) {
      return fail(Code::kUnsupported, fmt::format("GGUF version {}; 2 and 3 can be read: convert the model again with "
                                                  "a current converter",
                                                  version));
    }
    BATON_TRY(tensor_count_, reader_.read_count("the tensor count", 8 + 1 + 4 + 8 + 4 + 8));
    BATON_TRY(entry_count_, reader_.read_count("the key count", 8 + 1 + 4 + 1));
    if (tensor_count_ > kTensorsMax || entry_count_ > kEntriesMax) {
      return corrupt(8, "{} tensors and {} keys, more than the {} and {} that are allowed", tensor_count_, entry_count_,
                     kTensorsMax, kEntriesMax);
    }
    into_.gguf.entries.reserve(into_.gguf.entries.size() + entry_count_);
    into_.gguf.index.reserve(into_.gguf.index.size() + entry_count_);
    return {};
  }

  Status entry() {
    const uint64_t start = reader_.offset();
    BATON_TRY(const auto key, reader_.read_string("a key", kKeyBytesMax));
    if (!is_name(key)) return corrupt(start, "a key that is empty or holds control characters or invalid UTF-8");
    if (into_.gguf.index.contains(key)) return corrupt(start, "key '{}' occurs twice", shown(key));
    const uint64_t value_start = reader_.offset();
    auto value = this->value();
    if (!value) return fail(std::move(value).error().in(fmt::format("key '{}'", shown(key))));
    into_.gguf.index.emplace(key, into_.gguf.entries.size());
    into_.gguf.entries.emplace_back(key, *std::move(value));
    into_.gguf.raw.push_back(bytes_.subspan(value_start, reader_.offset() - value_start));
    return {};
  }

  Result<GgufValue> value() {
    const uint64_t start = reader_.offset();
    BATON_TRY(const auto type, reader_.read<uint32_t>("a value type"));
    switch (type) {
      case kU8:
        return scalar<uint64_t, uint8_t>();
      case kI8:
        return scalar<int64_t, int8_t>();
      case kU16:
        return scalar<uint64_t, uint16_t>();
      case kI16:
        return scalar<int64_t, int16_t>();
      case kU32:
        return scalar<uint64_t, uint32_t>();
      case kI32:
        return scalar<int64_t, int32_t>();
      case kU64:
        return scalar<uint64_t, uint64_t>();
      case kI64:
        return scalar<int64_t, int64_t>();
      case kF32:
        return scalar<double, float>();
      case kF64:
        return scalar<double, double>();
      case kBool: {
        BATON_TRY(const auto truth, reader_.read<uint8_t>("a boolean"));
        if (truth > 1) return corrupt(start, "a boolean of {}", truth);
        return GgufValue(truth == 1);
      }
      case kString: {
        BATON_TRY(const auto text, reader_.read_string("a text", kStringBytesMax));
        return GgufValue(text);
      }
      case kArray:
        return array();
      default:
        return corrupt(start, "value type {} is unknown", type);
    }
  }

  template <class As, class T>
  Result<GgufValue> scalar() {
    BATON_TRY(const auto number, reader_.read<T>("a number"));
    return GgufValue(static_cast<As>(number));
  }

  Result<GgufValue> array() {
    const uint64_t start = reader_.offset();
    BATON_TRY(const auto type, reader_.read<uint32_t>("an array's item type"));
    if (type == kArray) return corrupt(start, "an array of arrays, which no GGUF reader accepts");
    if (type >= kTypes) return corrupt(start, "an array's item type {} is unknown", type);
    BATON_TRY(const auto count, reader_.read_count("an array's length", kValueBytes[type]));
    if (count > kArrayItemsMax - array_items_) {
      return corrupt(start, "arrays of more than {} items in all", kArrayItemsMax);
    }
    array_items_ += count;
    auto items = std::make_shared<GgufArray>();
    switch (type) {
      case kU8:
        BATON_OK((numbers<uint64_t, uint8_t>(count, *items)));
        break;
      case kI8:
        BATON_OK((numbers<int64_t, int8_t>(count, *items)));
        break;
      case kU16:
        BATON_OK((numbers<uint64_t, uint16_t>(count, *items)));
        break;
      case kI16:
        BATON_OK((numbers<int64_t, int16_t>(count, *items)));
        break;
      case kU32:
        BATON_OK((numbers<uint64_t, uint32_t>(count, *items)));
        break;
      case kI32:
        BATON_OK((numbers<int64_t, int32_t>(count, *items)));
        break;
      case kU64:
        BATON_OK((numbers<uint64_t, uint64_t>(count, *items)));
        break;
      case kI64:
        BATON_OK((numbers<int64_t, int64_t>(count, *items)));
        break;
      case kF32:
        BATON_OK((numbers<double, float>(count, *items)));
        break;
      case kF64:
        BATON_OK((numbers<double, double>(count, *items)));
        break;
      case kBool: {
        BATON_TRY(const auto from, reader_.take(count, "an array"));
        auto& to = items->items.emplace<std::vector<bool>>(count);
        for (uint64_t i = 0; i < count; ++i) {
          if (static_cast<uint8_t>(from[i]) > 1)
            return corrupt(start, "a boolean of {}", static_cast<uint8_t>(from[i]));
          to[i] = from[i] != std::byte{0};
        }
        break;
      }
      default:
        BATON_OK(texts(count, *items));
        break;
    }
    return GgufValue(std::move(items));
  }

  template <class As, class T>
  Status numbers(uint64_t count, GgufArray& array) {
    BATON_TRY(const auto from, reader_.take(count * sizeof(T), "an array"));
    auto& to = array.items.emplace<std::vector<As>>(count);
    for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<As>(load_as<T>(from.data() + i * sizeof(T)));
    return {};
  }

  Status texts(uint64_t count, GgufArray& array) {
    auto& to = array.items.emplace<std::vector<std::string_view>>();
    to.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      BATON_TRY(const auto text, reader_.read_string("a text of an array", kStringBytesMax));
      to.push_back(text);
    }
    return {};
  }

  Status alignment() {
    const GgufValue* value = into_.gguf.find("general.alignment");
    if (value == nullptr) return {};
    BATON_TRY(const auto found, into_.gguf.unsigned_integer("general.alignment"));
    if (!std::has_single_bit(*found) || *found > kAlignmentMax) {
      return fail(Code::kCorrupt, fmt::format("key 'general.alignment' is {}, but must be a power of two up to {}",
                                              *found, kAlignmentMax));
    }
    alignment_ = *found;
    return {};
  }

  Status tensor() {
    const uint64_t start = reader_.offset();
    Declared declared{};
    declared.info_offset = start;
    BATON_TRY(declared.view.name, reader_.read_string("a tensor's name", gguf::kTensorNameBytesMax));
    const std::string_view name = declared.view.name;
    if (!is_name(name))
      return corrupt(start, "a tensor name that is empty or holds control characters or invalid UTF-8");
    BATON_TRY(const auto dims, reader_.read<uint32_t>("a tensor's dimension count"));
    if (dims < 1 || dims > 4) return corrupt(start, "tensor '{}' has {} dimensions; 1 to 4 are allowed", name, dims);
    declared.view.shape.resize(dims);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      BATON_TRY(const auto length, reader_.read<uint64_t>("a tensor's dimension"));
      declared.view.shape[dims - 1 - i] = length;
      if (length == 0) return corrupt(start, "tensor '{}' has a dimension of zero", name);
      if (!checked_mul(elements, length, &elements) || elements > kElementsMax) {
        return corrupt(start, "tensor '{}' has more than 2^62 elements", name);
      }
    }
    BATON_OK(type(start, elements, declared));
    BATON_TRY(declared.offset, reader_.read<uint64_t>("a tensor's offset"));
    declared_.push_back(std::move(declared));
    return {};
  }

  Status type(uint64_t start, uint64_t elements, Declared& declared) {
    BATON_TRY(const auto id, reader_.read<uint32_t>("a tensor's type"));
    uint64_t block_elements = 0, block_bytes = 0;
    std::string_view type_name;
    if (const Format* format = format_by_ggml_id(id)) {
      declared.view.dtype = format->dtype;
      block_elements = format->block_elements;
      block_bytes = format->block_bytes;
      type_name = format->name;
    } else {
      for (const OtherType& other : kOtherTypes) {
        if (other.id != id) continue;
        block_elements = other.block_elements;
        block_bytes = other.block_bytes;
        type_name = declared.other = other.name;
      }
    }
    if (block_elements == 0) {
      return fail(
          Code::kUnsupported,
          fmt::format("offset {}: tensor '{}' has type {}, which is not a type of ggml that is known here (a private "
                      "or newer format): take a file in a standard format",
                      start, declared.view.name, id));
    }
    const uint64_t row = declared.view.shape.back();
    if (row % block_elements != 0) {
      return corrupt(start, "tensor '{}': rows of {} are not a multiple of {}'s block of {}", declared.view.name, row,
                     type_name, block_elements);
    }
    if (!checked_mul(elements / block_elements, block_bytes, &declared.bytes)) {
      return corrupt(start, "tensor '{}': its size does not fit in 64 bits", declared.view.name);
    }
    return {};
  }

  // Offsets must be the running sum of padded sizes, in listing order: no gap, no overlap, no reordering.
  Status data() {
    if (declared_.empty()) return {};
    uint64_t begin = 0;
    if (!checked_align(reader_.offset(), alignment_, &begin) || begin > bytes_.size()) {
      return corrupt(reader_.offset(), "the file ends before the tensors' data (truncated)");
    }
    const uint64_t available = bytes_.size() - begin;
    uint64_t expected = 0;
    into_.tensors.reserve(into_.tensors.size() + declared_.size());
    into_.index.reserve(into_.index.size() + declared_.size());
    for (Declared& declared : declared_) {
      const std::string_view name = declared.view.name;
      if (declared.offset != expected) {
        return corrupt(declared.info_offset,
                       "tensor '{}' is at {} of the data, but must follow the one before it at {}", name,
                       declared.offset, expected);
      }
      if (declared.offset > available || declared.bytes > available - declared.offset) {
        return corrupt(declared.info_offset,
                       "tensor '{}' needs {} bytes at {} of the data, but the data has only {} (truncated)", name,
                       declared.bytes, declared.offset, available);
      }
      if (!checked_align(declared.offset + declared.bytes, alignment_, &expected)) {
        return corrupt(declared.info_offset, "the tensors' sizes do not fit in 64 bits");
      }
      if (!names_.insert(name).second || into_.index.contains(name)) {
        return corrupt(declared.info_offset, "tensor '{}' occurs twice", name);
      }
      declared.view.data = bytes_.subspan(begin + declared.offset, declared.bytes);
      if (!declared.other.empty()) {
        into_.unreadable.push_back(fmt::format("{}: type {}", name, declared.other));
        continue;
      }
      into_.index.emplace(name, into_.tensors.size());
      into_.tensors.push_back(std::move(declared.view));
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  Container& into_;
  uint64_t tensor_count_ = 0, entry_count_ = 0, array_items_ = 0;
  uint64_t alignment_ = 32;
  std::vector<Declared> declared_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace

Status parse_gguf(std::span<const std::byte> bytes, std::string_view name, Container& into) {
  into.kind = ContainerKind::kGguf;
  if (auto status = Parser(bytes, into).parse(); !status) return fail(std::move(status).error().in(name));
  return {};
}

}  // namespace baton
