// GPTQ, AWQ and compressed-tensors: where codes, scales and zero points lie.
#include "baton/model/packed_integers.h"

#include <algorithm>

#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr int64_t kWordBits = 32;

// Code `index` of a stream of words that are `stride` words apart, lowest bit first.
uint32_t code_at(const std::byte* words, int64_t stride, int64_t index, int bits) {
  const int64_t bit = index * bits, word = bit / kWordBits, shift = bit % kWordBits;
  const auto at = [&](int64_t i) { return static_cast<uint64_t>(load_as<uint32_t>(words + 4 * stride * i)); };
  const uint64_t both = shift + bits > kWordBits ? at(word) | at(word + 1) << kWordBits : at(word);
  return static_cast<uint32_t>(both >> shift) & ((1u << bits) - 1);
}

// So many words for so many codes.
int64_t words_of(int64_t codes, int bits) { return (codes * bits + kWordBits - 1) / kWordBits; }

// The bits that make `codes` codes take this many words, 0 when none do.
int bits_of(int64_t codes, uint64_t words) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    if (words_of(codes, bits) == static_cast<int64_t>(words)) return bits;
  }
  return 0;
}

std::vector<float> turned_scales(const std::vector<float>& from, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      to[static_cast<size_t>(r * columns + c)] = from[static_cast<size_t>(c * rows + r)];
  }
  return to;
}

// How many groups the rows have, by the number of scales in a row.
Status check_groups(const PackedParts& parts, std::string_view part, int64_t groups) {
  if (groups > 0 && parts.columns % groups == 0) return {};
  return parts.refuse(part,
                      fmt::format("has {} groups for rows of {}, which they do not divide", groups, parts.columns));
}

// Columns' groups where they are not in turn.
Result<std::vector<int32_t>> read_order(const PackedParts& parts, std::string_view part, int64_t groups) {
  std::vector<int32_t> group_of;
  if (parts.raw(part) == nullptr) return group_of;
  BATON_TRY(const RawView* order, parts.raw(part, "I32", {parts.columns}));
  const int64_t group = parts.columns / groups;
  bool in_turn = true;
  for (int64_t c = 0; c < parts.columns; ++c) {
    const auto of = load_as<int32_t>(order->data.data() + 4 * c);
    if (of < 0 || of >= groups) {
      return parts.refuse(part, fmt::format("says group {} of column {}, but there are {}", of, c, groups));
    }
    in_turn = in_turn && of == c / group;
    group_of.push_back(of);
  }
  if (in_turn) group_of.clear();
  return group_of;
}

uint64_t length_of(const RawView& view, size_t i) { return i < view.shape.size() ? view.shape[i] : 0; }

// A whole number of the configuration, which the tensors must agree with.
Status check_number(const PackedParts& parts, std::string_view part, const char* field, int64_t found) {
  const Json* const config = parts.config();
  if (config == nullptr || !config->contains(field) || config->at(field).is_null()) return {};
  const Json& said = config->at(field);
  if (said == found) return {};
  return parts.refuse(part, fmt::format("is for {} {}, but quantization_config.{} is {}", field, found, field,
                                        shown(said.dump(-1, ' ', true, Json::error_handler_t::replace))));
}

// One group is of the whole row, which configurations call -1; their number may also be that of a longer row.
Status check_group_size(const PackedParts& parts, int64_t groups) {
  const Json* const config = parts.config();
  const Json said = config == nullptr ? Json() : config->value("group_size", Json());
  const int64_t group = parts.columns / groups;
  for (const char* field : {"dynamic", "extra_config"}) {  // other groups for some modules
    if (config != nullptr && config->contains(field) && !config->at(field).empty()) return {};
  }
  if (groups == 1 && said.is_number_integer() && (said == -1 || said.get<int64_t>() >= parts.columns)) return {};
  return check_number(parts, "scales", "group_size", group);
}

// The tensors that GPTQ and AWQ share: scales [groups][rows].
Status read_scales(const PackedParts& parts, PackedIntegers& to) {
  const TensorView* scales = parts.numbers("scales");
  to.groups = scales == nullptr || scales->shape.size() != 2 ? 1 : static_cast<int64_t>(scales->shape[0]);
  BATON_OK(check_groups(parts, "scales", to.groups));
  BATON_OK(check_group_size(parts, to.groups));
  BATON_TRY(const std::vector<float> values, parts.floats("scales", {to.groups, parts.rows}));
  to.scales = turned_scales(values, parts.rows, to.groups);
  to.zeros.resize(to.scales.size());
  return {};
}

}  // namespace

// qweight: the codes of a row are a stream down its column, [words][rows]; qzeros: those of a group along the rows,
// [groups][words], minus 1 but in the second version of the format.
Result<PackedIntegers> read_gptq(const PackedParts& parts) {
  PackedIntegers made;
  const int64_t rows = parts.rows, columns = parts.columns;
  const RawView* any = parts.raw("qweight");
  made.bits = bits_of(columns, length_of(*any, 0));
  if (made.bits == 0 || made.bits == 5 || made.bits == 6) {
    return parts.unsupported("qweight", fmt::format("has {} words for {} columns; GPTQ of 2, 3, 4 or 8 bits is read",
                                                    length_of(*any, 0), columns));
  }
  const Json* const config = parts.config();
  if (config != nullptr && config->contains("bits") && config->at("bits") != made.bits) {
    return parts.refuse("qweight", fmt::format("has words for {} bits, but quantization_config.bits is {}", made.bits,
                                               shown(config->at("bits").dump())));
  }
  BATON_TRY(const RawView* codes, parts.raw("qweight", "I32", {words_of(columns, made.bits), rows}));
  BATON_OK(read_scales(parts, made));
  BATON_TRY(const RawView* zeros, parts.raw("qzeros", "I32", {made.groups, words_of(rows, made.bits)}));
  const bool second = parts.text("checkpoint_format") == "gptq_v2";
  const int mask = (1 << made.bits) - 1;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < made.groups; ++g) {
      const auto* row = zeros->data.data() + 4 * g * words_of(rows, made.bits);
      const auto zero = static_cast<int>(code_at(row, 1, r, made.bits));
      made.zeros[static_cast<size_t>(r * made.groups + g)] = second ? zero : (zero + 1) & mask;
    }
  }
  BATON_TRY(made.group_of, read_order(parts, "g_idx", made.groups));
  made.codes = [data = codes->data.data(), bits = made.bits, rows, columns](int64_t first, int64_t count, uint8_t* to) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < count; ++r) {
        to[r * columns + c] = static_cast<uint8_t>(code_at(data + 4 * (first + r), rows, c, bits));
      }
    }
  };
  return made;
}

// qweight [columns][rows / 8], qzeros [groups][rows / 8]: of eight rows to a word, nibbles 0 .. 7 are rows 0, 2, 4, 6,
// 1, 3, 5, 7.
Result<PackedIntegers> read_awq(const PackedParts& parts) {
  PackedIntegers made;
  const int64_t rows = parts.rows, columns = parts.columns;
  const std::string version = parts.text("version");
  if (!version.empty() && version != "gemm" && version != "GEMM") {
    return parts.unsupported("qweight", fmt::format("is of AWQ's layout '{}'; 'gemm' is read", version));
  }
  BATON_OK(check_number(parts, "qweight", "bits", made.bits));
  if (rows % 8 != 0) return parts.unsupported("qweight", fmt::format("has {} rows; AWQ packs eight to a word", rows));
  BATON_TRY(const RawView* codes, parts.raw("qweight", "I32", {columns, rows / 8}));
  BATON_OK(read_scales(parts, made));
  BATON_TRY(const RawView* zeros, parts.raw("qzeros", "I32", {made.groups, rows / 8}));
  if (const Json* const config = parts.config(); config != nullptr && config->value("zero_point", Json()) == false) {
    const bool zero =
        std::all_of(zeros->data.begin(), zeros->data.end(), [](std::byte b) { return b == std::byte(0); });
    if (!zero) return parts.refuse("qzeros", "is not 0, but quantization_config.zero_point is false");
  }
  const auto nibble = [rows](const std::byte* data, int64_t line, int64_t row) {
    const int64_t k = row % 8, place = k / 2 + (k % 2) * 4;
    return load_as<uint32_t>(data + 4 * (line * (rows / 8) + row / 8)) >> (4 * place) & 15;
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < made.groups; ++g) {
      made.zeros[static_cast<size_t>(r * made.groups + g)] = static_cast<int32_t>(nibble(zeros->data.data(), g, r));
    }
  }
  made.codes = [data = codes->data.data(), nibble, columns](int64_t first, int64_t count, uint8_t* to) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < count; ++r) to[r * columns + c] = static_cast<uint8_t>(nibble(data, c, first + r));
    }
  };
  return made;
}

// The words alone could be of twice as many columns of half the bits.
Status check_weight_shape(const PackedParts& parts) {
  if (parts.raw("weight_shape") == nullptr) return {};
  BATON_TRY(const RawView* shape, parts.raw("weight_shape", "I64", {2}));
  const auto rows = load_as<int64_t>(shape->data.data()), columns = load_as<int64_t>(shape->data.data() + 8);
  if (rows == parts.rows && columns == parts.columns) return {};
  return parts.refuse("weight_shape", fmt::format("says {} rows of {}, the model needs {} of {}", rows, columns,
                                                  parts.rows, parts.columns));
}

// weight_packed: a row is a stream, [rows][words], of codes that count from -2^(bits - 1); weight_zero_point: those of
// a group down its column, [words][groups]. Of I8, `weight` has the codes as they are, weight_zero_point too.
Result<PackedIntegers> read_compressed_tensors(const PackedParts& parts) {
  PackedIntegers made;
  const int64_t rows = parts.rows, columns = parts.columns;
  BATON_OK(check_weight_shape(parts));
  const RawView* packed = parts.raw("weight_packed");
  const TensorView* scales = parts.numbers("weight_scale");
  const size_t count = scales == nullptr ? 0 : scales->elements();
  const bool one = count == 1;
  const bool by_row = count >= static_cast<size_t>(rows) && count % static_cast<size_t>(rows) == 0;
  made.groups = one || !by_row ? 1 : static_cast<int64_t>(count) / rows;
  BATON_OK(check_groups(parts, "weight_scale", made.groups));
  BATON_TRY(made.scales, parts.floats("weight_scale", {one ? 1 : rows, made.groups}));
  if (one) made.scales.assign(static_cast<size_t>(rows), made.scales[0]);
  made.bits = packed == nullptr ? 8 : bits_of(columns, length_of(*packed, 1));
  if (made.bits == 0) {
    return parts.unsupported(
        "weight_packed",
        fmt::format("has {} words for {} columns; 2, 3, 4, 5, 6 or 8 bits are read", length_of(*packed, 1), columns));
  }
  const int32_t middle = 1 << (made.bits - 1);
  made.zeros.assign(made.scales.size(), middle);
  const RawView* any_zeros = parts.raw("weight_zero_point");
  if (any_zeros != nullptr && any_zeros->type == "I8") {
    if (any_zeros->data.size() != made.zeros.size())
      return parts.refuse("weight_zero_point", "has not one for each scale");
    for (size_t i = 0; i < made.zeros.size(); ++i) made.zeros[i] += static_cast<int8_t>(any_zeros->data[i]);
  } else if (any_zeros != nullptr) {
    BATON_TRY(const RawView* zeros, parts.raw("weight_zero_point", "I32", {words_of(rows, made.bits), made.groups}));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < made.groups; ++g) {
        const uint32_t zero = code_at(zeros->data.data() + 4 * g, made.groups, r, made.bits);
        made.zeros[static_cast<size_t>(r * made.groups + g)] = static_cast<int32_t>(zero);
      }
    }
  }
  BATON_TRY(made.group_of, read_order(parts, "weight_g_idx", made.groups));
  if (packed == nullptr) {
    BATON_TRY(const RawView* bytes, parts.raw("weight", "I8", {rows, columns}));
    made.codes = [data = bytes->data.data(), columns](int64_t first, int64_t lines, uint8_t* to) {
      for (int64_t i = 0; i < lines * columns; ++i) to[i] = static_cast<uint8_t>(data[first * columns + i]) ^ 0x80;
    };
    return made;
  }
  const int64_t words = words_of(columns, made.bits);
  BATON_TRY(const RawView* codes, parts.raw("weight_packed", "I32", {rows, words}));
  made.codes = [data = codes->data.data(), words, bits = made.bits, columns](int64_t first, int64_t lines,
                                                                             uint8_t* to) {
    for (int64_t r = 0; r < lines; ++r) {
      const std::byte* row = data + 4 * words * (first + r);
      for (int64_t c = 0; c < columns; ++c) *to++ = static_cast<uint8_t>(code_at(row, 1, c, bits));
    }
  };
  return made;
}

}  // namespace baton
