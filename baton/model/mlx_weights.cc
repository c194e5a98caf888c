// The parts of an MLX-quantized matrix to one tensor of blocks.
#include "baton/model/mlx_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "baton/base/bytes.h"
#include "baton/model/config_reader.h"

namespace baton {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string_view module_of(std::string_view source) {
  if (source.ends_with(kWeight)) source.remove_suffix(kWeight.size());
  return source;
}

std::string part_of(std::string_view source, std::string_view part) {
  return fmt::format("{}.{}", module_of(source), part);
}

std::string folder_of(const Container& container) {
  const std::filesystem::path& path = container.path;
  return (path.extension() == ".safetensors" ? path.parent_path() : path).string();
}

// The type of a part that has no decoder here, for messages.
std::string unreadable_type(const Container& container, std::string_view tensor) {
  for (const std::string& line : container.unreadable) {
    if (line.size() > tensor.size() + 2 && line[tensor.size()] == ':' && line.starts_with(tensor)) {
      return line.substr(tensor.size() + 2);
    }
  }
  return {};
}

// The configuration's words about one module.
Result<const Format*> format_of_module(const Container& container, std::string_view source) {
  const std::string file = folder_of(container) + "/config.json";
  const std::string module(module_of(source));
  const Json* all = nullptr;
  for (const char* field : {"quantization", "quantization_config"}) {
    const auto found = container.config.is_object() ? container.config.find(field) : container.config.end();
    if (container.config.is_object() && found != container.config.end() && all == nullptr) all = &*found;
  }
  if (all == nullptr || !all->is_object()) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: 'quantization' is {}, but tensor '{}.scales' says that matrix is quantized; take the "
                            "config.json made with the weights",
                            file, all == nullptr ? "missing" : "not an object", module));
  }
  const auto own = all->find(module);
  const bool has_own = own != all->end() && own->is_object();
  if (own != all->end() && !has_own && !(own->is_boolean() && own->get<bool>())) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: quantization.{} must be an object or true, as there is a tensor '{}.scales'", file,
                            module, module));
  }
  const ConfigReader general(*all, file + ": quantization");
  const ConfigReader reader(has_own ? *own : *all,
                            has_own ? fmt::format("{}: quantization.{}", file, module) : file + ": quantization");
  BATON_TRY(const std::string general_mode, general.text("mode", "affine"));
  BATON_TRY(const std::string mode, reader.text("mode", general_mode));
  if (mode != "affine") {
    return fail(
        Code::kUnsupported,
        fmt::format("{}: mode '{}' is not supported (of '{}'): convert the model again with mode affine, or use "
                    "an unquantized folder or a GGUF file",
                    file, mode, module));
  }
  BATON_TRY(const int32_t general_bits, general.integer("bits", 1, 32, 4));
  BATON_TRY(const int32_t general_group, general.integer("group_size", 1, 1 << 16, 64));
  BATON_TRY(const int32_t bits, reader.integer("bits", 1, 32, general_bits));
  BATON_TRY(const int32_t group, reader.integer("group_size", 1, 1 << 16, general_group));
  const Format* format = format_by_name(fmt::format("MLX{}_G{}", bits, group));
  if (format == nullptr) {
    return fail(Code::kUnsupported,
                fmt::format("{}: {} bits in groups of {} are not supported (of '{}'): bits are 2, 3, 4, 5, 6 or 8, "
                            "group_size 32, 64 or 128",
                            file, bits, group, module));
  }
  return format;
}

class Joiner {
 public:
  Joiner(const Container& container, std::string_view source, int64_t rows, int64_t columns)
      : container_(container), file_(container.path.string()), source_(source), rows_(rows), columns_(columns) {}

  Result<Weight> join(std::string name, std::vector<std::unique_ptr<std::byte[]>>& owned) {
    BATON_TRY(const Format* format, format_of_module(container_, source_));
    const int64_t group = format->block_elements, code_bytes = format->block_bytes - 8;
    if (columns_ % group != 0) {
      return refuse(source_, fmt::format("has rows of {}, not a multiple of the group of {}", columns_, group));
    }
    const int64_t groups = columns_ / group;
    BATON_TRY(const std::span<const std::byte> codes, words(*format, groups * code_bytes / 4));
    BATON_TRY(const TensorView* scales, numbers("scales", groups));
    BATON_TRY(const TensorView* biases, numbers("biases", groups));
    const size_t bytes = static_cast<size_t>(rows_ * groups) * format->block_bytes;
    auto memory = std::make_unique<std::byte[]>(bytes);
    std::vector<float> scale_row(static_cast<size_t>(groups)), bias_row(scale_row.size());
    std::byte* to = memory.get();
    const std::byte* from = codes.data();
    for (int64_t r = 0; r < rows_; ++r) {
      decode_row(*scales, r, scale_row);
      decode_row(*biases, r, bias_row);
      for (size_t g = 0; g < scale_row.size(); ++g, from += code_bytes, to += format->block_bytes) {
        store_as(to, scale_row[g]);
        store_as(to + 4, bias_row[g]);
        std::memcpy(to + 8, from, static_cast<size_t>(code_bytes));
      }
    }
    Weight weight{std::move(name), format->dtype, rows_, columns_, memory.get(), bytes, std::string(source_)};
    owned.push_back(std::move(memory));
    return weight;
  }

 private:
  tl::unexpected<Error> refuse(std::string_view tensor, std::string_view why) const {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' {}", file_, tensor, why));
  }
  static void decode_row(const TensorView& tensor, int64_t row, std::vector<float>& to) {
    const Format& format = format_of(tensor.dtype);
    const size_t row_size = to.size() * format.block_bytes;
    format.decode(tensor.data.data() + static_cast<size_t>(row) * row_size, to.data(), to.size());
  }
  Status check_shape(std::string_view tensor, const std::vector<uint64_t>& shape, int64_t columns,
                     std::string_view why) const {
    const std::vector<uint64_t> wanted = {static_cast<uint64_t>(rows_), static_cast<uint64_t>(columns)};
    if (shape == wanted) return {};
    return refuse(tensor,
                  fmt::format("has shape [{}], {} needs [{}]", fmt::join(shape, ", "), why, fmt::join(wanted, ", ")));
  }
  Result<std::span<const std::byte>> words(const Format& format, int64_t columns) {
    const auto found = container_.words.find(source_);
    if (found == container_.words.end()) {
      const TensorView* other = container_.find(source_);
      if (other == nullptr) return refuse(source_, "is missing; the folder is incomplete");
      return refuse(source_, fmt::format("is {}, but tensor '{}' says it is quantized, which is U32",
                                         to_string(other->dtype), part_of(source_, "scales")));
    }
    BATON_OK(check_shape(source_, found->second.shape, columns,
                         fmt::format("{} of rows of {}, by config.json's 'quantization',", format.name, columns_)));
    return found->second.data;
  }
  Result<const TensorView*> numbers(std::string_view part, int64_t columns) {
    const std::string tensor = part_of(source_, part);
    const TensorView* found = container_.find(tensor);
    if (found == nullptr) {
      const std::string type = unreadable_type(container_, tensor);
      if (type.empty() && !container_.words.contains(tensor)) {
        return refuse(tensor,
                      fmt::format("is missing beside '{}', which is quantized; the folder is incomplete", source_));
      }
      return refuse(
          tensor, fmt::format("is of {}, affine quantization has F16, BF16 or F32", type.empty() ? "type U32" : type));
    }
    BATON_OK(check_shape(tensor, found->shape, columns, "config.json's 'quantization'"));
    return found;
  }

  const Container& container_;
  const std::string file_;
  const std::string_view source_;
  const int64_t rows_, columns_;
};

}  // namespace

bool is_mlx_quantized(const Container& container, std::string_view source) {
  if (container.kind != ContainerKind::kSafetensors || !source.ends_with(kWeight)) return false;
  const std::string scales = part_of(source, "scales");
  return container.words.contains(source) || container.find(scales) != nullptr || container.words.contains(scales) ||
         !unreadable_type(container, scales).empty();
}

Result<Weight> join_mlx_weight(const Container& container, std::string_view source, std::string name, int64_t rows,
                               int64_t columns, std::vector<std::unique_ptr<std::byte[]>>& owned) {
  return Joiner(container, source, rows, columns).join(std::move(name), owned);
}

}  // namespace baton
