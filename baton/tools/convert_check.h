// Whether a file that was written from a model is that model: what it computes, read back from the file.
#pragma once

#include "baton/base/status.h"
#include "baton/model/model.h"

namespace baton {

// kInternal names the first difference: an op and its field, a register, a slot, a vector's value. Orders of rows and
// heads are GGUF's; matrices are compared by their shapes alone, unless they are small and F32.
Status check_converted(const Model& source, const Model& written);

}  // namespace baton
