// All kernels of an instruction set and their table: what kernels_<set>.cc includes, after its header of base/simd and
// its constants
//   kIntegerPanels, kIntegerTokens, kFloatPanels, kFloatTokens   the register tiles of products
//   kDirectTokens     so many tokens at once multiply weights that are unpacked in registers
//   kAheadFrom        Kernels::ahead_from
//   kUnsortedTokens   up to here products of integers are tiles of those; beyond, panels are unpacked for all tokens
#pragma once

#include "baton/unit/host/kernels_attention.inl.h"
#include "baton/unit/host/kernels_delta.inl.h"
#include "baton/unit/host/kernels_float.inl.h"
#include "baton/unit/host/kernels_int8.inl.h"
#include "baton/unit/host/kernels_quantize.inl.h"

namespace baton::host {
namespace {

constexpr Kernels make_kernels(const char* name, const char* description, ProductArithmetic arithmetic) {
  Kernels k{};
  k.name = name;
  k.description = description;
  k.arithmetic = arithmetic;
  const auto set = [&](Packing packing, MultiplyFunction f) { k.matmul[static_cast<int>(packing)] = f; };
  set(Packing::kF32, float_matmul<ColumnsF32>);
  set(Packing::kF16, float_matmul<ColumnsF16>);
  set(Packing::kBF16, float_matmul<ColumnsBF16>);
  set(Packing::kF8, float_matmul<ColumnsF8>);
  each_integer_packing([&](auto packing) {
    constexpr auto kPacking = static_cast<Packing>(decltype(packing)::value);
    set(kPacking, integer_matmul<BlockOf<kPacking>>);
  });
  k.panels_per_tile = kIntegerPanels > kFloatPanels ? kIntegerPanels : kFloatPanels;
  k.direct_tokens = kUnsortedTokens;
  k.ahead_from = kAheadFrom;
  k.quantize = quantize_blocks;
  k.rms_norm = rms_norm;
  k.layer_norm = layer_norm;
  k.gated_norm = gated_norm;
  k.swiglu = swiglu;
  k.sigmoid_gate = sigmoid_gate;
  k.gelu = gelu;
  k.geglu = geglu;
  k.scale = scale;
  k.soft_cap = soft_cap;
  k.add = add;
  k.multiply = multiply;
  k.add_scaled = add_scaled;
  k.conv = conv;
  k.short_conv = short_conv;
  k.rope = rope;
  k.to_f16 = to_f16;
  k.product = product;
  k.attend_decode = attend_decode;
  k.attend_prefill = attend_prefill;
  k.attend_all = attend_all;
  k.delta_recurrent = delta_recurrent;
  k.delta_chunked = delta_chunked;
  return k;
}

}  // namespace
}  // namespace baton::host
