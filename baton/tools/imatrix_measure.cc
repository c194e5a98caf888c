// Collecting the inputs of each matrix: on the host's kernels, between the steps of a pass, or on `ref`, on the way of
// its products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <system_error>

#include "baton/api/units.h"
#include "baton/base/thread_pool.h"
#include "baton/model/container.h"
#include "baton/tools/imatrix.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/pass.h"
#include "baton/unit/ref/ops.h"
#include "baton/unit/ref/ref.h"

namespace baton {
namespace {

constexpr int64_t kRowsPerPass = 256;  // a multiple of host::kDeltaChunk
constexpr int64_t kColumns = 64;       // of a piece of work of one thread

// sums[i] += the squares of column i of `rows` rows, `stride` values apart, in the order of the rows.
void add_squares(const float* x, int64_t rows, int64_t stride, ThreadPool& pool, std::vector<double>& sums) {
  pool.parallel_for(static_cast<int64_t>(sums.size()), kColumns, [&](int64_t begin, int64_t end, uint32_t) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = begin; i < end; ++i) {
        const double value = x[r * stride + i];
        sums[static_cast<size_t>(i)] += value * value;
      }
    }
  });
}

// One way of running the model over a chunk and keeping sums by weight.
class Run {
 public:
  virtual ~Run() = default;
  virtual Status chunk(std::span<const int32_t> ids, const std::function<bool()>& stopped) = 0;
  // By weight; empty for one that no product read.
  virtual std::vector<std::vector<double>> sums() const = 0;
  // By weight: rows that the products read. Empty where every token is one.
  virtual std::vector<double> rows() const { return {}; }
};

Status cancelled() { return fail(Code::kCancelled, "stopped"); }

class HostRun final : public Run {
 public:
  static Result<std::unique_ptr<Run>> create(std::shared_ptr<const Model> model, std::string_view set,
                                             uint32_t threads) {
    BATON_TRY(const host::Kernels* kernels, host::kernels_or_best(set));
    std::unique_ptr<HostRun> run(new HostRun(model->program, threads));
    const std::vector<bool> all(model->weights.size(), true);
    BATON_TRY(run->weights_, host::Weights::load(std::move(model), *kernels, all, "imatrix"));
    BATON_TRY(run->pass_, host::Pass::create(*run->weights_, run->pool_, kRowsPerPass, host::RowBits::kFast));
    run->weights_->pack_more(INT64_MAX, run->pool_);
    for (const host::Step& step : run->weights_->plan().steps) {
      const bool multiplies = step.work == host::Work::kLinears;
      run->by_step_.emplace_back(multiplies ? static_cast<size_t>(run->pass_->width(step.x)) : 0);
    }
    return run;
  }

  Status chunk(std::span<const int32_t> ids, const std::function<bool()>& stopped) override {
    const std::vector<host::Step>& steps = weights_->plan().steps;
    BATON_TRY(const auto made, states_.make(ids.size()));
    auto* const state = static_cast<host::HostState*>(made.get());
    BATON_OK(state->make_room(ids.size()));
    while (state->position() < ids.size()) {
      const uint64_t done = state->position(), count = std::min<uint64_t>(kRowsPerPass, ids.size() - done);
      const host::RunInput input{state, done, ids.subspan(done, count)};
      pass_->start({&input, 1}, nullptr);
      pass_->keep_all_rows();
      for (size_t i = 0; i < steps.size(); ++i) {
        if (stopped && stopped()) return cancelled();
        const host::Step& step = steps[i];
        if (step.work == host::Work::kHead) continue;
        if (step.work == host::Work::kLinears)
          add_squares(pass_->row(step.x, 0), pass_->rows(), pass_->stride(step.x), pool_, by_step_[i]);
        pass_->run(step);
      }
      pass_->finish();
    }
    return {};
  }

  std::vector<std::vector<double>> sums() const override {
    std::vector<std::vector<double>> all(weights_->model().weights.size());
    for (size_t i = 0; i < by_step_.size(); ++i) {
      for (const host::LinearPart& part : weights_->plan().steps[i].linears) {
        std::vector<double>& to = all[static_cast<size_t>(part.weight)];
        to.resize(by_step_[i].size());
        for (size_t j = 0; j < to.size(); ++j) to[j] += by_step_[i][j];
      }
    }
    return all;
  }

 private:
  HostRun(const Program& program, uint32_t threads) : pool_(threads), states_(program, DType::kF16, "imatrix", live_) {}

  ThreadPool pool_;
  LiveStates live_;
  host::StatePool states_;
  std::unique_ptr<host::Weights> weights_;
  std::unique_ptr<host::Pass> pass_;
  std::vector<std::vector<double>> by_step_;  // the matrices of a step read the same register
};

class RefRun final : public Run {
 public:
  RefRun(std::shared_ptr<const Model> model, uint32_t threads)
      : pool_(threads), sums_(model->weights.size()), rows_(model->weights.size()) {
    executor_ = ref::make_executor(std::move(model), [this](WeightId id, const Weight& weight, const float* x, float* y,
                                                            int64_t tokens) { product(id, weight, x, y, tokens); });
  }

  Status chunk(std::span<const int32_t> ids, const std::function<bool()>& stopped) override {
    BATON_TRY(const auto state, executor_->new_state(ids.size()));
    BATON_OK(executor_->prefill(*state, ids, {}));
    return stopped && stopped() ? cancelled() : Status();
  }
  std::vector<std::vector<double>> sums() const override { return sums_; }
  std::vector<double> rows() const override { return rows_; }

 private:
  static constexpr int64_t kRows = 64;

  void product(WeightId id, const Weight& weight, const float* x, float* y, int64_t tokens) {
    std::vector<double>& sums = sums_[static_cast<size_t>(id)];
    sums.resize(static_cast<size_t>(weight.columns));
    rows_[static_cast<size_t>(id)] += static_cast<double>(tokens);
    add_squares(x, tokens, weight.columns, pool_, sums);
    const size_t row_size = weight.bytes / static_cast<size_t>(weight.rows);
    pool_.parallel_for(weight.rows, kRows, [&](int64_t begin, int64_t end, uint32_t) {
      Weight part = {"",
                     weight.dtype,
                     end - begin,
                     weight.columns,
                     weight.data + static_cast<size_t>(begin) * row_size,
                     static_cast<size_t>(end - begin) * row_size,
                     ""};
      std::vector<float> results(static_cast<size_t>((end - begin) * tokens));
      ref::linear(part, x, results.data(), tokens);
      for (int64_t t = 0; t < tokens; ++t) {
        std::copy_n(results.data() + t * (end - begin), end - begin, y + t * weight.rows + begin);
      }
    });
  }

  ThreadPool pool_;
  std::vector<std::vector<double>> sums_;
  std::vector<double> rows_;
  std::unique_ptr<Executor> executor_;
};

Result<std::unique_ptr<Run>> make_run(const std::shared_ptr<const Model>& model, const ImportanceOptions& options) {
  try {
    BATON_TRY(const UnitChoice unit, parse_unit(options.unit));
    if (!unit.options.text(kKvOption).empty()) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: an importance matrix is measured with the unit's own type of keys "
                              "and values; leave {} out",
                              options.unit, kKvOption));
    }
    const auto own = static_cast<uint32_t>(unit.options.number("threads"));
    if (unit.entry->name == "cpu" && model->spec.experts != 0) {
      return fail(Code::kUnsupported,
                  "unit 'cpu' does not show what the matrices of experts read: take ref (--unit ref)");
    }
    if (unit.entry->name == "cpu")
      return HostRun::create(model, unit.options.text("kernels"), own > 0 ? own : options.threads);
    if (unit.entry->name == "ref") return std::make_unique<RefRun>(model, options.threads);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "imatrix: no memory for the model");
  } catch (const std::system_error& error) {
    return fail(Code::kDevice, fmt::format("imatrix: cannot start {} threads: {}", options.threads, error.what()));
  }
  return fail(Code::kUnsupported,
              fmt::format("unit '{}' does not show what its matrices read: take cpu or ref", options.unit));
}

// A tensor of experts has the sums of each, one behind the other, and how many rows each has read.
Status add_experts(const Model& model, const std::vector<std::vector<double>>& sums, const std::vector<double>& rows,
                   ImportanceMatrix& matrix) {
  for (const Op& op : model.program.ops) {
    if (op.kind != OpKind::kExperts) continue;
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns}) {
      ImportanceEntry entry;
      const auto first = static_cast<size_t>(op.weights[part]);
      for (size_t id = first; id < first + static_cast<size_t>(op.experts); ++id) {
        std::vector<double> own = sums[id];
        own.resize(static_cast<size_t>(model.weights[id].columns));
        if (!std::all_of(own.begin(), own.end(), [](double sum) { return std::isfinite(sum); })) {
          return fail(Code::kInvalidInput, fmt::format("what {} reads became NaN or infinite: the model's file is "
                                                       "damaged",
                                                       model.weights[id].name));
        }
        entry.sums.insert(entry.sums.end(), own.begin(), own.end());
        entry.counts.push_back(rows[id]);
      }
      matrix.entries.emplace(model.weights[first].source, std::move(entry));
    }
  }
  return {};
}

}  // namespace

Result<ImportanceMatrix> measure_importance(std::shared_ptr<const Model> model, std::span<const int32_t> tokens,
                                            const ImportanceOptions& options) {
  if (model->container->kind != ContainerKind::kGguf) {
    return fail(Code::kUnsupported, fmt::format("{}: an importance matrix is made of a GGUF file: convert the model "
                                                "with 'baton convert' first",
                                                model->container->path.string()));
  }
  uint64_t chunks = tokens.size() / options.window;
  if (options.chunks_max > 0) chunks = std::min(chunks, options.chunks_max);
  if (chunks == 0) {
    return fail(Code::kInvalidInput,
                fmt::format("{} tokens do not fill a chunk of {}; give a longer text", tokens.size(), options.window));
  }
  BATON_TRY(const auto run, make_run(model, options));
  std::vector<int32_t> ids(options.window);
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(chunk * options.window), options.window, ids.begin());
    if (options.window_start >= 0) ids[0] = options.window_start;
    BATON_OK(run->chunk(ids, options.stopped));
    if (options.on_chunk) options.on_chunk(chunk + 1, chunks);
  }
  ImportanceMatrix matrix;
  matrix.chunks = static_cast<uint32_t>(chunks);
  matrix.chunk_tokens = options.window;
  const auto sums = run->sums();
  const double tokens_all = static_cast<double>(chunks * options.window);
  BATON_OK(add_experts(*model, sums, run->rows(), matrix));
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].empty() || matrix.entries.contains(model->weights[i].source)) continue;
    if (!std::all_of(sums[i].begin(), sums[i].end(), [](double sum) { return std::isfinite(sum); })) {
      return fail(Code::kInvalidInput, fmt::format("what {} reads became NaN or infinite: the model's file is damaged",
                                                   model->weights[i].source));
    }
    matrix.entries.emplace(model->weights[i].source, ImportanceEntry{sums[i], {tokens_all}});
  }
  return matrix;
}

}  // namespace baton
