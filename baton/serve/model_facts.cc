// From a model's files.
#include "baton/serve/model_facts.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "baton/api/answer_parts.h"
#include "baton/model/container.h"
#include "baton/quant/format.h"

namespace baton::serve {
namespace {

std::string main_type(const Model& model) {
  std::map<DType, uint64_t> bytes;
  for (const Weight& weight : model.weights) {
    if (weight.rows > 1) bytes[weight.dtype] += weight.bytes;
  }
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(to_string(most->first));
}

// All bytes would be read for a sum of them all: of each weight its beginning and its end are.
std::string digest_of(const TextModel& text) {
  constexpr size_t kEndBytes = 4096;
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  const auto add = [&state](const void* data, size_t bytes) {
    crypto_hash_sha256_update(&state, static_cast<const unsigned char*>(data), bytes);
  };
  const Model& model = *text.model;
  const std::string shapes = fmt::format("{:016x}{:016x}", model.shape_prints.model, model.shape_prints.quantization);
  add(shapes.data(), shapes.size());
  for (const Weight& weight : model.weights) {
    if (weight.data == nullptr) continue;
    const size_t bytes = std::min(weight.bytes, kEndBytes);
    add(weight.data, bytes);
    add(weight.data + weight.bytes - bytes, bytes);
  }
  if (text.chat_template) add(text.chat_template->source().data(), text.chat_template->source().size());
  std::array<unsigned char, crypto_hash_sha256_BYTES> sum{};
  crypto_hash_sha256_final(&state, sum.data());
  std::string hex;
  for (const unsigned char byte : sum) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

bool ModelFacts::is_called(std::string_view other) const {
  return name == other || std::find(aliases.begin(), aliases.end(), other) != aliases.end();
}

bool ModelFacts::is_emulated(std::string_view unit) const {
  return std::find(emulated_units.begin(), emulated_units.end(), unit) != emulated_units.end();
}

void say_emulated(nlohmann::ordered_json& of, const std::vector<std::string>& emulated_units) {
  if (!emulated_units.empty()) of["emulated_units"] = emulated_units;
}

ModelFacts facts_of(const TextModel& text, uint64_t context) {
  const Model& model = *text.model;
  ModelFacts facts;
  facts.title = model.spec.name;
  facts.family = model.spec.architecture;
  facts.format = model.container && model.container->kind == ContainerKind::kGguf ? "gguf" : "safetensors";
  facts.quantization = main_type(model);
  facts.digest = digest_of(text);
  if (text.chat_template) {
    facts.chat_template = text.chat_template->source();
    facts.tools = tool_style_of(text) != ToolStyle::kNone;
    facts.thinking = facts.chat_template.find("enable_thinking") != std::string::npos;
  }
  facts.parameters = model.parameter_count();
  facts.weight_bytes = model.weight_bytes();
  const auto context_max = static_cast<uint64_t>(model.spec.context_max);
  facts.context_tokens = context == 0 ? context_max : std::min(context, context_max);
  facts.width = static_cast<uint64_t>(model.spec.hidden);
  facts.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return facts;
}

}  // namespace baton::serve
