// Sealed states in files.
#include "baton/state/seal_file.h"

#include <fmt/format.h>

#include <new>

#include "baton/base/file.h"
#include "baton/base/output_file.h"

namespace baton {
namespace {

Result<SealedFile> read_verified(std::span<const std::byte> mapped, const SealExpectation& expected,
                                 const StateKey* key) try {
  // A stranger's file costs one pass and no memory.
  BATON_OK(key != nullptr ? check_mac(mapped, *key) : check_seal_header(mapped, expected));
  SealedFile file;
  file.block.assign(mapped.begin(), mapped.end());
  if (key != nullptr) {
    BATON_TRY(file.block, remove_mac(std::move(file.block), *key));
  }
  BATON_TRY(file.view, open_seal(file.block, expected));
  return file;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("sealed state: no memory for its {} bytes", mapped.size()));
}

}  // namespace

Status write_seal_file(const std::filesystem::path& path, std::span<const std::byte> block, const StateKey* key) {
  if (key == nullptr) return write_output(path, block, kModeOwner);
  auto keyed = add_mac({block.begin(), block.end()}, *key);
  if (!keyed) return fail(std::move(keyed).error().in(path.string()));
  return write_output(path, *keyed, kModeOwner);
}

Result<SealedFile> read_seal_file(const std::filesystem::path& path, const SealExpectation& expected,
                                  const StateKey* key) {
  BATON_TRY(const MappedFile mapped, MappedFile::open(path));
  auto file = read_verified(mapped.bytes(), expected, key);
  if (!file) return fail(std::move(file).error().in(path.string()));
  return file;
}

}  // namespace baton
