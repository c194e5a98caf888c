// A small model with a state, for executors of any vocabulary.
#pragma once

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/model/model.h"

namespace baton::fake {

// An embedding, a head that attends, an output head whose logits spread by about eight times `steepness`.
// `dtype`: of weights, kF32 or kBF16.
inline std::shared_ptr<const Model> attending_model(int32_t vocab, float steepness = 1, DType dtype = DType::kF32) {
  constexpr int32_t kHidden = 64;
  auto model = std::make_shared<Model>();
  Random random(11);
  model->spec.name = "attending";
  model->spec.context_max = 256;
  for (const char* name : {"embedding", "head"}) {
    std::vector<float> values(static_cast<size_t>(vocab) * kHidden);
    for (float& value : values) value = random.normal() * (std::string_view(name) == "head" ? steepness : 1);
    std::vector<uint16_t> rounded;
    for (const float value : values) rounded.push_back(f32_to_bf16(value));
    const bool half = dtype == DType::kBF16;
    const size_t bytes = values.size() * (half ? sizeof(uint16_t) : sizeof(float));
    model->owned.push_back(std::make_unique<std::byte[]>(bytes));
    std::memcpy(model->owned.back().get(), half ? static_cast<const void*>(rounded.data()) : values.data(), bytes);
    model->weights.push_back({.name = name,
                              .dtype = dtype,
                              .rows = vocab,
                              .columns = kHidden,
                              .data = model->owned.back().get(),
                              .bytes = bytes,
                              .source = {}});
  }
  Program& program = model->program;
  program.vocab = program.output_width = vocab;
  program.hidden = kHidden;
  program.registers = {{"x", kHidden}, {"out", kHidden}};
  program.slots = {{SlotKind::kKeys, 0, 1, 0, kHidden}, {SlotKind::kValues, 0, 1, 0, kHidden}};
  program.ops.push_back({.kind = OpKind::kEmbed, .out = 0, .weights = {0}});
  program.ops.push_back({.kind = OpKind::kAttend,
                         .layer = 0,
                         .out = 1,
                         .x = 0,
                         .y = 0,
                         .z = 0,
                         .slot = 0,
                         .slot2 = 1,
                         .width = kHidden,
                         .heads = 1,
                         .kv_heads = 1,
                         .scale = 0.125f});
  program.ops.push_back({.kind = OpKind::kHead, .x = 1, .weights = {1}});
  return model;
}

}  // namespace baton::fake
