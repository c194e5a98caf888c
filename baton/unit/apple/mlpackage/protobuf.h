// The protobuf wire format, as much of it as Core ML model files need: varints, 64- and 32-bit values and
// length-delimited fields. Source: the public encoding page of Protocol Buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::apple {

// A message in the making. Fields are written in the order of the calls; proto3 default values are written too when
// asked, so that the presence of a oneof is never lost.
class ProtoWriter {
 public:
  void number(uint32_t field, uint64_t value);
  // int32 and int64 of proto: negative values take ten bytes.
  void integer(uint32_t field, int64_t value) { number(field, static_cast<uint64_t>(value)); }
  void text(uint32_t field, std::string_view value);
  void message(uint32_t field, const ProtoWriter& value) { text(field, value.bytes_); }
  // An entry of map<string, message>.
  void entry(uint32_t field, std::string_view key, const ProtoWriter& value);
  // repeated int32, int64 or bool, packed.
  void packed(uint32_t field, std::span<const int64_t> values);

  const std::string& bytes() const { return bytes_; }
  std::string take() && { return std::move(bytes_); }

 private:
  void varint(uint64_t value);
  std::string bytes_;
};

struct ProtoField {
  uint32_t field = 0;
  bool delimited = false;            // `bytes` is set, otherwise `number`
  uint64_t number = 0;               // varint, or the bits of a fixed value
  std::span<const std::byte> bytes;  // borrowed
};

// The fields of one message, in order. Errors are kCorrupt with the offset; nothing is read past the end.
class ProtoReader {
 public:
  explicit ProtoReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool done() const { return at_ == bytes_.size(); }
  Result<ProtoField> next();

 private:
  Result<uint64_t> varint();

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

// The values of a packed field.
Result<std::vector<int64_t>> unpack_integers(std::span<const std::byte> bytes);

}  // namespace baton::apple
