// Reads the fields of one protobuf message in the order in which they stand. The bytes are not trusted.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "baton/base/status.h"

namespace baton {

struct ProtobufField {
  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // all but kBytes
  std::string_view bytes;  // kBytes
  float as_float() const {
    const auto bits = static_cast<uint32_t>(value);
    float number_of_bits = 0;
    std::memcpy(&number_of_bits, &bits, sizeof number_of_bits);
    return number_of_bits;
  }
};

class ProtobufReader {
 public:
  // `offset`: of the message in its file, for errors.
  explicit ProtobufReader(std::string_view message, size_t offset = 0) : message_(message), offset_(offset) {}
  bool at_end() const { return at_ == message_.size(); }
  // Where the bytes of the field read last begin in the file.
  size_t bytes_offset() const { return offset_ + bytes_at_; }
  // kInvalidInput, with the offset, for what is no field.
  Result<ProtobufField> next();

 private:
  tl::unexpected<Error> bad(size_t at, std::string_view what) const;
  std::optional<uint64_t> varint();
  std::optional<uint64_t> fixed(size_t bytes);

  std::string_view message_;
  size_t offset_, at_ = 0, bytes_at_ = 0;
};

}  // namespace baton
