// The `ref` unit with its matrix products made by someone else: for observers of activations, which are free to make
// the products on more threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "baton/unit/unit.h"

namespace baton::ref {

inline constexpr int64_t kTokensPerPass = 128;  // bounds the register memory

// y [tokens, weight.rows] = weight x [tokens, weight.columns]; `id` indexes Model::weights.
using Product = std::function<void(WeightId id, const Weight& weight, const float* x, float* y, int64_t tokens)>;

// `product` outlives the executor and is called on the thread of `prefill`. `arithmetic`: what arithmetic_name takes;
// `kv`: type of keys and values.
std::unique_ptr<Executor> make_executor(std::shared_ptr<const Model> model, Product product,
                                        std::string arithmetic = "ref/f32-observed", DType kv = DType::kF32);

}  // namespace baton::ref
