// What each kind of instruction does, in plain f32 on the host: addresses are the host's. The emulated card runs these
// bodies in place of kernels, and the kernels are compared with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// `pass` lies in the card's memory, which kAdvance writes.
void reference(const Instruction& instruction, const Pass& pass);
// The same where registers may be words; one that has not come is no number.
void reference_worded(const Instruction& instruction, const Pass& pass);

#define BATON_KIND(name, word) void reference_##word(const Instruction& instruction, const Pass& pass);
#include "baton/unit/cuda/kind_list.inc"
#undef BATON_KIND

template <class T>
T* host_at(Address address) {
  return reinterpret_cast<T*>(address);
}
inline float* host_row(Address x, int32_t width, int64_t row) { return host_at<float>(x) + row * pitch_of(width); }

// Rows that an instruction works on, and the row of the pass that one of them is of.
inline int32_t rows_of(const Instruction& instruction, const Pass& pass) {
  return instruction.wanted_only ? pass.rows_out : pass.rows;
}
inline int32_t pass_row(const Instruction& instruction, const Pass& pass, int32_t row) {
  return instruction.wanted_only ? host_at<const int32_t>(pass.out_rows)[row] : row;
}
const Run& run_of(const Pass& pass, int32_t pass_row);
int32_t position_of(const Pass& pass, int32_t pass_row);

// Of keys or values: where the row of a token at `position` lies.
std::byte* host_kv_row(const Run& run, const Place& place, int32_t kv_head, int64_t position);

// `to` gets the first to.size() values of a row of a matrix, decoded.
void decode_matrix_row(const Matrix& matrix, int64_t row, std::span<float> to);
// `count` values that lie one after the other as `form` says, none of codes.
void load_values(Form form, const std::byte* from, std::span<float> to);
void store_values(Form form, std::span<const float> from, std::byte* to);

}  // namespace baton::cuda
