// safetensors. Layout: u64 header bytes; JSON header {name: {dtype, shape, data_offsets: [begin, end)}}, "__metadata__"
// {string: string} or null; data, row-major, offsets from the byte after the header. The data must be covered without
// holes.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "baton/base/bytes.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // by the format
constexpr size_t kTensorEntriesMax = 1 << 18;
constexpr size_t kDimsMax = 8;
constexpr size_t kNameBytesMax = 1024;
constexpr uint64_t kEntryElementsMax = uint64_t{1} << 59;  // times 8 bytes fits

struct FileType {
  std::string_view name;
  uint32_t bits;
  const char* ours;  // format name, or null when there is no decoder
};
constexpr FileType kFileTypes[] = {
    {"F32", 32, "F32"},      {"F16", 16, "F16"},      {"BF16", 16, "BF16"},    {"F64", 64, nullptr},
    {"I64", 64, nullptr},    {"I32", 32, nullptr},    {"I16", 16, nullptr},    {"I8", 8, nullptr},
    {"U64", 64, nullptr},    {"U32", 32, nullptr},    {"U16", 16, nullptr},    {"U8", 8, nullptr},
    {"BOOL", 8, nullptr},    {"F8_E4M3", 8, nullptr}, {"F8_E5M2", 8, nullptr}, {"F8_E8M0", 8, nullptr},
    {"F6_E2M3", 6, nullptr}, {"F6_E3M2", 6, nullptr}, {"F4", 4, nullptr},      {"C64", 64, nullptr},
};

struct Declared {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Collects the declarations as the header is read, without building a tree; stops at the first thing out of place.
// Nesting is at most three deep by construction, so hostile depth ends at once.
class HeaderSax {
 public:
  std::vector<Declared> tensors;
  std::string problem;

  // MLX writes "__metadata__": null when it has none.
  bool null() {
    if (place_ != Place::kTop || current_.name != "__metadata__") return wrong("null");
    current_ = {};
    return true;
  }
  bool boolean(bool) { return wrong("a boolean"); }
  bool number_integer(int64_t value) { return wrong(fmt::format("{}", value)); }
  bool number_float(double, const std::string& text) { return wrong(shown(text)); }
  bool binary(Json::binary_t&) { return wrong("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (list_ == nullptr) return wrong(fmt::format("{}", value));
    if (list_->size() >= list_max_) return stop(fmt::format("more than {} numbers", list_max_));
    list_->push_back(value);
    return true;
  }
  bool string(std::string& text) {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") return wrong("a text");
    current_.dtype = std::move(text);
    return true;
  }
  bool start_object(size_t) {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return wrong("an object");
    place_ = current_.name == "__metadata__" ? Place::kMetadata : Place::kTensor;
    return true;
  }
  bool end_object() {
    if (place_ == Place::kTensor) {
      if (!current_.has_dtype || !current_.has_shape || !current_.has_offsets) {
        return stop("needs dtype, shape and data_offsets");
      }
      if (current_.offsets.size() != 2) return stop("data_offsets must be two numbers");
      if (tensors.size() >= kTensorEntriesMax) return stop(fmt::format("more than {} tensors", kTensorEntriesMax));
      tensors.push_back(std::move(current_));
    }
    place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
    current_ = {};
    field_.clear();
    return true;
  }
  bool key(std::string& text) {
    if (place_ == Place::kMetadata) return true;
    if (place_ == Place::kTop) {
      if (text.size() > kNameBytesMax || !is_name(text))
        return stop("a name that is empty, too long or has control characters");
      if (!names_.insert(text).second) return stop(fmt::format("'{}' occurs twice", shown(text)));
      current_ = {};
      current_.name = std::move(text);
      return true;
    }
    field_ = std::move(text);
    bool* seen = field_ == "dtype"          ? &current_.has_dtype
                 : field_ == "shape"        ? &current_.has_shape
                 : field_ == "data_offsets" ? &current_.has_offsets
                                            : nullptr;
    if (seen == nullptr) return stop(fmt::format("unknown field '{}'", shown(field_)));
    if (*seen) return stop(fmt::format("field '{}' occurs twice", field_));
    return *seen = true;
  }
  bool start_array(size_t) {
    if (place_ != Place::kTensor || list_ != nullptr || (field_ != "shape" && field_ != "data_offsets")) {
      return wrong("an array");
    }
    list_ = field_ == "shape" ? &current_.shape : &current_.offsets;
    list_max_ = field_ == "shape" ? kDimsMax : 2;
    return true;
  }
  bool end_array() {
    list_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    return stop(fmt::format("not valid JSON at {}: {}", position, shown(error.what())));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor };

  bool wrong(std::string_view found) {
    return stop(fmt::format("{} is out of place{}{}", found, field_.empty() ? "" : " in ", field_));
  }
  bool stop(std::string text) {
    problem = current_.name.empty() ? std::move(text) : fmt::format("tensor '{}': {}", shown(current_.name), text);
    return false;
  }

  Place place_ = Place::kOutside;
  Declared current_;
  std::string field_;
  std::vector<uint64_t>* list_ = nullptr;
  size_t list_max_ = 0;
  std::unordered_set<std::string> names_;
};

template <class... Args>
tl::unexpected<Error> corrupt(fmt::format_string<Args...> text, Args&&... args) {
  return fail(Code::kCorrupt, fmt::format(text, std::forward<Args>(args)...));
}

Result<std::vector<Declared>> read_header(std::span<const std::byte> bytes, uint64_t* data_begin) {
  ByteReader reader(bytes);
  BATON_TRY(const auto length, reader.read<uint64_t>("the header length"));
  if (length > kHeaderBytesMax) {
    return corrupt("the header length is {}, more than the {} a safetensors file may have", length, kHeaderBytesMax);
  }
  if (length > reader.remaining()) {
    return corrupt("the header length is {}, but {} bytes remain (truncated?)", length, reader.remaining());
  }
  BATON_TRY(const auto header, reader.take(length, "the header"));
  const std::string_view text = as_text(header);
  if (text.empty() || text[0] != '{') return corrupt("the header does not begin with '{{': not a safetensors file");
  HeaderSax sax;
  if (!Json::sax_parse(text.begin(), text.end(), &sax)) return corrupt("header: {}", sax.problem);
  *data_begin = reader.offset();
  return std::move(sax.tensors);
}

// Bytes of a tensor by its type and shape.
Result<uint64_t> declared_bytes(const Declared& tensor, const FileType& type) {
  uint64_t elements = 1;
  for (const uint64_t length : tensor.shape) {
    if (!checked_mul(elements, length, &elements) || elements > kEntryElementsMax) {
      return corrupt("tensor '{}': its shape has more than 2^59 elements", tensor.name);
    }
  }
  uint64_t bits = 0;
  if (!checked_mul<uint64_t>(elements, type.bits, &bits)) {
    return corrupt("tensor '{}': its size does not fit in 64 bits", tensor.name);
  }
  if (bits % 8 != 0) return corrupt("tensor '{}': {} bits are not whole bytes", tensor.name, bits);
  return bits / 8;
}

Status parse(std::span<const std::byte> bytes, Container& into) {
  uint64_t data_begin = 0;
  BATON_TRY(auto declared, read_header(bytes, &data_begin));
  const auto data = bytes.subspan(data_begin);
  std::sort(declared.begin(), declared.end(),
            [](const Declared& a, const Declared& b) { return a.offsets < b.offsets; });
  uint64_t expected = 0;
  for (Declared& tensor : declared) {
    const auto type = std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                                   [&](const FileType& known) { return known.name == tensor.dtype; });
    if (type == std::end(kFileTypes)) {
      return fail(Code::kUnsupported,
                  fmt::format("tensor '{}': dtype '{}' is unknown", tensor.name, shown(tensor.dtype)));
    }
    const uint64_t begin = tensor.offsets[0], end = tensor.offsets[1];
    if (begin > end) return corrupt("tensor '{}': data_offsets {} and {} are reversed", tensor.name, begin, end);
    if (end > data.size()) {
      return corrupt("tensor '{}': data_offsets end at {}, but there are {} bytes of data (truncated?)", tensor.name,
                     end, data.size());
    }
    if (begin != expected) {
      return corrupt("tensor '{}': begins at {}, {} the tensor before it, which ends at {}", tensor.name, begin,
                     begin < expected ? "overlapping" : "leaving a hole after", expected);
    }
    expected = end;
    BATON_TRY(const uint64_t size, declared_bytes(tensor, *type));
    if (size != end - begin) {
      return corrupt("tensor '{}': its shape and dtype take {} bytes, but data_offsets give {}", tensor.name, size,
                     end - begin);
    }
    const std::string_view name = into.owned_names.emplace_back(std::move(tensor.name));
    if (into.index.contains(name) || into.words.contains(name)) {
      return corrupt("tensor '{}' occurs in another file of this model too", name);
    }
    if (type->name == "U32" && size != 0) {
      into.words.emplace(name, WordsView{std::move(tensor.shape), data.subspan(begin, size)});
      continue;
    }
    if (type->ours == nullptr || size == 0) {
      if (size != 0) into.raw.emplace(name, RawView{type->name, std::move(tensor.shape), data.subspan(begin, size)});
      into.unreadable.push_back(fmt::format("{}: {}{}", name, size == 0 ? "empty, type " : "type ", type->name));
      continue;
    }
    into.index.emplace(name, into.tensors.size());
    into.tensors.push_back(
        {name, format_by_name(type->ours)->dtype, std::move(tensor.shape), data.subspan(begin, size)});
  }
  if (expected != data.size()) {
    return corrupt("{} bytes after the last tensor belong to none", data.size() - expected);
  }
  return {};
}

}  // namespace

Status parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Container& into) {
  into.kind = ContainerKind::kSafetensors;
  if (auto status = parse(bytes, into); !status) return fail(std::move(status).error().in(name));
  return {};
}

}  // namespace baton
