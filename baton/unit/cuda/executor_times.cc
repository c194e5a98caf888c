// How long the instructions of a step took, where that was asked for.
#include <fmt/format.h>

#include <algorithm>

#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/kernels.h"

namespace baton::cuda {
namespace {

// Products by their shapes.
std::string words_of(const Instruction& in) {
  std::string words(kernel_name(in.what).substr(std::string_view("baton_").size()));
  if (in.what != Do::kMultiply) return words;
  int64_t rows = 0;
  for (int32_t i = 0; i < in.matrices; ++i) rows += in.matrix[i].rows;
  return fmt::format("{} {}x{}", words, rows, in.x_width);
}

}  // namespace

Status CudaExecutor::add_times(const ListWork& list) {
  if (list.times == 0) return {};
  BATON_TRY(const std::vector<uint64_t> done, work_->times(stream_, list));
  ++timed_steps_;
  for (size_t i = 1; i < done.size(); ++i) {
    const std::string what = words_of(work_->listed(list, i));
    auto found =
        std::find_if(times_.begin(), times_.end(), [&](const InstructionTime& one) { return one.what == what; });
    if (found == times_.end()) found = times_.insert(times_.end(), {what});
    ++found->count;
    found->us += static_cast<double>(done[i] - done[i - 1]) / 1e3;
  }
  return {};
}

std::string CudaExecutor::times_text() const {
  if (timed_steps_ == 0) return "";
  std::vector<InstructionTime> sorted = times_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  double all = 0;
  for (const InstructionTime& one : sorted) all += one.us;
  const auto steps = static_cast<double>(timed_steps_);
  std::string text = fmt::format(", a step {:.0f} us behind its first instruction:", all / steps);
  for (const InstructionTime& one : sorted)
    text += fmt::format(" {} {:.0f} x {:.1f},", one.what, static_cast<double>(one.count) / steps,
                        one.us / static_cast<double>(one.count));
  text.pop_back();
  return text;
}

}  // namespace baton::cuda
