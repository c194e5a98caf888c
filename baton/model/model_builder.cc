// Tensor roles to weights.
#include "baton/model/model_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "baton/model/container_text.h"
#include "baton/model/harmless.h"
#include "baton/model/mlx_weights.h"
#include "baton/model/packed_weights.h"

namespace baton {
namespace {

// At the first place of a pattern, where it has one.
std::string with_number(std::string_view pattern, int32_t number) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(number));
  return name;
}

// Published multimodal files, text-only files, MLX-converted files; encoders by their family.
constexpr std::string_view kPrefixes[] = {"model.language_model.",
                                          "model.",
                                          "language_model.model.",
                                          "bert.",
                                          "transformer.",
                                          "roberta.",
                                          "distilbert.",
                                          "nomic_bert.",
                                          "gte.",
                                          "new.",
                                          ""};

// The number in GGUF's "blk.7.": of the tensors of one block.
std::optional<int32_t> block_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  int32_t block = 0;
  if (!name.starts_with(kBlock)) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kBlock.size(), end, block);
  if (error != std::errc{} || stop == end || *stop != '.') return std::nullopt;
  return block;
}

bool is_matrix_rule(TensorRule rule) {
  return rule == TensorRule::kMatrix || rule == TensorRule::kTurned || rule == TensorRule::kTurnedExperts;
}

// Shapes without dims of 1, so that [C, 1, K], [C, K, 1] and [C, K] compare equal.
std::vector<uint64_t> squeezed(const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](uint64_t dim) { return dim != 1; });
  return out;
}

}  // namespace

ModelBuilder::ModelBuilder(const Architecture& architecture, Model& model, std::span<const Adapter> adapters)
    : architecture_(architecture), model_(model), container_(*model.container), adapters_(adapters) {
  if (container_.kind == ContainerKind::kGguf) return;
  naming_ = Naming::kHuggingFace;
  const auto embed = role_of("embed");
  for (const std::string_view prefix : kPrefixes) {
    if (embed && has_tensor(std::string(prefix).append((*embed)->hugging_face))) {
      prefix_ = prefix;
      break;
    }
  }
  if (prefix_ == "language_model.model.") naming_ = Naming::kMlx;
  // MLX squeezes the kernel's last dim; a file under its prefix that still has [C, 1, K] was only renamed.
  for (const TensorView& tensor : container_.tensors) {
    if (tensor.name.ends_with("conv1d.weight") && tensor.shape.size() == 3) {
      naming_ = tensor.shape[2] == 1 && tensor.shape[1] != 1 ? Naming::kMlx : Naming::kHuggingFace;
      break;
    }
  }
  turns_ = stored_turned();
}

// By the first matrix of queries, keys and values, three times as many outs as ins: MLX's converter has turned it.
bool ModelBuilder::stored_turned() const {
  const auto role = role_of("layers.{}.attn.q");
  if (naming_ == Naming::kGguf || !role || (*role)->rule != TensorRule::kTurned) return false;
  const std::string source = source_name(**role, 0);
  const TensorView* tensor = container_.find(source);
  if (tensor == nullptr) return !is_mlx_quantized(container_, source);
  return tensor->shape.size() != 2 || tensor->shape[0] <= tensor->shape[1];
}

RegisterId ModelBuilder::add_register(std::string name, int32_t width) {
  model_.program.registers.push_back({std::move(name), width});
  return static_cast<RegisterId>(model_.program.registers.size()) - 1;
}

SlotId ModelBuilder::add_slot(const Slot& slot) {
  model_.program.slots.push_back(slot);
  return static_cast<SlotId>(model_.program.slots.size()) - 1;
}

Result<const TensorRole*> ModelBuilder::role_of(std::string_view ours) const {
  for (const TensorRole& role : architecture_.roles) {
    if (role.ours == ours) return &role;
  }
  return fail(Code::kInternal, fmt::format("architecture {} has no tensor role '{}'", architecture_.name, ours));
}

std::string ModelBuilder::source_name(const TensorRole& role, int32_t layer) const {
  if (naming_ == Naming::kGguf) return with_number(role.gguf, layer);
  // The output head lies beside the trunk, not under its prefix.
  if (role.hugging_face.starts_with("lm_head")) {
    std::string name(role.hugging_face);
    if (!has_tensor(name) && has_tensor("language_model." + name)) {
      name.insert(0, "language_model.");
    }
    return name;
  }
  return prefix_ + with_number(role.hugging_face, layer);
}

bool ModelBuilder::has(std::string_view ours, int32_t layer) const {
  const auto role = role_of(ours);
  return role && has_tensor(source_name(**role, layer));
}

// A file that lost one tensor has no key that says so.
Status ModelBuilder::check_bias_as_before(const std::string& role, const std::string& source, bool there) {
  const auto& [first, first_there] = biases_.try_emplace(role, source, there).first->second;
  if (there == first_there) return {};
  return fail(Code::kInvalidInput,
              fmt::format("{}: tensor '{}' is missing, and '{}' is there: all layers have this bias, or none; the file "
                          "is damaged, make it again",
                          container_.path.string(), there ? first : source, there ? source : first));
}

Result<bool> ModelBuilder::has_bias(std::string_view ours, int32_t layer) {
  const auto role = role_of(fmt::format("{}.bias", ours));
  if (!role) return false;
  const std::string source = source_name(**role, layer);
  const bool there = has_tensor(source);
  if (naming_ == Naming::kGguf) {
    BATON_OK(check_bias_as_before(std::string(ours), source, there));
    return there;
  }
  const bool of_attention = ours.find(".attn.") != std::string_view::npos;
  const bool wanted = of_attention ? model_.spec.attention_bias : model_.spec.mlp_bias;
  if (there && !wanted) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: there is a tensor '{}', but config.json does not say \"{}\": true; add that, or "
                            "remove the tensor",
                            container_.path.string(), source, of_attention ? "attention_bias" : "mlp_bias"));
  }
  return wanted;
}

bool ModelBuilder::has_tensor(const std::string& source) const {
  return container_.find(source) != nullptr || is_packed(container_, source) || is_mlx_quantized(container_, source);
}

Result<WeightId> ModelBuilder::weight(std::string_view ours, int32_t layer, int64_t rows, int64_t columns,
                                      RowPart part) {
  BATON_TRY(const TensorRole* role, role_of(ours));
  BATON_TRY(const WeightId id,
            add_weight(*role, source_name(*role, layer), with_number(role->ours, layer), rows, columns, part));
  if (is_matrix_rule(role->rule)) BATON_OK(find_adapters(*role, layer, id, part));
  return id;
}

Result<WeightId> ModelBuilder::gathered(std::string_view ours, std::string_view role_name, int32_t layer,
                                        std::span<const int64_t> rows, int64_t total, int64_t columns) {
  BATON_TRY(const TensorRole* role, role_of(role_name));
  BATON_TRY(const WeightId id,
            add_weight(*role, source_name(*role, layer), with_number(ours, layer), total, columns, {}));
  Weight& weight = model_.weights[static_cast<size_t>(id)];
  const size_t row_size = weight.bytes / static_cast<size_t>(total);
  auto memory = std::make_unique<std::byte[]>(rows.size() * row_size);
  for (size_t r = 0; r < rows.size(); ++r)
    std::memcpy(memory.get() + r * row_size, weight.data + static_cast<size_t>(rows[r]) * row_size, row_size);
  weight.rows = static_cast<int64_t>(rows.size());
  weight.bytes = rows.size() * row_size;
  weight.data = memory.get();
  model_.owned.push_back(std::move(memory));
  return id;
}

Result<WeightId> ModelBuilder::experts(const ExpertMatrices& matrices, int32_t layer) {
  BATON_TRY(const TensorRole* role, role_of(matrices.role));
  const std::string source = source_name(*role, layer), name = with_number(matrices.ours, layer);
  const int64_t count = model_.spec.experts;
  const bool apart = source.find("{}") != std::string::npos;
  WeightId first = -1;
  for (int64_t e = 0; e < count; ++e) {
    const auto number = static_cast<int32_t>(e);
    RowPart part;
    if (!apart) part = {matrices.first + e * matrices.stride, count * matrices.stride, count};
    BATON_TRY(const WeightId id, add_weight(*role, with_number(source, number), fmt::format("{}.{}", name, number),
                                            matrices.rows, matrices.columns, part));
    if (first < 0) first = id;
  }
  return first;
}

Result<WeightId> ModelBuilder::add_weight(const TensorRole& role, const std::string& source, std::string name,
                                          int64_t rows, int64_t columns, RowPart part) {
  const TensorView* tensor = container_.find(source);
  const std::string file = container_.path.string();
  const bool is_matrix = is_matrix_rule(role.rule);
  const bool turned = (role.rule == TensorRule::kTurned && turns_) ||
                      (role.rule == TensorRule::kTurnedExperts && naming_ != Naming::kGguf);
  const int64_t all_rows = is_matrix && part.total != 0 ? part.total : rows;
  const int64_t all_columns = !is_matrix && part.total != 0 ? part.total : columns;
  const auto only_part = [&](Weight weight) {
    const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
    weight.data += static_cast<size_t>(part.first) * row_size;
    weight.rows = rows;
    weight.bytes = static_cast<size_t>(rows) * row_size;
    model_.weights.push_back(std::move(weight));
    return static_cast<WeightId>(model_.weights.size()) - 1;
  };
  if (is_matrix && !turned && is_packed(container_, source)) {
    BATON_TRY(PackedWeight packed, join_packed_weight(container_, source, name, all_rows, columns, model_.owned));
    used_.insert(packed.parts.begin(), packed.parts.end());
    return only_part(std::move(packed.weight));
  }
  if (is_matrix && !turned && is_mlx_quantized(container_, source)) {
    BATON_TRY(Weight weight, join_mlx_weight(container_, source, name, all_rows, columns, model_.owned));
    const std::string module = source.substr(0, source.size() - std::string_view(".weight").size());
    for (const char* end : {".weight", ".scales", ".biases"}) used_.insert(module + end);
    return only_part(std::move(weight));
  }
  if (tensor == nullptr) {
    for (const std::string& line : container_.unreadable) {
      if (line.starts_with(source + ":")) {
        return fail(Code::kUnsupported,
                    fmt::format("{}: tensor {} cannot be read; convert the file to a supported type", file, line));
      }
    }
    return fail(Code::kInvalidInput,
                fmt::format("{}: tensor '{}' is missing; the file is incomplete or of another architecture than {}",
                            file, source, architecture_.name));
  }
  used_.insert(source);
  std::vector<uint64_t> wanted = {static_cast<uint64_t>(all_columns)};
  if (rows != 1 || is_matrix || role.rule == TensorRule::kConv) {
    wanted.insert(turned ? wanted.end() : wanted.begin(), static_cast<uint64_t>(all_rows));
  }
  if (part.stacked != 0) {
    wanted[turned ? 1 : 0] /= static_cast<uint64_t>(part.stacked);
    wanted.insert(wanted.begin(), static_cast<uint64_t>(part.stacked));
  }
  if (squeezed(tensor->shape) != squeezed(wanted)) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' has shape [{}], the configuration needs [{}]", file,
                                                 source, fmt::join(tensor->shape, ", "), fmt::join(wanted, ", ")));
  }
  if (!is_matrix) return add_converted(role, *tensor, std::move(name), rows, columns, part);
  if (turned && format_of(tensor->dtype).block_elements != 1) {
    return fail(Code::kUnsupported, fmt::format("{}: tensor '{}' of type {} cannot be turned; store it as F16", file,
                                                source, to_string(tensor->dtype)));
  }
  if (turned) return add_turned(*tensor, std::move(name), rows, columns, part);
  if (columns % format_of(tensor->dtype).block_elements != 0) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' has rows of {}, not a multiple of {}'s block", file,
                                                 source, columns, to_string(tensor->dtype)));
  }
  return only_part(
      {std::move(name), tensor->dtype, all_rows, columns, tensor->data.data(), tensor->data.size(), source});
}

// Row r of the matrix is column part.first + r of the tensor, or of those of its matrices that the column is in; in its
// own type.
WeightId ModelBuilder::add_turned(const TensorView& tensor, std::string name, int64_t rows, int64_t columns,
                                  RowPart part) {
  const size_t size = static_cast<size_t>(row_bytes(tensor.dtype, 1).value_or(0));
  const int64_t all = part.total != 0 ? part.total : rows, stacked = std::max<int64_t>(1, part.stacked);
  const auto outs = static_cast<size_t>(all / stacked), first = static_cast<size_t>(part.first) % outs;
  const std::byte* from =
      tensor.data.data() + static_cast<size_t>(part.first) / outs * outs * static_cast<size_t>(columns) * size;
  const size_t bytes = static_cast<size_t>(rows * columns) * size;
  auto memory = std::make_unique<std::byte[]>(bytes);
  std::byte* to = memory.get();
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c, to += size)
      std::memcpy(to, from + (c * outs + first + r) * size, size);
  }
  model_.weights.push_back(
      {std::move(name), tensor.dtype, rows, columns, memory.get(), bytes, std::string(tensor.name)});
  model_.owned.push_back(std::move(memory));
  return static_cast<WeightId>(model_.weights.size()) - 1;
}

Result<WeightId> ModelBuilder::add_converted(const TensorRole& role, const TensorView& tensor, std::string name,
                                             int64_t rows, int64_t columns, RowPart part) {
  const Format& format = format_of(tensor.dtype);
  std::vector<float> values(tensor.elements());
  if (values.size() % format.block_elements != 0) {
    return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' has {} values, not a multiple of {}'s block",
                                                 container_.path.string(), tensor.name, values.size(), format.name));
  }
  format.decode(tensor.data.data(), values.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return fail(Code::kInvalidInput, fmt::format("{}: tensor '{}' holds {} at element {}; the file is damaged",
                                                   container_.path.string(), tensor.name, values[i], i));
    }
    if (role.rule == TensorRule::kNorm && naming_ == Naming::kHuggingFace) values[i] += 1.0f;
    if (role.rule == TensorRule::kRawNorm && naming_ != Naming::kGguf) values[i] += 1.0f;
    if (role.rule == TensorRule::kDecay && naming_ != Naming::kGguf) values[i] = -std::exp(values[i]);
  }
  if (role.rule == TensorRule::kFirstRow) {
    values.resize(static_cast<size_t>(columns));
    rows = 1;
  }
  if (part.total != 0) {
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(part.first));
    values.resize(static_cast<size_t>(columns));
  }
  const WeightId id = add_vector(std::move(name), values);
  model_.weights[id].rows = rows;
  model_.weights[id].columns = columns;
  model_.weights[id].source = tensor.name;
  return id;
}

Result<WeightId> ModelBuilder::find(std::string_view name) const {
  for (size_t i = 0; i < model_.weights.size(); ++i) {
    if (model_.weights[i].name == name) return static_cast<WeightId>(i);
  }
  return fail(Code::kInternal, fmt::format("no weight named '{}'", name));
}

WeightId ModelBuilder::add_vector(std::string name, const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  auto memory = std::make_unique<std::byte[]>(bytes);
  if (bytes != 0) std::memcpy(memory.get(), values.data(), bytes);
  model_.weights.push_back(
      {std::move(name), DType::kF32, 1, static_cast<int64_t>(values.size()), memory.get(), bytes, ""});
  model_.owned.push_back(std::move(memory));
  return static_cast<WeightId>(model_.weights.size()) - 1;
}

Status ModelBuilder::finish() {
  BATON_OK(check_adapters());
  for (size_t i = 0; i < adapters_.size(); ++i) {  // for fingerprints: vectors count by their values
    std::vector<float> digest;
    for (int shift = 0; shift < 64; shift += 16)
      digest.push_back(static_cast<float>(adapters_[i].digest() >> shift & 0xffff));
    add_vector(fmt::format("lora{}", i), digest);
    model_.notes.push_back(fmt::format("adapter {}: {} matrices", adapters_[i].file(), adapters_[i].pairs().size()));
  }
  const auto& ops = model_.program.ops;
  if (ops.empty() || (ops.back().kind != OpKind::kHead && ops.back().kind != OpKind::kOutput)) {
    return fail(Code::kInternal, fmt::format("architecture {} built a program without an output", architecture_.name));
  }
  // Blocks behind the layers that the file declares as prediction heads; read_spec has checked the number.
  BATON_TRY(const auto declared,
            container_.gguf.unsigned_integer(fmt::format("{}.nextn_predict_layers", architecture_.gguf_name)));
  const int32_t layers = model_.spec.layers, blocks = layers + static_cast<int32_t>(declared.value_or(0));
  std::map<std::string_view, size_t> counts;
  const auto count = [&](std::string_view name) -> Status {
    if (used_.contains(std::string(name))) return {};
    std::string_view group = harmless_tensor(name);
    const std::optional<int32_t> block = naming_ == Naming::kGguf ? block_of(name) : std::nullopt;
    if (group.empty() && block && *block >= blocks) {
      return fail(
          Code::kInvalidInput,
          fmt::format("{}: tensor '{}' is of block {}, but '{}.block_count' is {}: layers of the model would be "
                      "left out; correct the key, or remove the tensors",
                      container_.path.string(), shown(name), *block, architecture_.gguf_name, blocks));
    }
    if (group.empty() && block && *block >= layers) group = "multi-token prediction head";
    if (group.empty()) {
      return fail(
          Code::kUnsupported,
          fmt::format("{}: tensor '{}' is read by nothing: architecture {} has no place for it, and the answers "
                      "could be another model's than the file's",
                      container_.path.string(), shown(name), architecture_.name));
    }
    ++counts[group];
    return {};
  };
  for (const TensorView& tensor : container_.tensors) BATON_OK(count(tensor.name));
  for (const auto& [name, view] : container_.words) BATON_OK(count(name));
  for (const std::string& line : container_.unreadable) BATON_OK(count(line.substr(0, line.find(':'))));
  for (const auto& [group, number] : counts)
    model_.notes.push_back(fmt::format("{}: {} tensor{} skipped", group, number, number == 1 ? "" : "s"));
  return {};
}

}  // namespace baton
