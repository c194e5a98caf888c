// Writing GGUF v3: metadata, tensor table, data at running offsets padded to 32 bytes, as ggml's reader demands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/quant/format.h"

namespace baton {

// Collects metadata and tensor declarations, then streams the file: memory use is one tensor at a time.
class GgufWriter {
 public:
  void put_u32(std::string_view key, uint32_t value);
  void put_i32(std::string_view key, int32_t value);
  void put_u64(std::string_view key, uint64_t value);
  void put_f32(std::string_view key, float value);
  void put_bool(std::string_view key, bool value);
  void put_string(std::string_view key, std::string_view value);
  void put_strings(std::string_view key, const std::vector<std::string_view>& values);
  void put_i32s(std::string_view key, const std::vector<int32_t>& values);
  void put_bools(std::string_view key, const std::vector<bool>& values);
  void put_bytes(std::string_view key, std::string_view values);  // an array of u8
  void put_f32s(std::string_view key, const std::vector<float>& values);

  // An entry of another file: `value` is GgufMetadata::raw, type and value.
  void put_raw(std::string_view key, std::span<const std::byte> value);

  // `shape` outermost first. `produce` is called once, in order of declaration, and returns exactly the tensor's bytes.
  using Produce = std::function<Result<std::vector<std::byte>>()>;
  void add_tensor(std::string name, DType dtype, std::vector<uint64_t> shape, Produce produce);

  // Written to a temporary name, synced, renamed; the bytes of the file. Names and shapes that ggml's reader refuses
  // are an error here.
  // `on_tensor(done, total, name)` reports progress (may be empty).
  using Progress = std::function<void(size_t, size_t, std::string_view)>;
  Result<uint64_t> write(const std::filesystem::path& path, const Progress& on_tensor = {}) const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;
    Produce produce;
  };
  void put(std::string_view key, uint32_t type, std::string_view payload);

  std::vector<std::string> keys_;
  std::string entries_;  // encoded key-value pairs
  std::vector<Tensor> tensors_;
};

}  // namespace baton
