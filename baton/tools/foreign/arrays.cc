// The arrays that the two formats of ANE-LM share, and values of a state's types.
#include <fmt/format.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/state/values.h"
#include "baton/tools/foreign/formats.h"

namespace baton::foreign {

float value_from(const std::byte* at, DType type) {
  if (type == DType::kF32) return load_as<float>(at);
  return type == DType::kF16 ? f16_to_f32(load_as<uint16_t>(at)) : bf16_to_f32(load_as<uint16_t>(at));
}

void value_to(std::byte* at, DType type, float value) {
  if (type == DType::kF32) return store_as<float>(at, value);
  store_as<uint16_t>(at, type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
}

Shape shape_of(const Model& model) {
  const ModelSpec& spec = model.spec;
  const auto figure = [](int64_t value) { return static_cast<uint64_t>(value); };
  Shape shape;
  shape.num_layers = figure(spec.layers);
  shape.hidden = figure(spec.hidden);
  shape.vocab = figure(spec.vocab);
  shape.num_kv_heads = figure(spec.kv_heads);
  shape.head_dim = figure(spec.head_dim);
  shape.lin_num_val_heads = figure(spec.linear_value_heads);
  shape.lin_num_key_heads = figure(spec.linear_key_heads);
  shape.lin_key_dim = figure(spec.linear_key_dim);
  shape.lin_val_dim = figure(spec.linear_value_dim);
  shape.lin_qkv_dim = 2 * shape.lin_num_key_heads * shape.lin_key_dim + shape.lin_num_val_heads * shape.lin_val_dim;
  shape.conv_kernel = figure(spec.conv_taps);
  return shape;
}

Result<std::vector<LayerSections>> by_layer(const PlainState& state) {
  const auto& segments = state.shape.segments;
  std::vector<LayerSections> layers;
  for (size_t i = 0; i < segments.size(); i += 2) {
    const auto layer = static_cast<int32_t>(layers.size());
    const bool pair = i + 1 < segments.size() && segments[i].layer == layer && segments[i + 1].layer == layer;
    const bool full = pair && segments[i].kind == SlotKind::kKeys && segments[i + 1].kind == SlotKind::kValues;
    const bool linear = pair && segments[i].kind == SlotKind::kConv && segments[i + 1].kind == SlotKind::kRecurrent;
    if (!full && !linear) {
      return fail(Code::kUnsupported,
                  fmt::format("layer {} keeps neither keys and values nor convolution and recurrent state; no file of "
                              "another project can hold it",
                              layer));
    }
    layers.push_back({full, i, i + 1});
  }
  return layers;
}

void append_conv(const PlainState& state, size_t index, std::vector<std::byte>& out) {
  const Dims& dims = state.shape.segments[index].dims;  // [1, columns, channels], oldest column first
  const auto* values = state.sections[index].data();
  for (uint64_t channel = 0; channel < dims[2]; ++channel) {
    for (uint64_t column = 0; column < dims[1]; ++column) {
      append(out, load_as<float>(values + (column * dims[2] + channel) * 4));
    }
  }
}

void append_recurrent(const PlainState& state, size_t index, std::vector<std::byte>& out) {
  out.insert(out.end(), state.sections[index].begin(), state.sections[index].end());
}

void append_rows(const PlainState& state, size_t index, uint64_t rows, std::vector<std::byte>& out) {
  const Segment& segment = state.shape.segments[index];  // [heads, tokens, dim]
  const Dims& dims = segment.dims;
  const uint64_t width = value_bytes(segment.dtype);
  const auto* values = state.sections[index].data();
  for (uint64_t token = 0; token < dims[1]; ++token) {
    for (uint64_t head = 0; head < dims[0]; ++head) {
      for (uint64_t i = 0; i < dims[2]; ++i) {
        append(out, value_from(values + ((head * dims[1] + token) * dims[2] + i) * width, segment.dtype));
      }
    }
  }
  out.resize(out.size() + (rows - dims[1]) * dims[0] * dims[2] * sizeof(float));
}

ForeignSection conv_section(int32_t layer, const Shape& shape, uint64_t oldest, std::span<const std::byte> bytes) {
  const uint64_t columns = shape.conv_kernel - 1;
  return {
      SlotKind::kConv, layer,   DType::kF32, {1, columns, shape.lin_qkv_dim}, {shape.lin_qkv_dim * columns, 1, columns},
      oldest,          columns, bytes};
}

ForeignSection recurrent_section(int32_t layer, const Shape& shape, std::span<const std::byte> bytes) {
  return {SlotKind::kRecurrent,
          layer,
          DType::kF32,
          {shape.lin_num_val_heads, shape.lin_key_dim, shape.lin_val_dim},
          {shape.lin_key_dim * shape.lin_val_dim, shape.lin_val_dim, 1},
          0,
          shape.lin_key_dim,
          bytes};
}

ForeignSection rows_section(SlotKind kind, int32_t layer, const Shape& shape, uint64_t tokens, uint64_t start,
                            uint64_t rows, std::span<const std::byte> bytes) {
  return {kind,
          layer,
          DType::kF32,
          {shape.num_kv_heads, tokens, shape.head_dim},
          {shape.head_dim, shape.num_kv_heads * shape.head_dim, 1},
          start,
          rows,
          bytes};
}

}  // namespace baton::foreign
