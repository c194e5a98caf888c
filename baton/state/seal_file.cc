// Sealed states in files.
#include "baton/state/seal_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "baton/base/file.h"
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

// The header as it is behind all sections; of a state without a MAC.
Result<std::vector<std::byte>> final_header(const SealSource& source) {
  std::vector<std::byte> header;
  BATON_OK(source.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset == 0) header.assign(bytes.begin(), bytes.end());
    return {};
  }));
  BATON_OK(sealed::header_length(header, source.size()));
  BATON_TRY(const sealed::Header fields, sealed::read_header(header));
  if (fields.mac != 0) return fail(Code::kInvalidInput, "sealed state: it carries a MAC already");
  return header;
}

}  // namespace

Status SealFile::put(std::span<const std::byte> bytes) {
  if (file_) return file_->write(bytes);
  held_.insert(held_.end(), bytes.begin(), bytes.end());
  return {};
}

Status SealFile::take(const SealSource& source) try {
  BATON_CHECK(!taken_);
  BATON_TRY(const std::vector<std::byte> header, final_header(source));
  std::vector<std::byte> first = header;
  if (key_ != nullptr) sealed::mark(first, sealed::kMacKeyed, source.size() + kMacBytes);
  if (!written_in_place(path_)) {
    auto file = OutputFile::create(path_, kModeOwner);
    taken_ = !file;
    if (!file) refused_ = fail(std::move(file).error());
    if (taken_) return {};
    file_ = *std::move(file);
  }
  std::optional<MacSum> mac;
  if (key_ != nullptr) mac.emplace(*key_);
  uint64_t at = 0;
  Status given = source.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset == 0 && at > 0) {
      if (std::equal(bytes.begin(), bytes.end(), header.begin(), header.end())) return {};
      return fail(Code::kInternal, path_.string() + ": the state changed while it was written");
    }
    BATON_CHECK(offset == at);
    at += bytes.size();
    if (offset == 0) bytes = first;
    if (mac) mac->update(bytes);
    refused_ = put(bytes);
    return refused_;
  });
  if (refused_) BATON_OK(std::move(given));
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

Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key) try {
  const auto here = [&](Error error) { return fail(std::move(error).in(path.string())); };
  BATON_TRY(FileReader reader, FileReader::open(path));
  BATON_TRY(const FileIdentity identity, file_identity(path));
  const auto file = std::make_shared<const FileReader>(std::move(reader));
  uint64_t bytes = identity.size;
  std::optional<MacSum> mac;
  if (key != nullptr) {
    std::vector<std::byte> start(std::min(bytes, sealed::kHeaderBytesMin));
    BATON_OK(file->read_at(0, start));
    if (Status carries = check_has_mac(start, bytes); !carries) return here(carries.error());
    bytes -= kMacBytes;
    mac.emplace(*key);
  }
  SealedFile opened{
      {bytes, [file, path, bytes, mac](const SealSink& sink) { return give_file(*file, path, bytes, mac, sink); }}, {}};
  SealReader verifier(expected, nullptr, bytes);
  Status refused;
  const Status given = opened.source.give([&](uint64_t offset, std::span<const std::byte> piece) -> Status {
    refused = verifier.take(offset, piece);
    return key != nullptr ? Status() : refused;  // the MAC comes before every other check
  });
  if (!given && (key != nullptr || refused)) return fail(given.error());
  auto view = verifier.finish();
  if (!view) return here(view.error());
  opened.view = *std::move(view);
  return opened;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, path.string() + ": no memory for a piece of a sealed state");
}

}  // namespace baton
