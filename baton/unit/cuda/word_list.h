// A step's instructions as the kernels for one row take them (kernels/list_plain.cu): what products, delta rules and
// attention tell each other becomes words (Worded), behind which no block waits for all others.
#pragma once

#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// kHeads and kAttend between two products become one kAttendRow, and a kPick, of a row that is the only one, is left
// out, where what they exchange may then be words. Outputs of products, delta rules and kAttendRow, and parts of that,
// become words, each instruction's its own, from `words` on, and so do the inputs of who reads them. Theirs alone,
// where
// - only products, delta rules and kAttendRow read them, in ways that know words, and
// - the instruction behind reads a whole one of them, all of its blocks do, and it or the one behind it reads the rest:
//   a block that has read all of what it waits for knows then that every block is done with whatever came before. So
//   nothing is written that somebody may still read.
// Returns the bytes that they take; 0: there are none. Addresses may be 0 to ask for that.
uint64_t put_words(std::vector<Instruction>& list, Address words);

}  // namespace baton::cuda
