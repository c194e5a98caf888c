// Between the files of other projects and the sealed form: shapes, orders of heads, types.
#include "baton/tools/foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/state/values.h"
#include "baton/tools/foreign/formats.h"

namespace baton {
namespace {

using foreign::value_from;
using foreign::value_to;

// Where the files' heads, channels and rotated values are in the model's order: file index -> model index, per
// canonical dim; empty: the same.
struct OrderOfDims {
  std::vector<uint64_t> outer, inner;
};

// File order is grouped: value heads of one key head side by side. Model order may be tiled: h mod key_heads.
std::vector<uint64_t> value_head_order(const ModelSpec& spec) {
  const auto keys = static_cast<uint64_t>(spec.linear_key_heads);
  const auto heads = static_cast<uint64_t>(spec.linear_value_heads);
  if (spec.head_map == HeadMap::kGrouped || keys == 0 || heads == keys) return {};
  const uint64_t repeats = heads / keys;
  std::vector<uint64_t> order(heads);
  for (uint64_t h = 0; h < heads; ++h) order[h] = h % repeats * keys + h / repeats;
  return order;
}

// [q | k | v]: only the value heads move.
std::vector<uint64_t> channel_order(const ModelSpec& spec, uint64_t channels) {
  const auto heads = value_head_order(spec);
  if (heads.empty()) return {};
  const auto value_dim = static_cast<uint64_t>(spec.linear_value_dim);
  const uint64_t values = channels - heads.size() * value_dim;
  std::vector<uint64_t> order(channels);
  for (uint64_t i = 0; i < channels; ++i) {
    const uint64_t v = i - values;
    order[i] = i < values ? i : values + heads[v / value_dim] * value_dim + v % value_dim;
  }
  return order;
}

// Files rotate (i, i + rotary / 2); a model may hold the same pair side by side.
std::vector<uint64_t> key_order(const ModelSpec& spec) {
  if (spec.rope_pairing == RopePairing::kHalf) return {};
  const auto half = static_cast<uint64_t>(spec.rotary) / 2;
  std::vector<uint64_t> order(static_cast<uint64_t>(spec.head_dim));
  for (uint64_t i = 0; i < order.size(); ++i) order[i] = i < half ? 2 * i : (i < 2 * half ? 2 * (i - half) + 1 : i);
  return order;
}

OrderOfDims order_of(const Model& model, SlotKind kind, const Dims& dims) {
  switch (kind) {
    case SlotKind::kKeys:
      return {{}, key_order(model.spec)};
    case SlotKind::kConv:
      return {{}, channel_order(model.spec, dims[2])};
    case SlotKind::kRecurrent:
      return {value_head_order(model.spec), {}};
    case SlotKind::kValues:
      break;
  }
  return {};
}

uint64_t placed(const std::vector<uint64_t>& order, uint64_t index) { return order.empty() ? index : order[index]; }

// Sizes of a permutation come from the model's figures, dims from its slots: they agree in every model that loads.
Status check_order(const OrderOfDims& order, const Dims& dims, std::string_view name) {
  const bool fits =
      (order.outer.empty() || order.outer.size() == dims[0]) && (order.inner.empty() || order.inner.size() == dims[2]);
  if (!fits)
    return fail(Code::kInternal, fmt::format("{}: the model's heads do not fill [{}]", name, fmt::join(dims, ", ")));
  return {};
}

std::vector<std::byte> read_section(const ForeignSection& from, const OrderOfDims& order, DType type) {
  const Dims& dims = from.dims;
  const uint64_t in = value_bytes(from.dtype), out = value_bytes(type);
  std::vector<std::byte> values(dims[0] * dims[1] * dims[2] * out);
  for (uint64_t a = 0; a < dims[0]; ++a) {
    for (uint64_t b = 0; b < dims[1]; ++b) {
      const uint64_t row = a * from.strides[0] + (from.ring_start + b) % from.ring_rows * from.strides[1];
      const uint64_t to = (placed(order.outer, a) * dims[1] + b) * dims[2];
      for (uint64_t c = 0; c < dims[2]; ++c) {
        const float value = value_from(from.bytes.data() + (row + c * from.strides[2]) * in, from.dtype);
        value_to(values.data() + (to + placed(order.inner, c)) * out, type, value);
      }
    }
  }
  return values;
}

// The same in the other direction, dense to dense.
std::vector<std::byte> file_order(const std::vector<std::byte>& values, const Dims& dims, uint64_t width,
                                  const OrderOfDims& order) {
  std::vector<std::byte> out(values.size());
  for (uint64_t a = 0; a < dims[0]; ++a) {
    for (uint64_t b = 0; b < dims[1]; ++b) {
      const auto* from = values.data() + (placed(order.outer, a) * dims[1] + b) * dims[2] * width;
      auto* to = out.data() + (a * dims[1] + b) * dims[2] * width;
      for (uint64_t c = 0; c < dims[2]; ++c) std::memcpy(to + c * width, from + placed(order.inner, c) * width, width);
    }
  }
  return out;
}

// A stream's values in a PlainState, where what has no tokens is f32, and so is what lies in blocks.
class PlainValues final : public SealedValues {
 public:
  explicit PlainValues(PlainState& plain) : plain_(plain) {}

  Status begin(const SealedView& head) override {
    plain_.position = head.position;
    plain_.tokens = head.tokens;
    plain_.provenance = head.provenance;
    for (const SealedSection& section : head.sections) {
      const bool kept = has_tokens_dim(section.kind) && !in_blocks(section.dtype);
      const DType type = kept ? section.dtype : DType::kF32;
      from_.push_back(section.dtype);
      plain_.shape.segments.push_back({section.kind, section.layer, type, section.dims});
      plain_.sections.emplace_back().reserve(section.dims[0] * section.dims[1] * section.dims[2] * value_bytes(type));
    }
    return {};
  }

  Status rows(size_t section, uint64_t, std::span<const std::byte> values) override {
    const DType from = from_[section], type = plain_.shape.segments[section].dtype;
    std::vector<std::byte>& out = plain_.sections[section];
    if (in_blocks(from)) {
      const uint64_t columns = plain_.shape.segments[section].dims[2];
      const uint64_t count = values.size() / row_bytes_of(from, columns);
      std::vector<float> decoded(count * columns);
      decode_rows(from, values.data(), columns, count, decoded.data());
      const auto bytes = std::as_bytes(std::span(decoded));
      out.insert(out.end(), bytes.begin(), bytes.end());
      return {};
    }
    for (size_t at = 0; at < values.size(); at += value_bytes(from)) {
      const size_t to = out.size();
      out.resize(to + value_bytes(type));
      value_to(out.data() + to, type, value_from(values.data() + at, from));
    }
    return {};
  }

 private:
  PlainState& plain_;
  std::vector<DType> from_;  // by section
};

tl::unexpected<Error> of_another_model(std::string what) {
  return fail(Code::kMismatch, fmt::format("{} (a state of another model)", what));
}

Status check_facts(const ForeignState& state, const Model& model) {
  const foreign::Shape shape = foreign::shape_of(model);
  const std::pair<std::string_view, uint64_t> expected[] = {{"num_layers", shape.num_layers},
                                                            {"hidden", shape.hidden},
                                                            {"vocab", shape.vocab},
                                                            {"lin_num_key_heads", shape.lin_num_key_heads},
                                                            {"conv_kernel", shape.conv_kernel}};
  for (const auto& [name, value] : expected) {
    const auto found = state.fact(name);
    if (found && *found != value)
      return of_another_model(fmt::format("{} is {}, the model has {}", name, *found, value));
  }
  if (state.position > static_cast<uint64_t>(model.spec.context_max)) {
    return of_another_model(
        fmt::format("{} tokens, the model has room for {}", state.position, model.spec.context_max));
  }
  return {};
}

Result<const ForeignSection*> section_for(const ForeignState& state, const Segment& wanted) {
  const std::string name = segment_name(wanted.kind, wanted.layer);
  const auto found = std::find_if(state.sections.begin(), state.sections.end(), [&](const ForeignSection& section) {
    return section.kind == wanted.kind && section.layer == wanted.layer;
  });
  if (found == state.sections.end()) return of_another_model(fmt::format("{} is not in the file", name));
  const bool lost =
      has_tokens_dim(wanted.kind) && found->dims[1] < state.position && found->dims[1] == found->ring_rows;
  if (lost) {
    return fail(Code::kUnsupported,
                fmt::format("{}: {} of {} tokens are left; the file's ring has overwritten the first", name,
                            found->dims[1], state.position));
  }
  if (found->dims != wanted.dims) {
    return of_another_model(fmt::format("{} is [{}], the model needs [{}]", name, fmt::join(found->dims, ", "),
                                        fmt::join(wanted.dims, ", ")));
  }
  return &*found;
}

// Of keys and values; of several types f32, which holds each.
DType type_of_rows(const ForeignState& state) {
  std::optional<DType> type;
  for (const ForeignSection& section : state.sections) {
    if (!has_tokens_dim(section.kind)) continue;
    if (type.value_or(section.dtype) != section.dtype) return DType::kF32;
    type = section.dtype;
  }
  return type.value_or(DType::kF32);
}

}  // namespace

std::string_view to_string(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::kAnelms:
      return "anelms";
    case ForeignFormat::kAnelmCache:
      return "anelm-cache";
    case ForeignFormat::kMlx:
      break;
  }
  return "mlx";
}

std::optional<ForeignFormat> parse_foreign_format(std::string_view text) {
  for (const auto format : {ForeignFormat::kAnelms, ForeignFormat::kAnelmCache, ForeignFormat::kMlx}) {
    if (text == to_string(format)) return format;
  }
  return std::nullopt;
}

std::optional<ForeignFormat> detect_foreign(std::span<const std::byte> bytes) {
  const std::string_view text = as_text(bytes);
  if (text.starts_with(foreign::kAnelmsMagic)) return ForeignFormat::kAnelms;
  if (text.starts_with(foreign::kAnelmCacheMagic)) return ForeignFormat::kAnelmCache;
  if (text.size() > sizeof(uint64_t) && text[sizeof(uint64_t)] == '{') return ForeignFormat::kMlx;
  return std::nullopt;
}

std::optional<uint64_t> ForeignState::fact(std::string_view name) const {
  for (const auto& [key, value] : facts) {
    if (key == name) return value;
  }
  return std::nullopt;
}

Result<ForeignState> parse_foreign(std::span<const std::byte> bytes) {
  const auto format = detect_foreign(bytes);
  if (!format)
    return fail(
        Code::kCorrupt,
        "these bytes begin as no state file that is known (a sealed state, ANELMS, ANELM_CACHE, MLX safetensors)");
  switch (*format) {
    case ForeignFormat::kAnelms:
      return foreign::parse_anelms(bytes);
    case ForeignFormat::kAnelmCache:
      return foreign::parse_anelm_cache(bytes);
    case ForeignFormat::kMlx:
      break;
  }
  return foreign::parse_mlx(bytes);
}

Result<PlainState> from_foreign(const ForeignState& state, const Model& model) {
  BATON_OK(check_facts(state, model));
  if (state.sections.size() != model.program.slots.size()) {
    return of_another_model(
        fmt::format("{} arrays, the model keeps {}", state.sections.size(), model.program.slots.size()));
  }
  PlainState plain;
  plain.position = state.position;
  plain.shape = state_shape(model.program, DType::kF32);
  plain.tokens = state.tokens;
  plain.provenance = Provenance::of(kMakerForeign, to_string(state.format), state.position);
  const DType rows = type_of_rows(state);
  for (Segment& segment : plain.shape.segments) {
    segment.dims = dims_at(segment, state.position);
    BATON_TRY(const ForeignSection* from, section_for(state, segment));
    const std::string name = segment_name(segment.kind, segment.layer);
    if (has_tokens_dim(segment.kind)) segment.dtype = rows;
    const OrderOfDims order = order_of(model, segment.kind, segment.dims);
    BATON_OK(check_order(order, segment.dims, name));
    plain.sections.push_back(read_section(*from, order, segment.dtype));
    if (const auto at = first_not_finite(plain.sections.back(), segment.dtype)) {
      return fail(Code::kCorrupt,
                  fmt::format("{}: value {} is {}", name, *at, value_at(plain.sections.back(), segment.dtype, *at)));
    }
  }
  plain.logits.resize(state.logits.size() / sizeof(float));
  if (!plain.logits.empty()) std::memcpy(plain.logits.data(), state.logits.data(), state.logits.size());
  return plain;
}

Result<PlainState> from_seal(const SealSource& source, const SealExpectation& expected) {
  PlainState plain;
  PlainValues values(plain);
  SealReader reader(expected, &values, source.size());
  BATON_OK(source.give([&](uint64_t offset, auto bytes) { return reader.take(offset, bytes); }));
  BATON_OK(reader.finish());
  return plain;
}

Result<SealSource> to_seal(const PlainState& state, const StateIdentity& identity) {
  if (state.tokens.size() != state.position) {
    return fail(Code::kInvalidInput,
                fmt::format("the state is of {} tokens, {} were given; a sealed state names the tokens "
                            "it was made from",
                            state.position, state.tokens.size()));
  }
  return SealSource(sealed_bytes(state.shape, state.position, state.provenance),
                    [&state, identity](const SealSink& sink) -> Status {
                      SealWriter writer(identity, state.tokens, state.shape, state.provenance, sink);
                      BATON_OK(writer.begin());
                      for (size_t i = 0; i < state.sections.size(); ++i) BATON_OK(writer.add(i, state.sections[i]));
                      return writer.finish();
                    });
}

Result<std::vector<std::byte>> to_foreign(const PlainState& state, const Model& model, ForeignFormat format,
                                          const ForeignOptions& options) {
  const foreign::Shape shape = foreign::shape_of(model);
  if (format != ForeignFormat::kMlx && (shape.lin_num_val_heads == 0 || shape.num_kv_heads == 0)) {
    return fail(Code::kUnsupported,
                fmt::format("{} files hold models with gated DeltaNet layers only; use mlx", to_string(format)));
  }
  PlainState ordered;
  ordered.position = state.position;
  ordered.shape = state.shape;
  ordered.tokens = state.tokens;
  ordered.logits = state.logits;
  for (size_t i = 0; i < state.sections.size(); ++i) {
    const Segment& segment = state.shape.segments[i];
    const OrderOfDims order = order_of(model, segment.kind, segment.dims);
    BATON_OK(check_order(order, segment.dims, segment_name(segment.kind, segment.layer)));
    ordered.sections.push_back(file_order(state.sections[i], segment.dims, value_bytes(segment.dtype), order));
  }
  switch (format) {
    case ForeignFormat::kAnelms:
      return foreign::write_anelms(ordered, shape, options.kv_capacity);
    case ForeignFormat::kAnelmCache:
      return foreign::write_anelm_cache(ordered, shape);
    case ForeignFormat::kMlx:
      break;
  }
  return foreign::write_mlx(ordered, options.type);
}

}  // namespace baton
