// From a container to a Model: architecture, spec, program, weights, fingerprints.
#include "baton/model/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "baton/base/terminal.h"
#include "baton/model/adapter.h"
#include "baton/model/arch.h"
#include "baton/model/container.h"
#include "baton/model/model_builder.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

// As files of this kind write them: some share a name.
std::string known_architectures(ContainerKind kind) {
  std::vector<std::string_view> names;
  for (const Architecture* architecture : architectures()) {
    const std::string_view name = kind == ContainerKind::kGguf ? architecture->gguf_name : architecture->name;
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string architecture_in_file(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const auto name = container.gguf.text("general.architecture");
    return name && *name ? terminal_safe(**name, kNameShownMax) : "none";
  }
  const auto found = container.config.is_object() ? container.config.find("model_type") : container.config.end();
  return container.config.is_object() && found != container.config.end() && found->is_string()
             ? terminal_safe(found->get<std::string>(), kNameShownMax)
             : "none";
}

// An architecture reads files of several names (encoders): the file's own counts.
std::string gguf_architecture(const Architecture& architecture, const Container& container) {
  if (container.kind != ContainerKind::kGguf) return std::string(architecture.gguf_name);
  const auto name = container.gguf.text("general.architecture");
  return std::string(name && *name ? **name : architecture.gguf_name);
}

// A folder of a quantizer whose tensors no reader here knows: values of another meaning, or those of before.
Status check_quantizer(const Container& container) {
  if (!container.config.is_object()) return {};
  const auto quantization = container.config.find("quantization_config");
  if (quantization == container.config.end() || !quantization->is_object()) return {};
  const auto method = quantization->find("quant_method");
  if (method == quantization->end() || !method->is_string()) return {};
  const auto name = method->get<std::string>();
  constexpr std::string_view kRead[] = {"gptq", "awq",   "auto-round", "intel/auto-round", "compressed-tensors",
                                        "fp8",  "mxfp4", "modelopt",   "modelopt_fp4",     "fbgemm_fp8"};
  constexpr std::string_view kUnread[] = {"bitsandbytes",
                                          "bitsandbytes_4bit",
                                          "bitsandbytes_8bit",
                                          "hqq",
                                          "aqlm",
                                          "quanto",
                                          "eetq",
                                          "higgs",
                                          "vptq",
                                          "spqr",
                                          "torchao",
                                          "bitnet",
                                          "quip",
                                          "fp_quant"};
  if (name.empty() || std::find(std::begin(kRead), std::end(kRead), name) != std::end(kRead)) return {};
  // Another word over tensors of a known layout: they decide.
  const auto is_known = [](const TensorView& tensor) {
    constexpr std::string_view kEnds[] = {"qweight", "_packed", "_scale", "_scale_inv", "_blocks", ".scales"};
    return std::any_of(std::begin(kEnds), std::end(kEnds),
                       [&](std::string_view end) { return tensor.name.ends_with(end); });
  };
  if (std::find(std::begin(kUnread), std::end(kUnread), name) == std::end(kUnread) &&
      std::any_of(container.tensors.begin(), container.tensors.end(), is_known))
    return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: quantization_config.quant_method is '{}', which is not read: take the model as it was "
                          "before, a GGUF file of it, or one of gptq, awq, compressed-tensors, fp8",
                          container.path.string(), terminal_safe(name, kNameShownMax)));
}

// Names of published families whose layers need an op that no unit here has.
std::string missing_op(std::string_view architecture) {
  constexpr std::pair<std::string_view, std::string_view> kMissing[] = {{"granitemoehybrid", "mamba2"},
                                                                        {"granitehybrid", "mamba2"},
                                                                        {"falcon_h1", "mamba2"},
                                                                        {"falcon-h1", "mamba2"},
                                                                        {"bamba", "mamba2"},
                                                                        {"mamba2", "mamba2"},
                                                                        {"nemotron_h", "mamba2"},
                                                                        {"zamba2", "mamba2"},
                                                                        {"mamba", "mamba"},
                                                                        {"jamba", "mamba"},
                                                                        {"falcon_mamba", "mamba"}};
  for (const auto& [name, op] : kMissing) {
    if (name == architecture) return fmt::format("it needs op {}, which no unit has; ", op);
  }
  return {};
}

// What published files of other kinds are.
std::string known_other(std::string_view architecture) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"clip", "a vision tower (mmproj file): give the language model's file"},
      {"mmproj", "a vision tower: give the language model's file"},
      {"t5", "an encoder with a decoder"},
      {"t5encoder", "the encoder of a T5"},
      {"bart", "an encoder with a decoder"},
      {"whisper", "a model of speech"},
      {"gpt-oss", "a mixture of experts with attention sinks"},
      {"gpt_oss", "a mixture of experts with attention sinks"},
      {"deepseek2", "a mixture of experts with latent attention"},
      {"deepseek_v3", "a mixture of experts with latent attention"},
      {"llama4", "a mixture of experts of another kind"},
      {"mixtral", "a mixture of experts of another kind"},
      {"phimoe", "a mixture of experts whose router chooses one after the other (sparsemixer)"},
      {"gemma3n", "a Gemma with embeddings in each layer and several residual streams (AltUp)"},
      {"gemma3n_text", "a Gemma with embeddings in each layer and several residual streams (AltUp)"},
      {"mpnet", "an encoder with relative positions"},
      {"deberta", "an encoder whose attention takes words and distances apart"},
      {"deberta-v2", "an encoder whose attention takes words and distances apart"},
      {"deberta-v3", "an encoder whose attention takes words and distances apart"},
      {"recurrent_gemma", "a recurrent Gemma"},
      {"rwkv6", "a recurrent model of another kind"},
      {"rwkv7", "a recurrent model of another kind"}};
  for (const auto& [name, what] : kOthers) {
    if (name == architecture) return fmt::format("it is {}; ", what);
  }
  return missing_op(architecture);
}

Error unknown_architecture(const Container& container) {
  const std::string file = container.path.string(), name = architecture_in_file(container);
  const bool gguf = container.kind == ContainerKind::kGguf;
  const std::string why =
      name == "none" ? fmt::format("; {} is missing", gguf ? "general.architecture" : "model_type of config.json")
                     : "; " + known_other(name);
  const std::string between = name == "none" ? "; " : "";
  return {Code::kUnsupported, fmt::format("{}: architecture '{}' is not supported{}{}there are: {} (docs/models.md)",
                                          file, name, why, between, known_architectures(container.kind))};
}

}  // namespace

std::string_view to_string(LayerKind kind) {
  static constexpr std::string_view kWords[] = {"full_attention", "linear_attention", "conv"};
  return kWords[static_cast<size_t>(kind)];
}

std::string name_of_path(const std::filesystem::path& path) {
  const std::filesystem::path normal = path.lexically_normal();
  const std::filesystem::path plain = normal.has_filename() ? normal : normal.parent_path();
  constexpr std::string_view kModels = "models--";
  std::string repo = plain.parent_path().parent_path().filename().string();
  if (plain.parent_path().filename() != "snapshots" || !repo.starts_with(kModels) || repo.size() == kModels.size())
    return plain.filename().string();
  repo.erase(0, kModels.size());
  if (const size_t at = repo.find("--"); at != std::string::npos && at > 0) repo.replace(at, 2, "/");
  return repo;
}

Model::Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

uint64_t Model::parameter_count() const {
  uint64_t count = 0;
  for (const Weight& weight : weights)
    count += static_cast<uint64_t>(weight.rows) * static_cast<uint64_t>(weight.columns);
  return count;
}

uint64_t Model::weight_bytes() const {
  uint64_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.bytes;
  return bytes;
}

void Model::release_pages() const {
  if (container == nullptr) return;
  for (const MappedFile& file : container->files) file.release(file.bytes());
}

Result<std::shared_ptr<const Model>> build_model(std::unique_ptr<const Container> container, uint64_t context,
                                                 ModelUse use, std::span<const AdapterChoice> adapters) {
  const std::string file = container->path.string();
  const Architecture* architecture = architecture_of(*container);
  if (architecture == nullptr) return fail(unknown_architecture(*container));
  BATON_OK(check_quantizer(*container));
  auto model = std::make_shared<Model>();
  BATON_TRY(model->spec, architecture->read_spec(*container));
  model->spec.architecture = architecture->name;
  if (model->spec.name.empty()) model->spec.name = name_of_path(container->path);
  model->spec.name = terminal_safe(model->spec.name, kNameShownMax);
  BATON_OK(validate(model->spec, file));
  const auto context_max = static_cast<uint64_t>(model->spec.context_max);
  model->spec.rope_scaling.context = static_cast<int64_t>(context == 0 ? context_max : std::min(context, context_max));
  model->container = std::move(container);
  std::vector<Adapter> opened;
  for (const AdapterChoice& choice : adapters) {
    BATON_TRY(Adapter adapter, Adapter::open(choice));
    BATON_OK(adapter.check_architecture(gguf_architecture(*architecture, *model->container)));
    opened.push_back(std::move(adapter));
  }
  ModelBuilder builder(*architecture, *model, opened);
  BATON_OK(architecture->build(builder));
  BATON_OK(builder.finish());
  Op& last = model->program.ops.back();
  if (use == ModelUse::kText && last.kind == OpKind::kOutput) {
    return fail(
        Code::kUnsupported,
        fmt::format("{}: architecture {} is an encoder: it gives vectors (baton embed, baton serve --embed), and "
                    "writes no text",
                    file, architecture->name));
  }
  if (use == ModelUse::kVectors && last.kind == OpKind::kHead) last = {.kind = OpKind::kOutput, .x = last.x};
  model->program.vocab = model->spec.vocab;
  model->program.output_width =
      last.kind == OpKind::kOutput ? model->program.registers[static_cast<size_t>(last.x)].width : model->spec.vocab;
  model->program.hidden = model->spec.hidden;
  model->shape_prints = shape_fingerprints(*model);
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> load_model(const std::filesystem::path& path, uint64_t context, ModelUse use,
                                                std::span<const AdapterChoice> adapters) {
  BATON_TRY(Container container, open_container(path));
  return build_model(std::make_unique<const Container>(std::move(container)), context, use, adapters);
}

}  // namespace baton
