// The three file formats, private to baton/state: a parser and a writer each. Writers get sections that are already in
// the files' order of heads.
#pragma once

#include <nlohmann/json.hpp>

#include "baton/tools/foreign.h"

namespace baton::foreign {

inline constexpr std::string_view kAnelmsMagic{"ANELMS\0\0", 8};
inline constexpr std::string_view kAnelmCacheMagic{"ANELM_CACHE\n\0\0\0\0", 16};

// Hyper-parameters that the headers hold, named as there.
struct Shape {
  uint64_t num_layers = 0, hidden = 0, vocab = 0, num_kv_heads = 0, head_dim = 0;
  uint64_t lin_num_val_heads = 0, lin_num_key_heads = 0, lin_key_dim = 0, lin_val_dim = 0, lin_qkv_dim = 0;
  uint64_t conv_kernel = 0;
};
Shape shape_of(const Model& model);

// Bounds that keep every product of two or three figures inside 64 bits; larger figures are damage.
inline constexpr uint64_t kFigureMax = 1 << 20;
inline constexpr uint64_t kLayersAtMost = 1 << 16;

Result<ForeignState> parse_anelms(std::span<const std::byte> bytes);
Result<ForeignState> parse_anelm_cache(std::span<const std::byte> bytes);
Result<ForeignState> parse_mlx(std::span<const std::byte> bytes);

// Sections of `state` by layer: index of convolution and recurrent, or of keys and values. kUnsupported for a layer
// with other slots.
struct LayerSections {
  bool full = false;
  size_t first = 0, second = 0;
};
Result<std::vector<LayerSections>> by_layer(const PlainState& state);

Result<std::vector<std::byte>> write_anelms(const PlainState& state, const Shape& shape, uint64_t kv_capacity);
Result<std::vector<std::byte>> write_anelm_cache(const PlainState& state, const Shape& shape);
Result<std::vector<std::byte>> write_mlx(const PlainState& state, std::optional<DType> type);

// The two formats of ANE-LM write the same arrays: conv [channels][columns] and state [heads][key][value], all f32, of
// `state` section `index`; keys and values as [tokens][heads][dim], then zeros up to `rows` tokens.
void append_conv(const PlainState& state, size_t index, std::vector<std::byte>& out);
void append_recurrent(const PlainState& state, size_t index, std::vector<std::byte>& out);
void append_rows(const PlainState& state, size_t index, uint64_t rows, std::vector<std::byte>& out);
ForeignSection conv_section(int32_t layer, const Shape& shape, uint64_t oldest, std::span<const std::byte> bytes);
ForeignSection recurrent_section(int32_t layer, const Shape& shape, std::span<const std::byte> bytes);
ForeignSection rows_section(SlotKind kind, int32_t layer, const Shape& shape, uint64_t tokens, uint64_t start,
                            uint64_t rows, std::span<const std::byte> bytes);

template <class T>
void append(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}
inline void append_text(std::vector<std::byte>& out, std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), bytes, bytes + text.size());
}

// One value of a state's type, as f32 and back (round to nearest even).
float value_from(const std::byte* at, DType type);
void value_to(std::byte* at, DType type, float value);

}  // namespace baton::foreign
