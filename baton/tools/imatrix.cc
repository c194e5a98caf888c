// Reading and writing llama.cpp's files. imatrix_measure.cc collects.
#include "baton/tools/imatrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"
#include "baton/model/gguf_writer.h"

namespace baton {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr size_t kLegacyBytesMax = size_t{1} << 30;
constexpr uint32_t kLegacyEntriesMax = 1 << 18, kLegacyNameMax = 4096;
// Of activations that are not all zero and whose products stay far from the largest float.
constexpr double kMeanSquareMin = 1e-20, kMeanSquareMax = 1e20;

Status check_values(std::string_view name, std::span<const double> values) {
  for (const double value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    return fail(Code::kInvalidInput, fmt::format("entry '{}' holds {}: make the matrix again", shown(name), value));
  }
  return {};
}

Status check_entry(std::string_view name, const ImportanceEntry& entry) {
  if (entry.counts.empty() || entry.sums.empty() || entry.sums.size() % entry.counts.size() != 0) {
    return fail(Code::kInvalidInput, fmt::format("entry '{}' has {} sums and {} counts", shown(name), entry.sums.size(),
                                                 entry.counts.size()));
  }
  BATON_OK(check_values(name, entry.sums));
  BATON_OK(check_values(name, entry.counts));
  const size_t columns = entry.sums.size() / entry.counts.size();
  for (size_t i = 0; i < entry.counts.size(); ++i) {
    if (entry.counts[i] == 0) {  // never reached: all columns count alike
      const auto from = entry.sums.begin() + static_cast<ptrdiff_t>(i * columns);
      if (std::all_of(from, from + static_cast<ptrdiff_t>(columns), [](auto sum) { return sum == 0; })) continue;
      return fail(Code::kInvalidInput, fmt::format("entry '{}' has sums of no calls", shown(name)));
    }
    const auto begin = entry.sums.begin() + static_cast<ptrdiff_t>(i * columns);
    const double largest = *std::max_element(begin, begin + static_cast<ptrdiff_t>(columns)) / entry.counts[i];
    if (largest >= kMeanSquareMin && largest <= kMeanSquareMax) continue;
    return fail(Code::kInvalidInput,
                fmt::format("entry '{}': the largest mean square of an activation is {:g}, no model's is below {:g} or "
                            "above {:g}: make the matrix again",
                            shown(name), largest, kMeanSquareMin, kMeanSquareMax));
  }
  return {};
}

std::vector<double> values_of(const TensorView& tensor) {
  std::vector<double> values(tensor.elements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = load_as<float>(tensor.data.data() + i * sizeof(float));
  return values;
}

Result<ImportanceMatrix> read_gguf(const Container& container) {
  BATON_TRY(const auto type, container.gguf.text("general.type"));
  if (!type || *type != "imatrix") {
    return fail(Code::kInvalidInput, "not an importance matrix: key 'general.type' is not 'imatrix'");
  }
  ImportanceMatrix matrix;
  BATON_TRY(const GgufArray* datasets, container.gguf.array("imatrix.datasets"));
  if (datasets != nullptr) {
    if (const auto* names = std::get_if<std::vector<std::string_view>>(&datasets->items)) {
      matrix.datasets.assign(names->begin(), names->end());
    }
  }
  BATON_TRY(const auto chunks, container.gguf.unsigned_integer("imatrix.chunk_count"));
  BATON_TRY(const auto chunk_tokens, container.gguf.unsigned_integer("imatrix.chunk_size"));
  matrix.chunks = static_cast<uint32_t>(chunks.value_or(0));
  matrix.chunk_tokens = static_cast<uint32_t>(chunk_tokens.value_or(0));
  for (const TensorView& tensor : container.tensors) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - kSums.size()));
    const TensorView* counts = container.find(name + std::string(kCounts));
    if (counts == nullptr) return fail(Code::kInvalidInput, fmt::format("entry '{}' has no counts", shown(name)));
    if (tensor.dtype != DType::kF32 || counts->dtype != DType::kF32) {
      return fail(Code::kInvalidInput, fmt::format("entry '{}' is not F32", shown(name)));
    }
    ImportanceEntry entry{values_of(tensor), values_of(*counts)};
    BATON_OK(check_entry(name, entry));
    matrix.entries.emplace(name, std::move(entry));
  }
  if (matrix.entries.empty()) return fail(Code::kInvalidInput, "an importance matrix without entries");
  return matrix;
}

// i32 entries; per entry: i32 bytes of the name, the name, i32 calls, i32 values, f32 values, which are means times
// calls; then, in later versions, i32 chunks, i32 bytes of the data set's name, the name.
Result<ImportanceMatrix> read_legacy(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ImportanceMatrix matrix;
  BATON_TRY(const auto count, reader.read<uint32_t>("the number of entries"));
  if (count == 0 || count > kLegacyEntriesMax) {
    return fail(Code::kInvalidInput, "neither a GGUF file nor an importance matrix of the older format");
  }
  for (uint32_t i = 0; i < count; ++i) {
    BATON_TRY(const auto length, reader.read<uint32_t>("the length of a name"));
    if (length == 0 || length > kLegacyNameMax) {
      return fail(Code::kInvalidInput, fmt::format("entry {}: a name of {} bytes", i, length));
    }
    BATON_TRY(const auto name, reader.take(length, "a name"));
    BATON_TRY(const auto calls, reader.read<int32_t>("a number of calls"));
    BATON_TRY(const auto values, reader.read<uint32_t>("a number of values"));
    BATON_TRY(const auto data, reader.take(uint64_t{values} * sizeof(float), "values"));
    ImportanceEntry entry;
    for (uint32_t j = 0; j < values; ++j) entry.sums.push_back(load_as<float>(data.data() + j * sizeof(float)));
    entry.counts.push_back(calls > 0 ? calls : 1);
    BATON_OK(check_entry(as_text(name), entry));
    matrix.entries.emplace(std::string(as_text(name)), std::move(entry));
  }
  if (reader.offset() < bytes.size()) {
    BATON_TRY(matrix.chunks, reader.read<uint32_t>("the number of chunks"));
    BATON_TRY(const auto length, reader.read<uint32_t>("the length of a name"));
    BATON_TRY(const auto name, reader.take(length, "a name"));
    matrix.datasets.emplace_back(as_text(name));
  }
  return matrix;
}

}  // namespace

std::vector<float> ImportanceMatrix::means(std::string_view tensor) const {
  const auto found = entries.find(tensor);
  if (found == entries.end()) return {};
  const ImportanceEntry& entry = found->second;
  const size_t columns = entry.sums.size() / entry.counts.size();
  std::vector<float> result(entry.sums.size());
  for (size_t i = 0; i < result.size(); ++i) {
    const auto count = static_cast<float>(entry.counts[i / columns]);
    result[i] = count > 0 ? static_cast<float>(entry.sums[i]) / count : 1.0f;
  }
  return result;
}

Result<ImportanceMatrix> read_importance(const std::filesystem::path& path) {
  BATON_TRY(const auto file, MappedFile::open(path));
  const auto bytes = file.bytes();
  const bool gguf = bytes.size() >= 4 && as_text(bytes.first(4)) == "GGUF";
  if (!gguf && bytes.size() > kLegacyBytesMax) {
    return fail(Code::kInvalidInput, fmt::format("{}: not an importance matrix", path.string()));
  }
  std::optional<Container> container;
  if (gguf) {
    BATON_TRY(container, open_container(path));
  }
  auto matrix = gguf ? read_gguf(*container) : read_legacy(bytes);
  if (!matrix) return fail(std::move(matrix).error().in(path.string()));
  matrix->file = path.string();
  return matrix;
}

Status write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  GgufWriter writer;
  writer.put_string("general.type", "imatrix");
  writer.put_strings("imatrix.datasets", {matrix.datasets.begin(), matrix.datasets.end()});
  writer.put_u32("imatrix.chunk_count", matrix.chunks);
  writer.put_u32("imatrix.chunk_size", matrix.chunk_tokens);
  for (const auto& item : matrix.entries) {
    const auto& name = item.first;
    const auto& entry = item.second;
    const auto add = [&](std::string_view suffix, const std::vector<double>& values) {
      std::vector<uint64_t> shape = {values.size()};
      if (entry.counts.size() > 1) shape = {entry.counts.size(), values.size() / entry.counts.size()};
      writer.add_tensor(name + std::string(suffix), DType::kF32, shape, [&values]() -> Result<std::vector<std::byte>> {
        std::vector<std::byte> bytes(values.size() * sizeof(float));
        for (size_t i = 0; i < values.size(); ++i) {
          store_as<float>(bytes.data() + i * sizeof(float), static_cast<float>(values[i]));
        }
        return bytes;
      });
    };
    add(kSums, entry.sums);
    add(kCounts, entry.counts);
  }
  BATON_OK(writer.write(path));
  return {};
}

}  // namespace baton
