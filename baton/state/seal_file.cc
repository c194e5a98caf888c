// Sealed states in files.
#include "baton/state/seal_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "baton/base/file.h"
#include "baton/state/checksum.h"
#include "baton/state/seal_bytes.h"

namespace baton {
namespace {

constexpr uint64_t kFilePieceBytes = 256 * 1024;

// The stream of a file, without its MAC; an error when that does not hold. `bytes`: without the MAC, `mac`: of nothing
// yet.
Status give_file(const FileReader& file, const std::filesystem::path& path, uint64_t bytes, std::optional<MacSum> mac,
                 const SealSink& sink) {
  std::vector<std::byte> header(std::min(bytes, sealed::kHeaderBytesMin)), piece(kFilePieceBytes);
  BATON_OK(file.read_at(0, header));
  header.resize(std::max<uint64_t>(header.size(), sealed::stated_header_length(header, bytes)));
  BATON_OK(file.read_at(0, header));
  if (mac) {
    mac->update(header);
    sealed::mark(header, 0, bytes);
  }
  BATON_OK(sink(0, header));
  for (uint64_t at = header.size(); at < bytes; at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), bytes - at));
    BATON_OK(file.read_at(at, piece));
    if (mac) mac->update(piece);
    BATON_OK(sink(at, piece));
  }
  if (mac) {
    std::array<std::byte, kMacBytes> stored;
    BATON_OK(file.read_at(bytes, stored));
    if (Status held = std::move(*mac).check(stored); !held) return fail(std::move(held).error().in(path.string()));
  }
  return sink(0, header);
}

// One reading of a source, its pieces cut anywhere: the block as it comes, then the header again.
class Reading {
 public:
  explicit Reading(uint64_t bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  bool in_block() const { return at_ < bytes_; }
  const std::vector<std::byte>& header() const { return again_; }

  Status take(uint64_t offset, std::span<const std::byte> piece) {
    if (piece.empty()) return {};
    if (!in_block()) {
      if (offset != again_.size() || piece.size() > header_bytes() - again_.size()) return out_of_order();
      again_.insert(again_.end(), piece.begin(), piece.end());
      return {};
    }
    if (offset != at_ || piece.size() > bytes_ - at_) return out_of_order();
    at_ += piece.size();
    while (!piece.empty() && draft_.size() < header_bytes()) {
      const auto part = piece.first(std::min<uint64_t>(piece.size(), header_bytes() - draft_.size()));
      draft_.insert(draft_.end(), part.begin(), part.end());
      piece = piece.subspan(part.size());
    }
    sum_.update(piece);
    return {};
  }
  // After the last piece: all of it came, under a header that holds and has no MAC.
  Status check() const {
    if (in_block() || again_.size() != header_bytes())
      return fail(Code::kInternal, "sealed state: its source ended before the state did");
    BATON_OK(sealed::header_length(again_, bytes_));
    BATON_TRY(const sealed::Header fields, sealed::read_header(again_));
    if (fields.mac != 0) return fail(Code::kInvalidInput, "sealed state: it carries a MAC already");
    return {};
  }
  bool same_as(const Reading& other) const { return again_ == other.again_ && sum_.value() == other.sum_.value(); }

 private:
  uint64_t header_bytes() const {
    const uint64_t least = std::min(bytes_, sealed::kHeaderBytesMin);
    return draft_.size() < least ? least : std::max(least, sealed::stated_header_length(draft_, bytes_));
  }
  static tl::unexpected<Error> out_of_order() {
    return fail(Code::kInternal, "sealed state: its source does not give it in order, each byte once");
  }

  const uint64_t bytes_;
  uint64_t at_ = 0;
  std::vector<std::byte> draft_, again_;  // the header, before and behind all else
  Checksum sum_;                          // of all else
};

}  // namespace

Status SealFile::put(std::span<const std::byte> bytes) {
  if (file_) return file_->write(bytes);
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  return {};
}

Status SealFile::take(const SealSource& source) try {
  BATON_CHECK(!taken_);
  Reading first(source.size()), second(source.size());
  BATON_OK(source.give([&](uint64_t offset, std::span<const std::byte> bytes) { return first.take(offset, bytes); }));
  BATON_OK(first.check());
  std::vector<std::byte> header = first.header();
  if (key_ != nullptr) sealed::mark(header, sealed::kMacKeyed, source.size() + kMacBytes);
  if (!written_in_place(path_)) {
    auto file = OutputFile::create(path_, kModeOwner);
    taken_ = !file;
    if (!file) refused_ = fail(std::move(file).error());
    if (taken_) return {};
    file_ = *std::move(file);
  }
  std::optional<MacSum> mac;
  if (key_ != nullptr) mac.emplace(*key_);
  const auto write = [&](std::span<const std::byte> bytes) {
    if (mac) mac->update(bytes);
    refused_ = put(bytes);
    return refused_;
  };
  Status given = source.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    const uint64_t from = second.at();
    const bool in_block = second.in_block();
    BATON_OK(second.take(offset, bytes));
    if (!in_block) return {};
    // The header as it is in the end, in the draft's place.
    const uint64_t of_header =
        std::min<uint64_t>(header.size() - std::min<uint64_t>(header.size(), from), bytes.size());
    if (of_header > 0) BATON_OK(write(std::span(header).subspan(from, of_header)));
    return bytes.size() > of_header ? write(bytes.subspan(of_header)) : Status();
  });
  if (refused_) {
    BATON_OK(std::move(given));
    BATON_OK(second.check());
    if (!second.same_as(first))
      return fail(Code::kInternal, path_.string() + ": the state changed while it was written");
  }
  if (refused_ && mac) refused_ = put(std::move(*mac).value());
  taken_ = true;
  return {};
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, path_.string() + ": no memory for a piece of a sealed state");
}

Status SealFile::commit() {
  BATON_CHECK(taken_);
  BATON_OK(Status(refused_));
  return file_ ? file_->commit() : write_output(path_, held_, kModeOwner);
}

Status write_seal_file(const std::filesystem::path& path, const SealSource& source, const StateKey* key) {
  SealFile file(path, key);
  BATON_OK(file.take(source));
  return file.commit();
}

Result<SealSource> seal_file_source(const std::filesystem::path& path, const StateKey* key) try {
  BATON_TRY(FileReader reader, FileReader::open(path));
  BATON_TRY(const FileIdentity identity, file_identity(path));
  const auto file = std::make_shared<const FileReader>(std::move(reader));
  uint64_t bytes = identity.size;
  std::optional<MacSum> mac;
  if (key != nullptr) {
    std::vector<std::byte> start(std::min(bytes, sealed::kHeaderBytesMin));
    BATON_OK(file->read_at(0, start));
    if (Status carries = check_has_mac(start, bytes); !carries)
      return fail(std::move(carries).error().in(path.string()));
    bytes -= kMacBytes;
    mac.emplace(*key);
  }
  return SealSource(
      bytes, [file, path, bytes, mac](const SealSink& sink) { return give_file(*file, path, bytes, mac, sink); });
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, path.string() + ": no memory for a piece of a sealed state");
}

Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key) try {
  BATON_TRY(SealSource source, seal_file_source(path, key));
  SealReader verifier(expected, nullptr, source.size());
  Status refused;
  const Status given = source.give([&](uint64_t offset, std::span<const std::byte> piece) -> Status {
    refused = verifier.take(offset, piece);
    return key != nullptr ? Status() : refused;  // the MAC comes before every other check
  });
  if (!given && (key != nullptr || refused)) return fail(given.error());
  auto view = verifier.finish();
  if (!view) return fail(std::move(view).error().in(path.string()));
  return SealedFile{std::move(source), *std::move(view)};
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, path.string() + ": no memory for a piece of a sealed state");
}

}  // namespace baton
