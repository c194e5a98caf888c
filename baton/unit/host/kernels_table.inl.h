// All kernels of a set and its table, from its `Lanes`. Included as kernels_loops.inl.h is, after `Lanes`.

// In this order: each needs those before it.
// clang-format off
#include "baton/unit/host/kernels_blocks.inl.h"
#include "baton/unit/host/kernels_int8.inl.h"
#include "baton/unit/host/kernels_float.inl.h"
#include "baton/unit/host/kernels_quantize.inl.h"
#include "baton/unit/host/kernels_attention.inl.h"
#include "baton/unit/host/kernels_delta.inl.h"
// clang-format on

constexpr Kernels make_kernels(const char* name, const char* description) {
  using L = Lanes;
  Kernels k{};
  k.name = name;
  k.description = description;
  const auto set = [&](Packing packing, MatmulFunction f) { k.matmul[static_cast<int>(packing)] = f; };
  set(Packing::kF32, float_matmul<L, ColumnsF32<L>>);
  set(Packing::kF16, float_matmul<L, ColumnsF16<L>>);
  set(Packing::kBF16, float_matmul<L, ColumnsBF16<L>>);
  each_integer_packing([&](auto packing) {
    constexpr auto kPacking = static_cast<Packing>(decltype(packing)::value);
    set(kPacking, integer_matmul<L, BlockOf<L, kPacking>>);
  });
  k.panels_per_tile = L::kIntegerPanels > L::kFloatPanels ? L::kIntegerPanels : L::kFloatPanels;
  k.direct_tokens = L::kDirectTokens;
  k.quantize = quantize_blocks<L>;
  k.rms_norm = rms_norm<L>;
  k.gated_norm = gated_norm<L>;
  k.swiglu = swiglu<L>;
  k.sigmoid_gate = sigmoid_gate<L>;
  k.add = add<L>;
  k.conv = conv<L>;
  k.rope = rope<L>;
  k.to_f16 = to_f16<L>;
  k.product = product<L>;
  k.attend_decode = attend_decode<L>;
  k.attend_prefill = attend_prefill<L>;
  k.delta_recurrent = delta_recurrent<L>;
  k.delta_chunked = delta_chunked<L>;
  return k;
}
