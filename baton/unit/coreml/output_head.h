// Final norm and output head on the host, for the rare prefill that wants logits: packages end with the last layer.
#pragma once

#include <span>

#include "baton/model/model.h"

namespace baton::coreml {

// `hidden` [tokens, hidden] to `logits` [tokens, vocab], f32. Cost: one pass over the head's matrix.
void output_head(const Model& model, std::span<const float> hidden, std::span<float> logits);

}  // namespace baton::coreml
