// The table of formats, from format_list.inc.
#include "baton/quant/format.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "baton/base/bytes.h"
#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kFormats = std::size(kFormatLines);

Format entry(DType dtype, std::string_view name, const Codec& codec) {
  const FormatLine& line = line_of(dtype);
  return {dtype,       name,         line.ggml_id, line.block_elements, line.block_bytes,
          line.coding, codec.unpack, codec.decode, codec.encode,        codec.encode_weighted};
}

const std::array<Format, kFormats>& table() {
  static const std::array<Format, kFormats> formats_by_dtype = {{
#define BATON_FORMAT(name, ...) entry(DType::k##name, #name, codec<DType::k##name>()),
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT
  }};
  return formats_by_dtype;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return upper(x) == upper(y); });
}

}  // namespace

std::span<const Format> formats() { return table(); }

const Format& format_of(DType dtype) {
  BATON_CHECK(static_cast<size_t>(dtype) < kFormats);
  return table()[static_cast<size_t>(dtype)];
}

const Format* format_by_ggml_id(uint32_t ggml_id) {
  if (ggml_id == kNoGgmlId) return nullptr;
  for (const Format& format : table()) {
    if (format.ggml_id == ggml_id) return &format;
  }
  return nullptr;
}

const Format* format_by_name(std::string_view name) {
  for (const Format& format : table()) {
    if (same_letters(format.name, name)) return &format;
  }
  return nullptr;
}

Result<uint64_t> row_bytes(DType dtype, uint64_t count) {
  const Format& format = format_of(dtype);
  if (count % format.block_elements != 0) {
    return fail(Code::kInvalidInput, fmt::format("{} values are not a multiple of {}'s block of {}", count, format.name,
                                                 format.block_elements));
  }
  uint64_t bytes = 0;
  if (!checked_mul<uint64_t>(count / format.block_elements, format.block_bytes, &bytes)) {
    return fail(Code::kInvalidInput, fmt::format("a row of {} {} values does not fit in 64 bits", count, format.name));
  }
  return bytes;
}

}  // namespace baton
