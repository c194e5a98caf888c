// Reading, choosing, encoding row by row on all threads, writing.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "baton/tools/quantize.h"

#include <fmt/format.h>
#include <pcre2.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <memory>
#include <optional>
#include <tuple>

#include "baton/base/output_file.h"
#include "baton/base/thread_pool.h"
#include "baton/model/container.h"
#include "baton/model/gguf_writer.h"
#include "baton/tools/recipe.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceElements = 32 * 1024;  // values that a thread takes at a time, at least a row
constexpr std::string_view kDropped[] = {
    "general.quantization_version", "general.file_type", "general.alignment", "split.no", "split.count",
    "split.tensors.count"};

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

class Pattern {
 public:
  static Result<Pattern> compile(const std::string& text) {
    int code = 0;
    PCRE2_SIZE at = 0;
    Pattern pattern;
    pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_NEVER_BACKSLASH_C,
                                      &code, &at, nullptr));
    if (pattern.code_ == nullptr) {
      PCRE2_UCHAR why[256] = {};
      pcre2_get_error_message(code, why, sizeof why);
      return fail(Code::kInvalidInput,
                  fmt::format("pattern '{}': {} at character {}", text, reinterpret_cast<const char*>(why), at + 1));
    }
    pattern.match_.reset(pcre2_match_data_create_from_pattern(pattern.code_.get(), nullptr));
    return pattern;
  }
  Result<bool> matches(std::string_view text) const {
    const int found =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match_.get(), nullptr);
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_NOMATCH) return false;
    PCRE2_UCHAR why[256] = {};
    pcre2_get_error_message(found, why, sizeof why);
    return fail(Code::kInvalidInput,
                fmt::format("a pattern against '{}': {}", text, reinterpret_cast<const char*>(why)));
  }

 private:
  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  std::unique_ptr<pcre2_match_data, MatchDeleter> match_;
};

Result<const Recipe*> find_recipe(const std::string& type) {
  if (const Recipe* recipe = recipe_by_name(type)) return recipe;
  std::string upper = type;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  constexpr std::string_view kMixes[] = {"IQ1_S", "IQ1_M",   "IQ2_XXS", "IQ2_XS", "IQ2_S",
                                         "IQ2_M", "IQ3_XXS", "IQ3_XS",  "IQ3_S",  "IQ3_M"};
  const Format* format = format_by_name(type);
  const bool stored = format != nullptr && format->ggml_id != kNoGgmlId;
  std::string why = "no such type to quantize to";
  if (std::find(std::begin(kMixes), std::end(kMixes), upper) != std::end(kMixes) ||
      (stored && format->encode == nullptr)) {
    why = "files of this type are read, but it is not written";
  } else if (stored) {
    why =
        fmt::format("this type is written by --tensor-type '.*={}' only, and by 'baton convert --type'", format->name);
  }
  return fail(Code::kInvalidInput,
              fmt::format("{}: '{}'; there are: {}", why, type, fmt::join(quantize_types(), ", ")));
}

bool is_quantized(DType dtype) { return format_of(dtype).block_elements > 1; }

Status apply_rules(const std::vector<TensorTypeRule>& rules, std::vector<RecipeTensor>& tensors,
                   std::vector<std::string>& notes) {
  for (const TensorTypeRule& rule : rules) {
    if (format_of(rule.type).encode == nullptr) {
      return fail(Code::kUnsupported, fmt::format("type {} cannot be written", to_string(rule.type)));
    }
    BATON_TRY(const Pattern pattern, Pattern::compile(rule.pattern));
    bool matched = false;
    for (RecipeTensor& tensor : tensors) {
      BATON_TRY(const bool matches, pattern.matches(tensor.name));
      if (!matches) continue;
      matched = true;
      if (!tensor.fixed) tensor.fixed = rule.type;
    }
    if (!matched) notes.push_back(fmt::format("no tensor matches '{}'", rule.pattern));
  }
  return {};
}

// Quantizers have no code for NaN or infinity, and scales are f16: what cannot be kept is refused, not changed. The
// sign apart, floats are ordered as integers, NaN being the largest.
bool has_above(std::span<const float> values, float limit) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return largest > std::bit_cast<uint32_t>(limit);
}

class TensorEncoder {
 public:
  explicit TensorEncoder(uint32_t threads) : pool_(threads), buffers_(pool_.size()) {}

  // `importance`: [matrices][columns] or empty.
  Result<std::vector<std::byte>> encode(const TensorView& tensor, DType dtype, std::span<const float> importance) {
    const uint64_t columns = tensor.shape.back(), rows = tensor.elements() / columns;
    BATON_TRY(const uint64_t row_from, row_bytes(tensor.dtype, columns));
    BATON_TRY(const uint64_t row_to, row_bytes(dtype, columns));
    std::vector<std::byte> bytes(rows * row_to);
    const Format& from = format_of(tensor.dtype);
    const Format& to = format_of(dtype);
    const bool wide = dtype == DType::kF32 || dtype == DType::kBF16;
    const float limit = wide ? std::numeric_limits<float>::max() : 65504.0f;
    const auto grain = static_cast<int64_t>(std::max<uint64_t>(1, kPieceElements / columns));
    for (auto& buffer : buffers_) buffer.resize(static_cast<size_t>(grain) * columns);
    std::atomic<bool> refused{false};
    pool_.parallel_for(static_cast<int64_t>(rows), grain, [&](int64_t begin, int64_t end, uint32_t thread) {
      const auto first = static_cast<uint64_t>(begin);
      const auto values = std::span(buffers_[thread]).first(static_cast<uint64_t>(end - begin) * columns);
      from.decode(tensor.data.data() + first * row_from, values.data(), values.size());
      if (has_above(values, limit)) {
        refused.store(true, std::memory_order_relaxed);
      } else {
        encode_rows(to, values, importance, first, rows, columns, bytes.data() + first * row_to);
      }
    });
    if (refused) {
      return fail(Code::kInvalidInput,
                  fmt::format("holds NaN, infinity or values that {} cannot hold; the file is damaged or needs another "
                              "type",
                              to.name));
    }
    return bytes;
  }

 private:
  // Rows from `first` on, of `rows` in all; the rows of each matrix have their own importance.
  static void encode_rows(const Format& to, std::span<const float> values, std::span<const float> importance,
                          uint64_t first, uint64_t rows, uint64_t columns, std::byte* bytes) {
    if (importance.empty() || to.encode_weighted == nullptr) return to.encode(values.data(), bytes, values.size());
    const uint64_t matrix_rows = rows / (importance.size() / columns);
    const uint64_t row_size = columns / to.block_elements * to.block_bytes;
    for (uint64_t row = 0; row < values.size() / columns; ++row) {
      to.encode_weighted(values.data() + row * columns, importance.data() + (first + row) / matrix_rows * columns,
                         bytes + row * row_size, columns);
    }
  }

  ThreadPool pool_;
  std::vector<std::vector<float>> buffers_;  // per thread
};

std::string recipe_hash(std::span<const RecipeTensor> tensors, std::span<const TypeChoice> choices,
                        std::span<const std::vector<float>> importance) {
  std::string text;
  for (size_t i = 0; i < tensors.size(); ++i) {
    text.append(tensors[i].name).append("=").append(to_string(choices[i].dtype)).append("\n");
    text.append(reinterpret_cast<const char*>(importance[i].data()), importance[i].size() * sizeof(float));
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// One line per kind of fallback: a model can have hundreds of such tensors.
void note_fallbacks(std::span<const RecipeTensor> tensors, std::span<const TypeChoice> choices,
                    std::vector<std::string>& notes) {
  std::map<std::tuple<uint64_t, DType, DType>, std::vector<std::string_view>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (choices[i].dtype == choices[i].wanted) continue;
    groups[{tensors[i].shape.back(), choices[i].wanted, choices[i].dtype}].push_back(tensors[i].name);
  }
  for (const auto& [key, names] : groups) {
    const auto& [columns, wanted, dtype] = key;
    notes.push_back(fmt::format("{} with rows of {}, no multiple of {}: {} instead of {} ({}{})",
                                names.size() == 1 ? "1 tensor" : fmt::format("{} tensors", names.size()), columns,
                                format_of(wanted).block_elements, to_string(dtype), to_string(wanted), names.front(),
                                names.size() == 1 ? "" : ", ..."));
  }
}

// The weights of each tensor that will be encoded with weights; empty for the others.
Result<std::vector<std::vector<float>>> importance_of(const ImportanceMatrix* matrix,
                                                      std::span<const RecipeTensor> tensors,
                                                      std::span<const TypeChoice> choices,
                                                      std::vector<std::string>& notes) {
  std::vector<std::vector<float>> importance(tensors.size());
  if (matrix == nullptr) return importance;
  std::vector<std::string_view> missing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RecipeTensor& tensor = tensors[i];
    if (choices[i].dtype == tensor.dtype || format_of(choices[i].dtype).encode_weighted == nullptr) continue;
    importance[i] = matrix->means(tensor.name);
    if (importance[i].empty()) {
      missing.push_back(tensor.name);
      continue;
    }
    uint64_t matrices = 1;
    for (size_t dim = 0; dim + 2 < tensor.shape.size(); ++dim) matrices *= tensor.shape[dim];
    if (importance[i].size() != tensor.shape.back() * matrices) {
      return fail(Code::kInvalidInput,
                  fmt::format("tensor '{}' has {} columns, but the importance matrix {}: it is of another model",
                              tensor.name, tensor.shape.back() * matrices, importance[i].size()));
    }
  }
  if (!missing.empty()) {
    notes.push_back(fmt::format("{} quantized without importance, which has no entry for {}: {}",
                                missing.size() == 1 ? "1 tensor" : fmt::format("{} tensors", missing.size()),
                                missing.size() == 1 ? "it" : "them", fmt::join(missing, ", ")));
  }
  return importance;
}

// As llama.cpp's tool does, for those who want to know later.
void put_importance(GgufWriter& writer, const ImportanceMatrix& matrix) {
  writer.put_string("quantize.imatrix.file", matrix.file);
  if (!matrix.datasets.empty()) writer.put_string("quantize.imatrix.dataset", matrix.datasets.front());
  writer.put_u32("quantize.imatrix.entries_count", static_cast<uint32_t>(matrix.entries.size()));
  if (matrix.chunks > 0) writer.put_u32("quantize.imatrix.chunks_count", matrix.chunks);
}

Status check_source(const Container& container, const fs::path& source) {
  if (container.kind != ContainerKind::kGguf) {
    return fail(Code::kUnsupported,
                fmt::format("{}: quantize takes a GGUF file: make one with 'baton convert'", source.string()));
  }
  if (!container.unreadable.empty()) {
    return fail(Code::kUnsupported,
                fmt::format("{}: {} (and {} more) cannot be read here: take the model in F16, BF16 "
                            "or F32",
                            source.string(), container.unreadable.front(), container.unreadable.size() - 1));
  }
  return {};
}

}  // namespace

std::vector<std::string_view> quantize_types() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes()) {
    if (format_of(recipe.base).encode != nullptr) names.push_back(recipe.name);
  }
  return names;
}

Status check_pattern(const std::string& pattern) {
  BATON_TRY([[maybe_unused]] const Pattern compiled, Pattern::compile(pattern));
  return {};
}

Status check_quantize_type(const std::string& type) {
  BATON_OK(find_recipe(type));
  return {};
}

Result<QuantizeReport> quantize_to_gguf(const fs::path& source, const fs::path& out, const QuantizeOptions& options) {
  BATON_TRY(const Recipe* const recipe, find_recipe(options.type));
  BATON_TRY(const Container container, open_container(source));
  BATON_OK(check_source(container, source));
  if (same_file(source, out)) {
    return fail(Code::kInvalidInput, fmt::format("{}: is the source too; give the result another name", out.string()));
  }
  auto facts = recipe_facts(container.gguf);
  if (!facts) return fail(std::move(facts).error().in(source.string()));

  facts->has_importance = options.importance != nullptr;

  std::vector<const TensorView*> views;
  for (const TensorView& view : container.tensors) views.push_back(&view);
  std::sort(views.begin(), views.end(),
            [](const TensorView* a, const TensorView* b) { return recipe_order(a->name, b->name); });
  std::vector<RecipeTensor> tensors;
  for (const TensorView* view : views) tensors.push_back({view->name, view->dtype, view->shape, std::nullopt});

  QuantizeReport report;
  BATON_OK(apply_rules(options.rules, tensors, report.notes));
  const std::vector<TypeChoice> choices = choose_types(*recipe, options.pure, *facts, tensors);
  BATON_TRY(const auto importance, importance_of(options.importance, tensors, choices, report.notes));
  report.recipe_hash = recipe_hash(tensors, choices, importance);
  note_fallbacks(tensors, choices, report.notes);

  GgufWriter writer;
  for (size_t i = 0; i < container.gguf.entries.size(); ++i) {
    const std::string_view key = container.gguf.entries[i].first;
    if (std::find(std::begin(kDropped), std::end(kDropped), key) == std::end(kDropped)) {
      writer.put_raw(key, container.gguf.raw[i]);
    }
  }
  writer.put_u32("general.quantization_version", 2);
  writer.put_u32("general.file_type", recipe->file_type);
  if (options.importance != nullptr) put_importance(writer, *options.importance);

  TensorEncoder encoder(options.threads);
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = *views[i];
    const DType dtype = choices[i].dtype;
    if (view.dtype != dtype && is_quantized(view.dtype) && !options.allow_requantize) {
      return fail(
          Code::kInvalidInput,
          fmt::format("{}: tensor '{}' is {} already; quantizing again loses more than the type tells: take the "
                      "model in F16, BF16 or F32, or add --allow-requantize",
                      source.string(), view.name, to_string(view.dtype)));
    }
    if (format_of(dtype).encode == nullptr) {
      return fail(Code::kUnsupported,
                  fmt::format("tensor '{}': type {} cannot be written", view.name, to_string(dtype)));
    }
    ++report.types[std::string(to_string(dtype))];
    report.bytes_in += view.data.size();
    writer.add_tensor(std::string(view.name), dtype, view.shape,
                      [&view, &encoder, dtype, weights = std::span(importance[i])]() -> Result<std::vector<std::byte>> {
                        if (view.dtype == dtype) return std::vector<std::byte>(view.data.begin(), view.data.end());
                        return encoder.encode(view, dtype, weights);
                      });
  }
  report.tensors = views.size();
  auto written = writer.write(out, options.on_tensor);
  if (!written) return fail(std::move(written).error().in(source.string()));
  report.bytes = *written;
  return report;
}

}  // namespace baton
