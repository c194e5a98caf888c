// Energy of the processor's parts on a Mac, without root: the channels of the group "Energy Model" of libIOReport (CPU,
// GPU, ANE, DRAM, in mJ, uJ or nJ), by look-up at run time. The library is part of the system and not documented; names
// and calls are those that public monitors use. Not yet run on Apple hardware.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "baton/base/status.h"
#include "baton/unit/apple/objc.h"

namespace baton::apple {

class IoReport {
 public:
  // On a Mac: loads the libraries, then as below. kUnsupported anywhere else, with the reason.
  static Result<std::unique_ptr<IoReport>> open();
  // With the functions that `lookup` has. kUnsupported names what is missing.
  static Result<std::unique_ptr<IoReport>> create(const SymbolLookup& lookup);
  ~IoReport();

  // Begins an interval.
  Status start();
  // Joules by channel since start(), which stays the beginning.
  Result<std::map<std::string, double>> joules();

 private:
  struct Calls;
  explicit IoReport(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
};

}  // namespace baton::apple
