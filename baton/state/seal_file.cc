// Sealed states in files.
#include "baton/state/seal_file.h"

#include <fmt/format.h>

#include <new>

#include "baton/base/file.h"
#include "baton/base/output_file.h"

namespace baton {
namespace {

Result<SealedFile> read_verified(std::span<const std::byte> mapped, const SealExpectation& expected) try {
  BATON_OK(check_seal_header(mapped, expected));
  SealedFile file;
  file.block.assign(mapped.begin(), mapped.end());
  BATON_TRY(file.view, open_seal(file.block, expected));
  return file;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("sealed state: no memory for its {} bytes", mapped.size()));
}

}  // namespace

Status write_seal_file(const std::filesystem::path& path, std::span<const std::byte> block) {
  return write_output(path, block, kModeOwner);
}

Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected) {
  BATON_TRY(const MappedFile mapped, MappedFile::open(path));
  auto file = read_verified(mapped.bytes(), expected);
  if (!file) return fail(std::move(file).error().in(path.string()));
  return file;
}

}  // namespace baton
