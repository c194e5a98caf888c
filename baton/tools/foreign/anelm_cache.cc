// ANELM_CACHE, little-endian:
//   "ANELM_CACHE\n" and 4 zero bytes | u32 bytes of JSON | JSON {num_layers, prompt_len, num_kv_heads, head_dim,
//   lin_num_val_heads, lin_key_dim, lin_val_dim, lin_qkv_dim, conv_kernel}
//   per layer: u8 type
//     0: i32 conv_pos | f32 conv[C][K - 1], a ring whose oldest column is conv_pos | f32 state[Hv][Dk][Dv]
//     1: f32 k[prompt_len][Hkv][D] | f32 v[prompt_len][Hkv][D]
#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/model/container.h"
#include "baton/tools/foreign/formats.h"

namespace baton::foreign {
namespace {

constexpr uint64_t kJsonBytesMax = 64 * 1024;
constexpr uint8_t kLinear = 0, kFull = 1;

struct Figure {
  const char* name;
  uint64_t* value;
};
std::vector<Figure> figures(Shape& shape, uint64_t& prompt_len) {
  return {{"num_layers", &shape.num_layers},
          {"prompt_len", &prompt_len},
          {"num_kv_heads", &shape.num_kv_heads},
          {"head_dim", &shape.head_dim},
          {"lin_num_val_heads", &shape.lin_num_val_heads},
          {"lin_key_dim", &shape.lin_key_dim},
          {"lin_val_dim", &shape.lin_val_dim},
          {"lin_qkv_dim", &shape.lin_qkv_dim},
          {"conv_kernel", &shape.conv_kernel}};
}

tl::unexpected<Error> damaged(std::string why) { return fail(Code::kCorrupt, "ANELM_CACHE: " + why); }

Result<Json> read_header(ByteReader& reader) {
  BATON_TRY(const auto json_bytes, reader.read<uint32_t>("ANELM_CACHE length of JSON"));
  if (json_bytes > kJsonBytesMax)
    return damaged(fmt::format("JSON of {} bytes, more than {}", json_bytes, kJsonBytesMax));
  BATON_TRY(const auto text, reader.take(json_bytes, "ANELM_CACHE JSON"));
  Json json = Json::parse(as_text(text), nullptr, false);
  if (!json.is_object()) return damaged("the JSON at offset 20 is not an object");
  return json;
}

}  // namespace

Result<ForeignState> parse_anelm_cache(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kAnelmCacheMagic.size());
  BATON_TRY(const Json json, read_header(reader));
  ForeignState state;
  state.format = ForeignFormat::kAnelmCache;
  Shape shape;
  for (const Figure& figure : figures(shape, state.position)) {
    const auto found = json.find(figure.name);
    if (found == json.end() || !found->is_number_unsigned())
      return damaged(fmt::format("field '{}' is missing or not a whole number", figure.name));
    *figure.value = found->get<uint64_t>();
    if (*figure.value > kFigureMax || (figure.value == &shape.num_layers && *figure.value > kLayersAtMost))
      return damaged(fmt::format("{} is {}, too large", figure.name, *figure.value));
    state.facts.emplace_back(figure.name, *figure.value);
  }
  state.layers = shape.num_layers;
  // Figures are at most 2^20: products of three fit with the 4 bytes of a value.
  const uint64_t recurrent_bytes = shape.lin_num_val_heads * shape.lin_key_dim * shape.lin_val_dim * sizeof(float);
  const uint64_t rows_bytes = state.position * shape.num_kv_heads * shape.head_dim * sizeof(float);
  for (uint64_t i = 0; i < state.layers; ++i) {
    const auto layer = static_cast<int32_t>(i);
    const uint64_t at = reader.offset();
    BATON_TRY(const auto type, reader.read<uint8_t>(fmt::format("layer {} type", layer)));
    if (type == kFull) {
      for (const SlotKind kind : {SlotKind::kKeys, SlotKind::kValues}) {
        BATON_TRY(const auto values, reader.take(rows_bytes, segment_name(kind, layer)));
        state.sections.push_back(
            rows_section(kind, layer, shape, state.position, 0, std::max<uint64_t>(state.position, 1), values));
      }
      continue;
    }
    if (type != kLinear) return damaged(fmt::format("offset {}: layer {} type {}; 0 or 1 expected", at, layer, type));
    BATON_TRY(const auto oldest, reader.read<int32_t>(fmt::format("layer {} conv_pos", layer)));
    if (shape.conv_kernel < 2)
      return damaged(fmt::format("layer {} is linear, conv_kernel is {}", layer, shape.conv_kernel));
    if (oldest < 0 || static_cast<uint64_t>(oldest) >= shape.conv_kernel - 1) {
      return damaged(
          fmt::format("offset {}: layer {} conv_pos {} of {} columns", at + 1, layer, oldest, shape.conv_kernel - 1));
    }
    BATON_TRY(const auto conv, reader.take(shape.lin_qkv_dim * (shape.conv_kernel - 1) * sizeof(float),
                                           fmt::format("layer {} conv", layer)));
    BATON_TRY(const auto recurrent, reader.take(recurrent_bytes, fmt::format("layer {} state", layer)));
    state.sections.push_back(conv_section(layer, shape, static_cast<uint64_t>(oldest), conv));
    state.sections.push_back(recurrent_section(layer, shape, recurrent));
  }
  if (reader.remaining() != 0)
    return damaged(fmt::format("offset {}: {} bytes behind the last layer", reader.offset(), reader.remaining()));
  return state;
}

Result<std::vector<std::byte>> write_anelm_cache(const PlainState& state, const Shape& given) {
  BATON_TRY(const auto layers, by_layer(state));
  Shape shape = given;
  uint64_t prompt_len = state.position;
  nlohmann::ordered_json json;
  for (const Figure& figure : figures(shape, prompt_len)) json[figure.name] = *figure.value;
  const std::string text = json.dump();
  std::vector<std::byte> out;
  append_text(out, kAnelmCacheMagic);
  append(out, static_cast<uint32_t>(text.size()));
  append_text(out, text);
  for (const LayerSections& layer : layers) {
    append(out, layer.full ? kFull : kLinear);
    if (layer.full) {
      append_rows(state, layer.first, state.position, out);
      append_rows(state, layer.second, state.position, out);
    } else {
      append(out, int32_t{0});  // conv_pos
      append_conv(state, layer.first, out);
      append_recurrent(state, layer.second, out);
    }
  }
  return out;
}

}  // namespace baton::foreign
