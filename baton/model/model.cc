// From a container to a Model: architecture, spec, program, weights, fingerprints.
#include "baton/model/model.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "baton/base/terminal.h"
#include "baton/model/arch.h"
#include "baton/model/model_builder.h"
#include "baton/model/spec.h"

namespace baton {
namespace {

constexpr size_t kSampleBytes = 4096;

class Digest {
 public:
  void add(const void* data, size_t bytes) { hash_ = XXH3_64bits_withSeed(data, bytes, hash_); }
  void add(std::string_view text) { add(text.data(), text.size()); }
  template <class T>
  void add_value(T value) {
    static_assert(std::is_arithmetic_v<T>);
    add(&value, sizeof(value));
  }
  void add_samples(const Weight& weight) {
    const size_t piece = std::min(kSampleBytes, weight.bytes);
    add(weight.data, piece);
    add(weight.data + (weight.bytes - piece) / 2, piece);
    add(weight.data + weight.bytes - piece, piece);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

// Vectors (norms, decay rates) are f32 whatever the quantization, so they tell a fine-tune from its base and count as
// the model; matrices count as the quantization.
Fingerprints fingerprint(const Model& model) {
  const ModelSpec& spec = model.spec;
  Digest identity;
  identity.add(spec.architecture);
  for (const int32_t number : {spec.hidden, spec.layers, spec.intermediate, spec.heads, spec.kv_heads, spec.head_dim,
                               spec.vocab, spec.rotary, static_cast<int32_t>(spec.rope_pairing), spec.linear_key_heads,
                               spec.linear_value_heads, spec.linear_key_dim, spec.linear_value_dim, spec.conv_taps,
                               static_cast<int32_t>(spec.head_map), static_cast<int32_t>(spec.tied_head)}) {
    identity.add_value(number);
  }
  identity.add_value(spec.rms_eps);
  identity.add_value(spec.rope_theta);
  for (const LayerKind kind : spec.layer_kinds) identity.add_value(static_cast<uint8_t>(kind));
  Digest types;
  for (const Weight& weight : model.weights) {
    Digest& digest = weight.rows == 1 ? identity : types;
    digest.add(weight.name);
    digest.add_value(static_cast<uint8_t>(weight.dtype));
    digest.add_value(weight.rows);
    digest.add_value(weight.columns);
    digest.add_samples(weight);
  }
  return {identity.value(), types.value()};
}

std::string known_architectures() {
  std::string names;
  for (const Architecture* architecture : architectures()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", architecture->name);
  }
  return names;
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

}  // namespace

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

Result<std::shared_ptr<const Model>> build_model(std::unique_ptr<const Container> container) {
  const std::string file = container->path.string();
  const Architecture* architecture = architecture_of(*container);
  if (architecture == nullptr) {
    return fail(Code::kUnsupported, fmt::format("{}: architecture '{}' is not supported; there are: {}", file,
                                                architecture_in_file(*container), known_architectures()));
  }
  auto model = std::make_shared<Model>();
  BATON_TRY(model->spec, architecture->read_spec(*container));
  model->spec.architecture = architecture->name;
  if (model->spec.name.empty()) model->spec.name = container->path.filename().string();
  model->spec.name = terminal_safe(model->spec.name, kNameShownMax);
  BATON_OK(validate(model->spec, file));
  model->container = std::move(container);
  ModelBuilder builder(*architecture, *model);
  BATON_OK(architecture->build(builder));
  BATON_OK(builder.finish());
  model->program.vocab = model->spec.vocab;
  model->program.hidden = model->spec.hidden;
  model->fingerprints = fingerprint(*model);
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> load_model(const std::filesystem::path& path) {
  BATON_TRY(Container container, open_container(path));
  return build_model(std::make_unique<const Container>(std::move(container)));
}

}  // namespace baton
