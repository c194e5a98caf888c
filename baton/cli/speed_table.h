// How rows are printed: a table, CSV or JSON.
#pragma once

#include "baton/cli/bench_load.h"
#include "baton/cli/speed_runner.h"

namespace baton::cli {

// A row's output, and the rows of a JSON list at the end.
class SpeedTable {
 public:
  explicit SpeedTable(const BenchFlags& flags);
  void add(const SpeedRow& row, const SpeedRunner& bench);
  void add(const LoadRow& load);
  void finish();

 private:
  const BenchFlags& flags_;
  bool headed_ = false;
  OrderedJson rows_ = OrderedJson::array();
};

}  // namespace baton::cli
