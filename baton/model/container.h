// Weight files as they are: a Hugging Face folder (safetensors) or a GGUF file (splits too), mapped, nothing copied.
// The two readers fill the same structure; architectures (arch.h) give the tensors their meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "baton/base/file.h"
#include "baton/quant/format.h"

namespace baton {

using Json = nlohmann::json;

// A tensor in a file. `shape` is outermost first ([out, in] for a matrix) whatever the file's own order.
// `data` may be unaligned. dtype is one of ours; a file's tensor of another type is listed in `unreadable`.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;

  uint64_t elements() const;
};

// A tensor of U32 words, which have a meaning only beside others: the codes of an MLX-quantized matrix (mlx_weights.h).
struct WordsView {
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;  // may be unaligned
};

// A tensor of a type without a decoder, which has a meaning beside others (packed_weights.h).
struct RawView {
  std::string_view type;  // as safetensors writes it: "I32", "F8_E4M3"
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;  // may be unaligned
};

// One GGUF metadata value. Strings and string arrays are views into the mapping.
struct GgufArray;
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<GgufArray>>;
struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>>
      items;
};

class GgufMetadata {
 public:
  // Values of any integer width are accepted; nullopt when absent, an Error when of another kind or out of range.
  Result<std::optional<uint64_t>> unsigned_integer(std::string_view key) const;
  Result<std::optional<double>> real(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  // Null when absent; an Error when not an array.
  Result<const GgufArray*> array(std::string_view key) const;

  // In file order.
  std::vector<std::pair<std::string_view, GgufValue>> entries;
  const GgufValue* find(std::string_view key) const;

  std::unordered_map<std::string_view, size_t> index;  // key -> entry; built by the reader
  // The bytes of each entry behind its key (u32 type, value), as the file has them: for copies that keep every width.
  std::vector<std::span<const std::byte>> raw;
};

enum class ContainerKind { kSafetensors, kGguf };

struct Container {
  ContainerKind kind = ContainerKind::kGguf;
  std::filesystem::path path;                             // as given: the folder or the (first) file
  std::vector<MappedFile> files;                          // everything below points into these
  std::vector<TensorView> tensors;                        // in file order
  std::unordered_map<std::string_view, size_t> index;     // name -> tensors[i]
  std::vector<std::string> unreadable;                    // "name: type I8": tensors whose type has no decoder here
  GgufMetadata gguf;                                      // kGguf
  std::unordered_map<std::string_view, WordsView> words;  // kSafetensors: U32 tensors, by name; not in `tensors`
  std::unordered_map<std::string_view, RawView> raw;      // kSafetensors: those of `unreadable` that are not empty
  std::deque<std::string> owned_names;                    // kSafetensors: what names, index and words point to
  Json config;                                            // kSafetensors: config.json
  Json generation_config;                                 // kSafetensors: generation_config.json or null

  const TensorView* find(std::string_view name) const;
};

// A folder with config.json and safetensors, a .safetensors file beside its config.json, or a .gguf file (the first of
// a split, or any of its parts). Errors name the file and the offset or field. Pickle files (.bin, .pt) are refused by
// name. Memory beside the mapping: at most about 64 MiB for a hostile header, about 10 MiB for the largest vocabulary.
Result<Container> open_container(const std::filesystem::path& path);

// The parsers over bytes, for tests and fuzzers; `name` is used in messages. They never read outside `bytes`.
Status parse_gguf(std::span<const std::byte> bytes, std::string_view name, Container& into);
Status parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Container& into);

}  // namespace baton
