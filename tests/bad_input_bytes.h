// Builds GGUF and safetensors bytes field by field, right or wrong, without the product's own writer: for tests of what
// the readers refuse, and seeds of their fuzz targets.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::test {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
// u64 length and the bytes.
inline std::string gguf_text(std::string_view text) { return raw<uint64_t>(text.size()).append(text); }

// One file. The defaults are right; every number can be overridden.
struct GgufBytes {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count, entry_count;  // default: as added
  uint64_t alignment = 32;                            // of the data section and the automatic offsets
  std::string entries, tensors, data;
  uint64_t entries_added = 0, tensors_added = 0, next_offset = 0;

  GgufBytes& entry(std::string_view key, uint32_t type, std::string_view payload) {
    entries.append(gguf_text(key)).append(raw(type)).append(payload);
    ++entries_added;
    return *this;
  }
  GgufBytes& u32(std::string_view key, uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBytes& text(std::string_view key, std::string_view value) { return entry(key, 8, gguf_text(value)); }
  GgufBytes& array(std::string_view key, uint32_t type, uint64_t count, std::string_view payload) {
    return entry(key, 9, raw(type).append(raw(count)).append(payload));
  }
  // `dims` innermost first, as in the file; `bytes` of zeros follow in the data. Default offset: the right one.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t bytes,
                    std::optional<uint64_t> offset = {}) {
    tensors.append(gguf_text(name)).append(raw(static_cast<uint32_t>(dims.size())));
    for (const uint64_t dim : dims) tensors.append(raw(dim));
    tensors.append(raw(type)).append(raw(offset.value_or(next_offset)));
    ++tensors_added;
    data.resize(next_offset + bytes);
    next_offset = (next_offset + bytes + alignment - 1) / alignment * alignment;
    return *this;
  }
  std::string bytes() const {
    std::string out = magic + raw(version) + raw(tensor_count.value_or(tensors_added)) +
                      raw(entry_count.value_or(entries_added)) + entries + tensors;
    if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

// A header of any length field, and data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::optional<uint64_t> header_length = {}) {
  return raw<uint64_t>(header_length.value_or(header.size())).append(header).append(data);
}

// {"name": {"dtype": ..., "shape": ..., "data_offsets": ...}} from JSON pieces.
inline std::string tensor_json(std::string_view name, std::string_view dtype, std::string_view shape,
                               std::string_view offsets) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":").append(shape);
  return text.append(",\"data_offsets\":").append(offsets).append("}");
}

}  // namespace baton::test
