// The seal as a stream: its bytes in pieces, so that a wire or a file begins with the first layer and nobody holds all
// of them. What a SealWriter gives is what a SealReader takes:
//   the header as a draft (without the sections' checksums), zeros, tokens, zeros
//   the sections in any order, each in order, with the zeros behind it
//   the header again, now with the checksums
// Each piece names its offset in the block; the first and the last are the header, none crosses its end. Put at their
// offsets they are the block, byte for byte. A draft and the tokens are enough to refuse a state of another model,
// quantization, tokenizer, shape or prompt before any section comes; nothing may be decoded from before the second
// header has held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "baton/state/seal.h"

namespace baton {

// Where pieces go. An error ends the stream.
using SealSink = std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;

// A sealed state that can be had as a stream, as often as it is asked for: a block, a file, a state that is sealed
// then. Copies share what it is read from.
class SealSource {
 public:
  using Give = std::function<Status(const SealSink& sink)>;

  SealSource() = default;
  // A block of any bytes: of a caller who keeps it for as long as the source and its copies, or the source's own.
  static SealSource borrowed(std::span<const std::byte> block);
  static SealSource owned(std::vector<std::byte> block);
  // `give` owns what it reads from, or whoever makes the source says for how long it may be asked.
  SealSource(uint64_t bytes, Give give) : bytes_(bytes), give_(std::move(give)) {}

  bool empty() const { return bytes_ == 0; }
  uint64_t size() const { return bytes_; }
  // Errors of the sink, and its own. Not of an empty one.
  Status give(const SealSink& sink) const { return give_(sink); }
  // All of it in memory. Throws std::bad_alloc.
  Result<std::vector<std::byte>> block() const;

 private:
  uint64_t bytes_ = 0;
  Give give_;
};

// Who takes a state while it is there.
using SealTaker = std::function<Status(const SealSource& state)>;

// Makes the stream of one state: begin, then the values of every section, sections in any order, each whole before the
// next, then finish. Sections follow `shape` (one per slot), which check_shape accepts; tokens.size() is the position
// and may be 0. Errors are the sink's. Throws std::bad_alloc.
class SealWriter {
 public:
  // `provenance` is one that check_provenance accepts for tokens.size() tokens; an empty one becomes kMakerUnknown.
  SealWriter(const StateIdentity& identity, std::span<const int32_t> tokens, const StateShape& shape,
             const Provenance& provenance, SealSink sink);

  Status begin();
  // The next values of a section; none for one without values.
  Status add(size_t section, std::span<const std::byte> values);
  Status finish();

 private:
  struct Placed {
    uint64_t offset, bytes, end;  // `end`: with the zeros behind it
    uint64_t given = 0;
  };
  std::vector<std::byte> head_;  // all before the first section
  uint64_t header_bytes_ = 0;
  std::vector<Placed> sections_;
  Checksum sum_;  // of the section that is begun
  SealSink sink_;
};

// Where a reader's values go.
class SealedValues {
 public:
  virtual ~SealedValues() = default;
  // Header and tokens have held; no values before it.
  virtual Status begin(const SealedView& head) = 0;
  // Whole rows (runs of dims[2] values) of a section, in order, finite; their checksum is not known to hold yet.
  virtual Status rows(size_t section, uint64_t first, std::span<const std::byte> values) = 0;
};

// Takes a stream, cut into pieces anywhere, and verifies it as open_seal does. What is wrong with a header, the tokens,
// zeros, or the order of the pieces is said at once. Bad values, and errors of `values`, are said by finish, when it is
// known that they are not damage: from the first on no more values are passed on. Holds a header, the tokens and less
// than a row. Throws std::bad_alloc.
class SealReader {
 public:
  // `expected`'s shape and tokens are borrowed. `values`: borrowed; null: the stream is only verified. `bytes`: the
  // length of the whole, where something else than the header tells it.
  explicit SealReader(const SealExpectation& expected, SealedValues* values = nullptr, uint64_t bytes = 0)
      : expected_(expected), values_(values), bytes_(bytes) {}

  // After an error: that again.
  Status take(uint64_t offset, std::span<const std::byte> bytes);
  // After the last piece. kCorrupt also where pieces are missing. The view's sections have no bytes.
  Result<SealedView> finish();

 private:
  // What comes in one run: zeros; then `data` bytes up to `end` are zeros. 0 is those behind the header, 1 the tokens,
  // then the sections.
  struct Part {
    uint64_t begin, data, end;
    bool done = false;
  };

  Status take_some(uint64_t offset, std::span<const std::byte> bytes, uint64_t* taken);
  Status take_header(std::span<const std::byte> bytes, uint64_t* taken);
  Status take_part(std::span<const std::byte> bytes, uint64_t* taken);
  void take_values(std::span<const std::byte> bytes, uint64_t* taken);
  Status pass_on(std::span<const std::byte> values);
  Status choose_part(uint64_t offset);
  void end_part();
  Status end_tokens();
  Status read_table();
  Result<SealedSection> read_entry(size_t index, uint64_t* end);
  Status check_tokens() const;
  Status check_header_again() const;
  Status check_complete() const;

  const SealExpectation expected_;
  SealedValues* const values_;
  const uint64_t bytes_;
  Status status_;
  std::optional<Error> bad_;  // of the values
  uint64_t header_bytes_ = 0, at_ = 0;
  std::vector<std::byte> header_, again_, cut_;  // `cut_`: the beginning of a row
  std::vector<Part> parts_;
  std::optional<size_t> part_;  // that is begun
  uint64_t row_ = 0;
  std::vector<uint64_t> sums_;  // by section
  Checksum sum_;
  SealedView view_;
};

// All of a source through a SealReader. The view's sections have no bytes. Throws std::bad_alloc.
Result<SealedView> verify_seal(const SealSource& source, const SealExpectation& expected);

}  // namespace baton
