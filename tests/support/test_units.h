// The units that tests over all units take: each as it is on this machine, or what stands for it where its device is
// missing and its entry names an emulated one.
#pragma once

#include <string>
#include <vector>

#include "baton/api/units.h"

namespace baton::test {

// `text` as create_unit takes it, with the entry's stand-in where it may have one.
inline std::string on_this_machine(const std::string& text) {
  const auto choice = parse_unit(text);
  if (!choice || choice->entry->stand_in.empty() || choice->create()) return text;
  return text + (text.find(':') == std::string::npos ? ":" : ",") + std::string(choice->entry->stand_in);
}
inline Result<std::unique_ptr<Unit>> create_test_unit(const std::string& text) {
  return create_unit(on_this_machine(text));
}

}  // namespace baton::test
