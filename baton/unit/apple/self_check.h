// What is asked of a device before it is used: one convolution of the form that every kernel of this project has, with
// an answer that is known exactly. Whoever uses a device that fails it would compute wrong values without an error.
// What else is worth knowing of a device (order of ports, pitch of rows, concat) only advises: no kernel depends on it,
// and projects disagree about it; baton-apple-check asks.
#pragma once

#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/apple/driver.h"

namespace baton::apple {

// 64 channels, 64 columns, surfaces of 64 KiB, fp16 weights in a file. kUnsupported with the first difference, or with
// the call that failed. Compiles one program.
Status self_check(Driver& device);

struct Advice {
  std::string name, text;
  bool as_expected = false;
};
// Ports in the order of their names, rows 64 bytes apart, two convolutions joined by concat: each as one small program.
// For reports; nothing is refused.
std::vector<Advice> advise(Driver& device);

}  // namespace baton::apple
