// Which body is whose.
#include "baton/unit/cuda/reference.h"

namespace baton::cuda {

void reference(const Instruction& instruction, const Pass& pass) {
  if (instruction.to_planes) return;  // bodies of products take x as it is
  switch (instruction.what) {
#define BATON_KIND(name, word) \
  case Do::k##name:            \
    return reference_##word(instruction, pass);
#include "baton/unit/cuda/kind_list.inc"
#undef BATON_KIND
  }
}

// Keys and values are read alike, however many rows there are.
void reference_attend_tile(const Instruction& instruction, const Pass& pass) { reference_attend(instruction, pass); }

}  // namespace baton::cuda
