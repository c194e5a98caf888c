// From a model's files.
#include "baton/serve/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
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

}  // namespace

bool ModelFacts::is_called(std::string_view other) const {
  return name == other || std::find(aliases.begin(), aliases.end(), other) != aliases.end();
}

ModelFacts facts_of(const TextModel& text, uint64_t context) {
  const Model& model = *text.model;
  ModelFacts facts;
  facts.title = model.spec.name;
  facts.family = model.spec.architecture;
  facts.format = model.container && model.container->kind == ContainerKind::kGguf ? "gguf" : "safetensors";
  facts.quantization = main_type(model);
  facts.digest = fmt::format("{:016x}{:016x}", model.shape_prints.model, model.shape_prints.quantization);
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
