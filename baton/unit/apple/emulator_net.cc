// net.plist of the emulator: four words of header in lines, one line per weight file, then the text.
#include "baton/unit/apple/emulator_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/unit/apple/plain_file.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {
namespace {

constexpr std::string_view kMagic = "baton emulated net 1";
constexpr uint64_t kFilesMax = 4096;
constexpr uint64_t kAlignment = 64;

// Reads lines off the front of a text.
struct Lines {
  std::string_view rest;
  std::string_view next() {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
  }
};

bool read_u64(std::string_view* text, uint64_t* value) {
  while (text->starts_with(' ')) text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

bool parse_net(std::string_view text, EmulatedNet* net, uint64_t* data_bytes) {
  Lines lines{text};
  if (lines.next() != kMagic) return false;
  std::string_view counts = lines.next();
  uint64_t file_count = 0;
  if (!read_u64(&counts, &file_count) || !counts.empty() || file_count > kFilesMax) return false;
  uint64_t at = 0;
  for (uint64_t i = 0; i < file_count; ++i) {
    std::string_view line = lines.next();
    EmulatedNet::File file;
    if (!read_u64(&line, &file.bytes) || !line.starts_with(' ') || line.size() < 2) return false;
    file.path = line.substr(1);
    if (!checked_align(at, kAlignment, &file.offset) || !checked_add(file.offset, file.bytes, &at)) return false;
    net->files.push_back(std::move(file));
  }
  *data_bytes = at;
  net->mil = lines.rest;
  return true;
}

}  // namespace

WeightFiles EmulatedNet::weights() const {
  WeightFiles out;
  for (const File& file : files)
    out.emplace(file.path, std::span<const std::byte>(data).subspan(file.offset, file.bytes));
  return out;
}

Status write_net(const std::filesystem::path& folder, std::string_view mil, const WeightFiles& weights) {
  static constexpr std::byte kZeros[kAlignment] = {};
  std::string head = fmt::format("{}\n{}\n", kMagic, weights.size());
  std::vector<std::span<const std::byte>> parts;
  uint64_t at = 0;
  for (const auto& [path, bytes] : weights) {
    head += fmt::format("{} {}\n", bytes.size(), path);
    parts.emplace_back(kZeros, (kAlignment - at % kAlignment) % kAlignment);
    parts.push_back(bytes);
    at = (at + kAlignment - 1) / kAlignment * kAlignment + bytes.size();
  }
  BATON_OK(write_plain_file(folder / "data", parts));
  const std::span<const std::byte> net[] = {as_bytes(head), as_bytes(mil)};
  return write_plain_file(folder / "net.plist", net);
}

Result<EmulatedNet> read_net(const std::filesystem::path& folder) {
  const std::filesystem::path net_path = folder / "net.plist", data_path = folder / "data";
  std::error_code error;
  if (!std::filesystem::is_regular_file(net_path, error)) {
    return fail(rule_error(Rule::kNetMissing, fmt::format("{} is not there; compile first", net_path.string())));
  }
  if (!std::filesystem::is_regular_file(data_path, error)) {
    return fail(rule_error(Rule::kDataMissing, fmt::format("{} is not there; compile first", data_path.string())));
  }
  auto text = read_file(net_path, kMilTextBytesMax + (1u << 20));
  EmulatedNet net;
  uint64_t data_bytes = 0;
  if (!text || !parse_net(*text, &net, &data_bytes)) {
    return fail(rule_error(Rule::kNetCorrupt, fmt::format("{} is not what the compiler wrote", net_path.string())));
  }
  auto data = MappedFile::open(data_path);
  if (!data || data->bytes().size() != data_bytes) {
    return fail(rule_error(Rule::kNetCorrupt, fmt::format("{}: expected {} bytes", data_path.string(), data_bytes)));
  }
  net.data.assign(data->bytes().begin(), data->bytes().end());
  return net;
}

}  // namespace baton::apple
