// Keys are (field << 3 | wire type): 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
#include "baton/unit/apple/mlpackage/protobuf.h"

#include <fmt/format.h>

#include "baton/base/bytes.h"

namespace baton::apple {

void ProtoWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtoWriter::number(uint32_t field, uint64_t value) {
  varint(uint64_t{field} << 3);
  varint(value);
}

void ProtoWriter::text(uint32_t field, std::string_view value) {
  varint(uint64_t{field} << 3 | 2);
  varint(value.size());
  bytes_ += value;
}

void ProtoWriter::entry(uint32_t field, std::string_view key, const ProtoWriter& value) {
  ProtoWriter item;
  item.text(1, key);
  item.message(2, value);
  message(field, item);
}

void ProtoWriter::packed(uint32_t field, std::span<const int64_t> values) {
  ProtoWriter list;
  for (const int64_t value : values) list.varint(static_cast<uint64_t>(value));
  message(field, list);
}

Result<uint64_t> ProtoReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
    const auto byte = static_cast<uint64_t>(bytes_[at_++]);
    value |= (byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return fail(Code::kCorrupt, fmt::format("offset {}: a number without an end", at_));
}

Result<ProtoField> ProtoReader::next() {
  BATON_TRY(const uint64_t key, varint());
  ProtoField out;
  out.field = static_cast<uint32_t>(key >> 3);
  const uint64_t wire = key & 7;
  if (key >> 32 != 0 || out.field == 0) return fail(Code::kCorrupt, fmt::format("offset {}: no field number", at_));
  if (wire == 0) {
    BATON_TRY(out.number, varint());
    return out;
  }
  uint64_t size = wire == 1 ? 8 : 4;
  if (wire == 2) {
    BATON_TRY(size, varint());
  } else if (wire != 1 && wire != 5) {
    return fail(Code::kCorrupt, fmt::format("offset {}: wire type {}", at_, wire));
  }
  if (size > bytes_.size() - at_) {
    return fail(Code::kCorrupt, fmt::format("offset {}: field {} of {} bytes runs past the end", at_, out.field, size));
  }
  out.bytes = bytes_.subspan(at_, size);
  at_ += size;
  out.delimited = wire == 2;
  if (wire == 1) out.number = load_as<uint64_t>(out.bytes.data());
  if (wire == 5) out.number = load_as<uint32_t>(out.bytes.data());
  return out;
}

Result<std::vector<int64_t>> unpack_integers(std::span<const std::byte> bytes) {
  std::vector<int64_t> values;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t value = 0;
    unsigned shift = 0;
    for (;; shift += 7) {
      if (at == bytes.size() || shift > 63) return fail(Code::kCorrupt, "a packed number without an end");
      const auto byte = static_cast<uint64_t>(bytes[at++]);
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

}  // namespace baton::apple
