// Prompt caches of mlx-lm (mlx_lm/models/cache.py, save_prompt_cache): a safetensors file.
//   tensors "<layer>.0" and "<layer>.1":
//     KVCache                  keys, values [1, Hkv, S, D]
//     ArraysCache, MambaCache  convolution [1, K - 1, C], oldest column first; state [1, Hv, Dv, Dk]
//   metadata "0.<layer>": state of the cache object (empty for these classes), "1.<name>": texts of whoever saved it,
//     "2.<layer>": class of the cache object
// We add "1.baton_tokens", the ids the state was made from.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "baton/base/bytes.h"
#include "baton/model/container.h"
#include "baton/state/values.h"
#include "baton/tools/foreign/formats.h"

namespace baton::foreign {
namespace {

constexpr uint64_t kHeaderBytesMax = 64 << 20;
constexpr std::string_view kTokensKey = "1.baton_tokens";

tl::unexpected<Error> damaged_cache(std::string why) { return fail(Code::kCorrupt, "MLX cache: " + why); }

// "__metadata__" of a header that parse_safetensors has accepted.
Result<Json> read_metadata(std::span<const std::byte> bytes) {
  const auto length = load_as<uint64_t>(bytes.data());
  if (length > kHeaderBytesMax)
    return damaged_cache(fmt::format("header of {} bytes, more than {}", length, kHeaderBytesMax));
  Json header = Json::parse(as_text(bytes.subspan(sizeof(uint64_t), length)), nullptr, false);
  if (!header.is_object()) return damaged_cache("the header is not a JSON object");
  const auto found = header.find("__metadata__");
  return found != header.end() ? *found : Json::object();
}

std::string text_of(const Json& metadata, std::string_view key) {
  const auto found = metadata.find(std::string(key));
  return found != metadata.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<std::vector<int32_t>> parse_tokens(std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || id < 0) return damaged_cache(fmt::format("metadata {}: not token ids", kTokensKey));
    ids.push_back(id);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text.front() != ',')
      return damaged_cache(fmt::format("metadata {}: not token ids", kTokensKey));
    if (!text.empty()) text.remove_prefix(1);
  }
  return ids;
}

Result<const TensorView*> tensor_of(const Container& file, uint64_t layer, int part, size_t rank) {
  const std::string name = fmt::format("{}.{}", layer, part);
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr)
    return damaged_cache(fmt::format("tensor '{}' is missing, empty or of a type that states do not have", name));
  if (tensor->shape.size() != rank || tensor->shape[0] != 1) {
    return fail(Code::kUnsupported, fmt::format("MLX cache: tensor '{}' is [{}]; {} dims and a batch of 1 expected",
                                                name, fmt::join(tensor->shape, ", "), rank));
  }
  if (value_bytes(tensor->dtype) == 0)
    return fail(Code::kUnsupported,
                fmt::format("MLX cache: tensor '{}' is {}, not F32, F16 or BF16", name, to_string(tensor->dtype)));
  return tensor;
}

Status read_linear(const Container& file, uint64_t index, ForeignState& state) {
  BATON_TRY(const TensorView* conv, tensor_of(file, index, 0, 3));
  BATON_TRY(const TensorView* recurrent, tensor_of(file, index, 1, 4));
  const auto layer = static_cast<int32_t>(index);
  const uint64_t columns = conv->shape[1], channels = conv->shape[2];
  const uint64_t heads = recurrent->shape[1], value_dim = recurrent->shape[2], key_dim = recurrent->shape[3];
  state.sections.push_back({SlotKind::kConv,
                            layer,
                            conv->dtype,
                            {1, columns, channels},
                            {columns * channels, channels, 1},
                            0,
                            columns,
                            conv->data});
  state.sections.push_back({SlotKind::kRecurrent,
                            layer,
                            recurrent->dtype,
                            {heads, key_dim, value_dim},
                            {value_dim * key_dim, 1, key_dim},
                            0,
                            key_dim,
                            recurrent->data});
  return {};
}

Status read_full(const Container& file, uint64_t index, ForeignState& state) {
  for (const int part : {0, 1}) {
    BATON_TRY(const TensorView* rows, tensor_of(file, index, part, 4));
    const uint64_t heads = rows->shape[1], tokens = rows->shape[2], dim = rows->shape[3];
    if (state.position != 0 && tokens != state.position) {
      return damaged_cache(
          fmt::format("tensor '{}.{}' holds {} tokens, another layer {}", index, part, tokens, state.position));
    }
    state.position = tokens;
    state.sections.push_back({part == 0 ? SlotKind::kKeys : SlotKind::kValues,
                              static_cast<int32_t>(index),
                              rows->dtype,
                              {heads, tokens, dim},
                              {tokens * dim, dim, 1},
                              0,
                              tokens,
                              rows->data});
  }
  return {};
}

// Values of `state` section `index` in `order` of its canonical dims, outermost first, as `type`.
Status append_values(const PlainState& state, size_t index, std::array<size_t, 3> order, DType type,
                     std::vector<std::byte>& out) {
  const Segment& segment = state.shape.segments[index];
  const auto& values = state.sections[index];
  if (const auto at = first_overflow(values, segment.dtype, type)) {
    return fail(Code::kCorrupt, fmt::format("{}: value {} does not fit into {}; choose another type",
                                            segment_name(segment.kind, segment.layer),
                                            value_at(values, segment.dtype, *at), to_string(type)));
  }
  const uint64_t from_bytes = value_bytes(segment.dtype), to_bytes = value_bytes(type);
  size_t end = out.size();
  out.resize(end + values.size() / from_bytes * to_bytes);
  Dims i{};
  for (i[order[0]] = 0; i[order[0]] < segment.dims[order[0]]; ++i[order[0]]) {
    for (i[order[1]] = 0; i[order[1]] < segment.dims[order[1]]; ++i[order[1]]) {
      for (i[order[2]] = 0; i[order[2]] < segment.dims[order[2]]; ++i[order[2]], end += to_bytes) {
        const uint64_t element = (i[0] * segment.dims[1] + i[1]) * segment.dims[2] + i[2];
        value_to(out.data() + end, type, value_from(values.data() + element * from_bytes, segment.dtype));
      }
    }
  }
  return {};
}

struct Array {
  size_t section;
  DType type;
  bool transposed;  // the last two dims
  std::vector<uint64_t> shape;
};

std::vector<Array> arrays_of(const PlainState& state, const LayerSections& layer, std::optional<DType> type) {
  const Segment& first = state.shape.segments[layer.first];
  const Segment& second = state.shape.segments[layer.second];
  if (layer.full) {
    return {{layer.first, type.value_or(first.dtype), false, {1, first.dims[0], first.dims[1], first.dims[2]}},
            {layer.second, type.value_or(second.dtype), false, {1, second.dims[0], second.dims[1], second.dims[2]}}};
  }
  return {{layer.first, type.value_or(DType::kF32), false, {1, first.dims[1], first.dims[2]}},
          {layer.second, DType::kF32, true, {1, second.dims[0], second.dims[2], second.dims[1]}}};
}

}  // namespace

Result<ForeignState> parse_mlx(std::span<const std::byte> bytes) {
  Container file;
  BATON_OK(parse_safetensors(bytes, "MLX cache", file));
  BATON_TRY(const Json metadata, read_metadata(bytes));
  ForeignState state;
  state.format = ForeignFormat::kMlx;
  for (; state.layers < kLayersAtMost; ++state.layers) {
    const std::string kind = text_of(metadata, fmt::format("2.{}", state.layers));
    if (kind.empty()) break;
    if (kind == "KVCache") {
      BATON_OK(read_full(file, state.layers, state));
    } else if (kind == "ArraysCache" || kind == "MambaCache") {
      BATON_OK(read_linear(file, state.layers, state));
    } else {
      return fail(Code::kUnsupported,
                  fmt::format("MLX cache: layer {} is a {}; only KVCache, ArraysCache and MambaCache "
                              "hold what a state needs",
                              state.layers, kind));
    }
  }
  if (state.layers == 0) return damaged_cache("no metadata '2.0': not a file of save_prompt_cache");
  if (state.sections.size() != file.tensors.size() + file.unreadable.size())
    return damaged_cache(
        fmt::format("{} tensors for {} layers", file.tensors.size() + file.unreadable.size(), state.layers));
  BATON_TRY(state.tokens, parse_tokens(text_of(metadata, kTokensKey)));
  if (state.position == 0) state.position = state.tokens.size();  // no layer with keys
  if (!state.tokens.empty() && state.tokens.size() != state.position) {
    return damaged_cache(fmt::format("metadata {} names {} tokens, the keys are of {}", kTokensKey, state.tokens.size(),
                                     state.position));
  }
  state.facts = {{"num_layers", state.layers}, {"tokens", state.position}};
  return state;
}

Result<std::vector<std::byte>> write_mlx(const PlainState& state, std::optional<DType> type) {
  BATON_TRY(const auto layers, by_layer(state));
  if (state.position == 0) return fail(Code::kUnsupported, "MLX cache: a state of no tokens has no arrays to save");
  nlohmann::ordered_json header, metadata;
  for (size_t i = 0; i < layers.size(); ++i) metadata[fmt::format("0.{}", i)] = "";
  metadata[std::string(kTokensKey)] = fmt::format("{}", fmt::join(state.tokens, ","));
  for (size_t i = 0; i < layers.size(); ++i)
    metadata[fmt::format("2.{}", i)] = layers[i].full ? "KVCache" : "ArraysCache";
  header["__metadata__"] = std::move(metadata);
  std::vector<std::byte> data;
  for (size_t i = 0; i < layers.size(); ++i) {
    int part = 0;
    for (const Array& array : arrays_of(state, layers[i], type)) {
      const size_t begin = data.size();
      const std::array<size_t, 3> order =
          array.transposed ? std::array<size_t, 3>{0, 2, 1} : std::array<size_t, 3>{0, 1, 2};
      BATON_OK(append_values(state, array.section, order, array.type, data));
      header[fmt::format("{}.{}", i, part++)] = {
          {"dtype", to_string(array.type)}, {"shape", array.shape}, {"data_offsets", {begin, data.size()}}};
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::vector<std::byte> out;
  out.reserve(sizeof(uint64_t) + text.size() + data.size());
  append(out, static_cast<uint64_t>(text.size()));
  append_text(out, text);
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

}  // namespace baton::foreign
