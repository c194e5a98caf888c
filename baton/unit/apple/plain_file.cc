// Through a stream, under a temporary name beside the file.
#include "baton/unit/apple/plain_file.h"

#include <fmt/format.h>

#include <fstream>

namespace baton::apple {

Status write_plain_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  const std::filesystem::path temporary = path.string() + ".new";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  for (const auto& part : parts)
    out.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, path, error);
  if (!out || error) {
    std::filesystem::remove(temporary, error);
    return fail(Code::kInvalidInput,
                fmt::format("{}: cannot be written; is the folder there and the disk not full?", path.string()));
  }
  return {};
}

}  // namespace baton::apple
