// Tags, varints, fixed numbers and stretches of bytes.
#include "baton/text/protobuf_reader.h"

#include <fmt/format.h>

namespace baton {

tl::unexpected<Error> ProtobufReader::bad(size_t at, std::string_view what) const {
  return fail(Code::kInvalidInput, fmt::format("byte {}: {}", offset_ + at, what));
}

std::optional<uint64_t> ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ >= message_.size()) return std::nullopt;
    const auto byte = static_cast<uint8_t>(message_[at_++]);
    if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<uint64_t> ProtobufReader::fixed(size_t bytes) {
  if (message_.size() - at_ < bytes) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = bytes; i > 0; --i) value = value << 8 | static_cast<uint8_t>(message_[at_ + i - 1]);
  at_ += bytes;
  return value;
}

Result<ProtobufField> ProtobufReader::next() {
  const size_t start = at_;
  const std::optional<uint64_t> tag = varint();
  if (!tag || *tag >> 3 == 0 || *tag >> 3 > (1u << 29)) return bad(start, "no field of a protobuf message");
  ProtobufField field;
  field.number = static_cast<uint32_t>(*tag >> 3);
  std::optional<uint64_t> value;
  switch (*tag & 7) {
    case 0:
      value = varint();
      break;
    case 1:
      value = fixed(8);
      break;
    case 2:
      value = varint();
      if (value && *value > message_.size() - at_) {
        return bad(start,
                   fmt::format("field {} of {} bytes, but {} are left", field.number, *value, message_.size() - at_));
      }
      if (value) {
        bytes_at_ = at_;
        field.bytes = message_.substr(at_, *value);
        at_ += *value;
      }
      break;
    case 5:
      value = fixed(4);
      break;
    default:
      return bad(start, fmt::format("field {} of an unknown kind", field.number));
  }
  if (!value) return bad(start, fmt::format("field {} is cut off", field.number));
  field.wire = static_cast<ProtobufField::Wire>(*tag & 7);
  field.value = *value;
  return field;
}

}  // namespace baton
