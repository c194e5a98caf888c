// Doubles of Core ML's classes, registered at run time in GCC's Objective-C runtime: every message goes through real
// method look-up, is logged, has its arguments checked, and ends in the interpreter. Objects are counted, so that a
// leak or a release too many is found. Outputs have padded rows, as the engine's may have.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "baton/unit/apple/objc.h"

namespace baton::coreml {

enum class PlanAnswers : uint8_t { kAtOnce, kLater, kTooLate, kNever, kError };

// One at a time in a process.
class CoreMlDouble {
 public:
  // Null when libobjc is not installed. Compiled programs go below `temporary_folder`, which exists.
  static std::unique_ptr<CoreMlDouble> open(const std::filesystem::path& temporary_folder);
  ~CoreMlDouble();

  apple::SymbolLookup lookup() const;
  std::vector<std::string>& log();
  const std::vector<std::string>& complaints() const;
  size_t live_objects() const;

  // The named call fails from now on: nil, with an NSError that has `words` where there are some. "" for none.
  void fail_at(std::string call, std::string words = "");
  // Symbols and classes that are not found.
  void hide(std::string name);
  void set_system(std::string version);
  // Part of the operations that the plan puts on the Neural Engine, the others on `rest` ("cpu" or "gpu"); with or
  // without costs.
  void set_plan(double neural_engine, std::string rest, bool costs);
  void set_plan_answers(PlanAnswers how);
  // How a model that is loaded comes (kError: as fail_at).
  void set_load_answers(PlanAnswers how);
  // Waits for answers that are given from another thread.
  void join();
  void set_neural_engine(bool present);
  // What setComputeUnits: last got, -1 before.
  long compute_units() const;
  // One value of the named output is lost: the array has another shape, type or a NaN.
  void spoil_output(std::string how);

  struct State;

 private:
  explicit CoreMlDouble(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace baton::coreml
