// Sealed states in files.
#include "baton/state/seal_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "baton/base/file.h"
#include "baton/base/output_file.h"
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

Status write_seal_file(const std::filesystem::path& path, const SealSource& source, const StateKey* key) try {
  BATON_TRY(const std::vector<std::byte> header, final_header(source));
  std::vector<std::byte> first = header;
  if (key != nullptr) sealed::mark(first, sealed::kMacKeyed, source.size() + kMacBytes);
  BATON_TRY(OutputFile file, OutputFile::create(path, kModeOwner));
  std::optional<MacSum> mac;
  if (key != nullptr) mac.emplace(*key);
  uint64_t at = 0;
  BATON_OK(source.give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset == 0 && at > 0) {
      if (std::equal(bytes.begin(), bytes.end(), header.begin(), header.end())) return {};
      return fail(Code::kInternal, path.string() + ": the state changed while it was written");
    }
    BATON_CHECK(offset == at);
    at += bytes.size();
    if (offset == 0) bytes = first;
    if (mac) mac->update(bytes);
    return file.write(bytes);
  }));
  if (mac) BATON_OK(file.write(std::move(*mac).value()));
  return file.commit();
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, path.string() + ": no memory for a piece of a sealed state");
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
