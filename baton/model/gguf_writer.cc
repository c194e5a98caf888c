// GGUF v3: header, keys, tensor table, then data; each tensor's offset is the running sum of sizes padded to 32 bytes.
#include "baton/model/gguf_writer.h"

#include <fmt/format.h>

#include <array>
#include <unordered_set>

#include "baton/base/bytes.h"
#include "baton/base/output_file.h"
#include "baton/model/container_text.h"
#include "baton/model/gguf_types.h"

namespace baton {
namespace {

using enum gguf::ValueType;

constexpr uint64_t kAlignment = 32;

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  store_as(bytes.data(), value);
  return bytes;
}
std::string text(std::string_view value) { return raw<uint64_t>(value.size()).append(value); }

template <class T>
std::string array(uint32_t type, const std::vector<T>& values) {
  std::string bytes = raw<uint32_t>(type) + raw<uint64_t>(values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return bytes;
}

uint64_t padding(uint64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

Status write_text(OutputFile& file, std::string_view bytes) { return file.write(as_bytes(bytes)); }
Status write_padding(OutputFile& file, uint64_t written) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  return file.write(std::span(kZeros).first(padding(written)));
}

// Bytes of a tensor, or why ggml's reader would refuse it.
Result<uint64_t> tensor_bytes(std::string_view name, DType dtype, const std::vector<uint64_t>& shape) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::kInvalidInput, fmt::format("tensor '{}' {}", shown(name), why));
  };
  if (!is_name(name) || name.size() > gguf::kTensorNameBytesMax) return refuse("needs a name of 1 to 63 bytes");
  if (shape.empty() || shape.size() > 4) return refuse("must have 1 to 4 dimensions");
  if (format_of(dtype).ggml_id == kNoGgmlId) {
    return refuse(fmt::format("is {}, which GGUF files cannot hold; write F32, F16, BF16 or Q8_0", to_string(dtype)));
  }
  auto row = row_bytes(dtype, shape.back());
  if (!row) return fail(std::move(row).error().in(fmt::format("tensor '{}'", name)));
  uint64_t bytes = *row;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (!checked_mul(bytes, shape[i], &bytes)) return refuse("does not fit in 64 bits");
  }
  if (bytes == 0) return refuse("has a dimension of zero");
  return bytes;
}

}  // namespace

void GgufWriter::put(std::string_view key, uint32_t type, std::string_view payload) {
  entries_.append(text(key)).append(raw(type)).append(payload);
  keys_.emplace_back(key);
}

void GgufWriter::put_u32(std::string_view key, uint32_t value) { put(key, kU32, raw(value)); }
void GgufWriter::put_i32(std::string_view key, int32_t value) { put(key, kI32, raw(value)); }
void GgufWriter::put_u64(std::string_view key, uint64_t value) { put(key, kU64, raw(value)); }
void GgufWriter::put_f32(std::string_view key, float value) { put(key, kF32, raw(value)); }
void GgufWriter::put_bool(std::string_view key, bool value) { put(key, kBool, raw<uint8_t>(value ? 1 : 0)); }
void GgufWriter::put_string(std::string_view key, std::string_view value) { put(key, kString, text(value)); }

void GgufWriter::put_strings(std::string_view key, const std::vector<std::string_view>& values) {
  std::string payload = raw<uint32_t>(kString) + raw<uint64_t>(values.size());
  for (const std::string_view value : values) payload.append(text(value));
  put(key, kArray, payload);
}
void GgufWriter::put_i32s(std::string_view key, const std::vector<int32_t>& values) {
  put(key, kArray, array(kI32, values));
}
void GgufWriter::put_bools(std::string_view key, const std::vector<bool>& values) {
  put(key, kArray, array(kBool, std::vector<uint8_t>(values.begin(), values.end())));
}
void GgufWriter::put_bytes(std::string_view key, std::string_view values) {
  put(key, kArray, array(kU8, std::vector<uint8_t>(values.begin(), values.end())));
}
void GgufWriter::put_f32s(std::string_view key, const std::vector<float>& values) {
  put(key, kArray, array(kF32, values));
}

void GgufWriter::put_raw(std::string_view key, std::span<const std::byte> value) {
  entries_.append(text(key)).append(as_text(value));
  keys_.emplace_back(key);
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::vector<uint64_t> shape, Produce produce) {
  tensors_.push_back({std::move(name), dtype, std::move(shape), std::move(produce)});
}

Result<uint64_t> GgufWriter::write(const std::filesystem::path& path, const Progress& on_tensor) const {
  std::unordered_set<std::string_view> names;
  for (const std::string& key : keys_) {
    if (!is_name(key) || !names.insert(key).second) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: key '{}' is empty, not text, or there twice", path.string(), shown(key)));
    }
  }
  names.clear();
  std::string head = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(tensors_.size()) + raw<uint64_t>(keys_.size());
  head.append(entries_);
  std::vector<uint64_t> sizes;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    BATON_TRY(const uint64_t bytes, tensor_bytes(tensor.name, tensor.dtype, tensor.shape));
    if (!names.insert(tensor.name).second)
      return fail(Code::kInvalidInput, fmt::format("tensor '{}' is there twice", tensor.name));
    head.append(text(tensor.name)).append(raw(static_cast<uint32_t>(tensor.shape.size())));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) head.append(raw(*dim));
    head.append(raw(format_of(tensor.dtype).ggml_id)).append(raw(offset));
    sizes.push_back(bytes);
    if (!checked_add(offset, bytes, &offset) || !checked_align(offset, kAlignment, &offset)) {
      return fail(Code::kInvalidInput, fmt::format("{}: the tensors do not fit in 64 bits", path.string()));
    }
  }
  BATON_TRY(OutputFile file, OutputFile::create(path));
  BATON_OK(write_text(file, head));
  BATON_OK(write_padding(file, head.size()));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    auto bytes = tensors_[i].produce();
    if (!bytes) return fail(std::move(bytes).error().in(fmt::format("tensor '{}'", tensors_[i].name)));
    if (bytes->size() != sizes[i]) {
      return fail(Code::kInternal, fmt::format("tensor '{}' came as {} bytes, declared as {}", tensors_[i].name,
                                               bytes->size(), sizes[i]));
    }
    BATON_OK(file.write(*bytes));
    BATON_OK(write_padding(file, sizes[i]));
    if (on_tensor) on_tensor(i + 1, tensors_.size(), tensors_[i].name);
  }
  BATON_OK(file.commit());
  return head.size() + padding(head.size()) + offset;
}

}  // namespace baton
