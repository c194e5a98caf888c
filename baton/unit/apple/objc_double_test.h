// Doubles of the system's classes, registered at run time in GCC's Objective-C runtime: every message goes through real
// method look-up, is logged with what is wrong about its arguments, and ends in the emulator. Objects are counted, so
// that a leak or a release too many is found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/objc.h"

namespace baton::apple {

// One at a time in a process.
class ObjcDouble {
 public:
  // Null when libobjc is not installed.
  static std::unique_ptr<ObjcDouble> open(const EmulatorOptions& options);
  ~ObjcDouble();

  SymbolLookup lookup() const;
  EmulatorDriver& emulator();
  // Selectors in the order of the calls, of the engine's classes and IOSurface.
  std::vector<std::string>& log();
  // What a call got that the system would not take; objects used after their release.
  const std::vector<std::string>& complaints() const;
  size_t live_objects() const;
  size_t live_surfaces() const;

  // The named call fails from now on: nil, NO, null or an error code. "" for none. With `words`, a NO comes with an
  // NSError.
  void fail_at(std::string call, std::string words = "");
  // Symbols that the lookup does not know.
  void hide(std::string symbol);
  // Answers of inMemoryModel -evaluate are spoilt: the outputs' first value is changed.
  void spoil_answers(bool yes);
  // -hexStringIdentifier answers with an empty string.
  void empty_identifiers(bool yes);

  struct State;

 private:
  explicit ObjcDouble(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace baton::apple
