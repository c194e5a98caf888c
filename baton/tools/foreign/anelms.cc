// ANELMS, version 1, little-endian:
//   "ANELMS\0\0" | u32 version, num_layers, hidden, vocab, num_kv_heads, head_dim, lin_num_val_heads,
//   lin_num_key_heads, lin_key_dim, lin_val_dim, lin_qkv_dim, conv_kernel, kv_capacity, n_prompt          (64 bytes)
//   per layer: u32 type
//     0: u32 conv_pos | f32 state[Hv][Dk][Dv] | f32 conv[C][K - 1], a ring whose oldest column is conv_pos
//     1: u32 kv_len, kv_start | f32 k[capacity][Hkv][D] | f32 v[capacity][Hkv][D], rings from kv_start
//   f32 logits[vocab] after the last token
#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/tools/foreign/formats.h"

namespace baton::foreign {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kLinearLayer = 0, kFullLayer = 1;

struct Header {
  Shape shape;
  uint64_t kv_capacity = 0, n_prompt = 0;
};

// Name and place of each figure behind the version.
struct AnelmsFigure {
  std::string_view name;
  uint64_t* value;
};
std::vector<AnelmsFigure> figures(Header& header) {
  Shape& shape = header.shape;
  return {{"num_layers", &shape.num_layers},
          {"hidden", &shape.hidden},
          {"vocab", &shape.vocab},
          {"num_kv_heads", &shape.num_kv_heads},
          {"head_dim", &shape.head_dim},
          {"lin_num_val_heads", &shape.lin_num_val_heads},
          {"lin_num_key_heads", &shape.lin_num_key_heads},
          {"lin_key_dim", &shape.lin_key_dim},
          {"lin_val_dim", &shape.lin_val_dim},
          {"lin_qkv_dim", &shape.lin_qkv_dim},
          {"conv_kernel", &shape.conv_kernel},
          {"kv_capacity", &header.kv_capacity},
          {"n_prompt", &header.n_prompt}};
}

tl::unexpected<Error> damaged(uint64_t offset, std::string why) {
  return fail(Code::kCorrupt, fmt::format("ANELMS: offset {}: {}", offset, why));
}

// Bytes of f32 values, refused when the product does not fit.
Result<std::span<const std::byte>> take_floats(ByteReader& reader, std::initializer_list<uint64_t> dims,
                                               std::string_view what) {
  uint64_t bytes = sizeof(float);
  for (const uint64_t dim : dims) {
    if (!checked_mul(bytes, dim, &bytes)) return damaged(reader.offset(), fmt::format("{} is too large", what));
  }
  return reader.take(bytes, what);
}

Status read_linear(ByteReader& reader, int32_t layer, const Shape& shape, ForeignState& state) {
  const uint64_t at = reader.offset();
  BATON_TRY(const auto oldest, reader.read<uint32_t>(fmt::format("layer {} conv_pos", layer)));
  if (shape.conv_kernel < 2)
    return damaged(at, fmt::format("layer {} is linear, conv_kernel is {}", layer, shape.conv_kernel));
  if (oldest >= shape.conv_kernel - 1)
    return damaged(at, fmt::format("layer {} conv_pos {} of {} columns", layer, oldest, shape.conv_kernel - 1));
  BATON_TRY(const auto recurrent, take_floats(reader, {shape.lin_num_val_heads, shape.lin_key_dim, shape.lin_val_dim},
                                              fmt::format("layer {} state", layer)));
  BATON_TRY(const auto conv,
            take_floats(reader, {shape.lin_qkv_dim, shape.conv_kernel - 1}, fmt::format("layer {} conv", layer)));
  state.sections.push_back(conv_section(layer, shape, oldest, conv));
  state.sections.push_back(recurrent_section(layer, shape, recurrent));
  return {};
}

Status read_full(ByteReader& reader, int32_t layer, const Header& header, ForeignState& state) {
  const uint64_t at = reader.offset();
  BATON_TRY(const auto length, reader.read<uint32_t>(fmt::format("layer {} kv_len", layer)));
  BATON_TRY(const auto start, reader.read<uint32_t>(fmt::format("layer {} kv_start", layer)));
  if (length > header.kv_capacity)
    return damaged(at, fmt::format("layer {} kv_len {}, kv_capacity {}", layer, length, header.kv_capacity));
  if (start >= header.kv_capacity)
    return damaged(at + 4, fmt::format("layer {} kv_start {}, kv_capacity {}", layer, start, header.kv_capacity));
  const Shape& shape = header.shape;
  for (const SlotKind kind : {SlotKind::kKeys, SlotKind::kValues}) {
    BATON_TRY(const auto values,
              take_floats(reader, {header.kv_capacity, shape.num_kv_heads, shape.head_dim}, segment_name(kind, layer)));
    state.sections.push_back(rows_section(kind, layer, shape, length, start, header.kv_capacity, values));
  }
  return {};
}

}  // namespace

Result<ForeignState> parse_anelms(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kAnelmsMagic.size());
  BATON_TRY(const auto version, reader.read<uint32_t>("ANELMS version"));
  if (version != kVersion) return fail(Code::kUnsupported, fmt::format("ANELMS: version {}; only 1 is known", version));
  Header header;
  ForeignState state;
  state.format = ForeignFormat::kAnelms;
  for (const AnelmsFigure& figure : figures(header)) {
    const uint64_t at = reader.offset();
    BATON_TRY(const auto value, reader.read<uint32_t>(figure.name));
    const uint64_t most = figure.name == "num_layers" ? kLayersAtMost : (figure.name == "vocab" ? 1 << 24 : kFigureMax);
    if (value > most) return damaged(at, fmt::format("{} is {}, more than {}", figure.name, value, most));
    *figure.value = value;
    state.facts.emplace_back(figure.name, value);
  }
  state.position = header.n_prompt;
  state.layers = header.shape.num_layers;
  for (uint64_t i = 0; i < state.layers; ++i) {
    const auto layer = static_cast<int32_t>(i);
    const uint64_t at = reader.offset();
    BATON_TRY(const auto type, reader.read<uint32_t>(fmt::format("layer {} type", layer)));
    if (type != kLinearLayer && type != kFullLayer)
      return damaged(at, fmt::format("layer {} type {}; 0 or 1 expected", layer, type));
    BATON_OK(type == kLinearLayer ? read_linear(reader, layer, header.shape, state)
                                  : read_full(reader, layer, header, state));
  }
  BATON_TRY(state.logits, take_floats(reader, {header.shape.vocab}, "logits"));
  if (reader.remaining() != 0)
    return damaged(reader.offset(), fmt::format("{} bytes behind the logits", reader.remaining()));
  return state;
}

Result<std::vector<std::byte>> write_anelms(const PlainState& state, const Shape& shape, uint64_t kv_capacity) {
  if (state.position > kv_capacity || kv_capacity > kFigureMax) {
    return fail(Code::kUnsupported,
                fmt::format("ANELMS: {} tokens and a capacity of {} rows; the format keeps the last "
                            "rows only, and at most {} here",
                            state.position, kv_capacity, kFigureMax));
  }
  if (state.logits.size() != shape.vocab) {
    return fail(Code::kInvalidInput,
                fmt::format("ANELMS ends with the logits behind the last token: {} values given, {} needed",
                            state.logits.size(), shape.vocab));
  }
  BATON_TRY(const auto layers, by_layer(state));
  Header header{shape, kv_capacity, state.position};
  std::vector<std::byte> out;
  append_text(out, kAnelmsMagic);
  append(out, kVersion);
  for (const AnelmsFigure& figure : figures(header)) append(out, static_cast<uint32_t>(*figure.value));
  for (const LayerSections& layer : layers) {
    append(out, layer.full ? kFullLayer : kLinearLayer);
    if (layer.full) {
      append(out, static_cast<uint32_t>(state.position));
      append(out, uint32_t{0});  // kv_start
      append_rows(state, layer.first, kv_capacity, out);
      append_rows(state, layer.second, kv_capacity, out);
    } else {
      append(out, uint32_t{0});  // conv_pos
      append_recurrent(state, layer.second, out);
      append_conv(state, layer.first, out);
    }
  }
  for (const float logit : state.logits) append(out, logit);
  return out;
}

}  // namespace baton::foreign
