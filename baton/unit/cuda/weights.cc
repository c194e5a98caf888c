// Filling the card's memory.
#include "baton/unit/cuda/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "baton/base/thread_pool.h"
#include "baton/unit/cuda/limits.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kTaskBytes = uint64_t{128} << 10;  // packed by a thread at a time
constexpr uint64_t kHeldBytes = uint64_t{512} << 20;  // packed until pages of the file are let go
constexpr uint32_t kThreadsMax = 16;

std::string size_text(uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < uint64_t{1} << 30 ? fmt::format("{:.1f} MiB", size / (1 << 20))
                                   : fmt::format("{:.2f} GiB", size / (1 << 30));
}

uint64_t aligned(uint64_t bytes) { return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment; }

std::unique_ptr<ThreadPool> make_pool(uint32_t threads) {
  if (threads == 0) threads = std::min(physical_cores(), kThreadsMax);
  try {
    return std::make_unique<ThreadPool>(threads);
  } catch (const std::system_error&) {  // the system has no threads left
    return std::make_unique<ThreadPool>(1);
  }
}

// Rows of a matrix, or a vector, and where they go in a buffer.
struct Task {
  size_t id;
  bool is_vector;
  int64_t begin, end;
  PieceData to;
};
struct Copy {
  uint64_t to, from, bytes;  // from the beginnings of the card's memory and of the buffer
};

class Upload {
 public:
  Upload(const Model& model, const WeightPlan& plan, Address to, const WeightOptions& options)
      : model_(model), plan_(plan), to_(to), options_(options) {}

  Status run(Card& card) {
    BATON_OK(prepare(card));
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_vector) BATON_OK(add_vector(id));
    }
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_matrix) BATON_OK(add_matrix(id));
    }
    BATON_OK(flush());
    BATON_OK(stream_.wait());
    if (options_.on_progress) options_.on_progress(plan_.bytes, plan_.bytes);
    return {};
  }

 private:
  struct Buffer {
    PinnedMemory memory;
    Event copied;
  };

  // Buffers hold at least a row of any matrix, and any vector.
  Status prepare(Card& card) {
    uint64_t least = kPieceAlignment;
    for (const WeightPlan::Placed& placed : plan_.weights) {
      uint64_t row = 0;
      for (const uint64_t bytes : placed.shape.row_bytes) row += aligned(bytes);
      least = std::max({least, row, placed.vector_bytes});
    }
    capacity_ = aligned(std::max(least, std::min(options_.staging_bytes, plan_.bytes)));
    for (Buffer& buffer : buffers_) {
      BATON_TRY(buffer.memory, card.allocate_pinned(capacity_));
      BATON_TRY(buffer.copied, card.event());
    }
    BATON_TRY(stream_, card.stream());
    pool_ = make_pool(options_.threads);
    return {};
  }

  unsigned char* buffer_at(uint64_t offset) {
    return reinterpret_cast<unsigned char*>(buffers_[current_].memory.data()) + offset;
  }

  // What goes on where the last copy ends is part of it.
  void add_copy(uint64_t to, uint64_t from, uint64_t bytes) {
    if (bytes == 0) return;
    if (!copies_.empty()) {
      Copy& last = copies_.back();
      if (last.to + last.bytes == to && last.from + last.bytes == from) {
        last.bytes += bytes;
        return;
      }
    }
    copies_.push_back({to, from, bytes});
  }

  Status add_vector(size_t id) {
    const WeightPlan::Placed& placed = plan_.weights[id];
    if (used_ + placed.vector_bytes > capacity_) BATON_OK(flush());
    tasks_.push_back({id, true, 0, 0, {buffer_at(used_)}});
    add_copy(placed.vector_at, used_, placed.vector_bytes);
    used_ += placed.vector_bytes;
    return {};
  }

  Status add_matrix(size_t id) {
    const WeightPlan::Placed& placed = plan_.weights[id];
    const Shape& shape = placed.shape;
    const uint64_t bytes = shape.bytes();
    if (bytes <= capacity_) {
      if (used_ + bytes > capacity_) BATON_OK(flush());
      add_rows(id, 0, shape.matrix.rows, used_, shape.offsets());
      add_copy(placed.matrix_at, used_, bytes);
      used_ += bytes;
      return {};
    }
    // In buffers of its own; its pieces are apart.
    uint64_t row = 0, waste = kPieces * kPieceAlignment;
    for (const uint64_t piece : shape.row_bytes) row += piece;
    const auto most = static_cast<int64_t>(capacity_ > row + waste ? (capacity_ - waste) / row : 1);
    for (int64_t begin = 0; begin < shape.matrix.rows; begin += most) {
      BATON_OK(flush());
      const int64_t end = std::min<int64_t>(begin + most, shape.matrix.rows);
      const PieceBytes whole = shape.offsets();
      PieceBytes offsets{};
      uint64_t at = 0;
      for (size_t i = 0; i < kPieces; ++i) {
        const uint64_t part = shape.row_bytes[i] * static_cast<uint64_t>(end - begin);
        offsets[i] = at;
        add_copy(placed.matrix_at + whole[i] + shape.row_bytes[i] * static_cast<uint64_t>(begin), at, part);
        at += aligned(part);
      }
      add_rows(id, begin, end, 0, offsets);
      used_ = at;
    }
    return {};
  }

  void add_rows(size_t id, int64_t begin, int64_t end, uint64_t at, const PieceBytes& offsets) {
    const Shape& shape = plan_.weights[id].shape;
    const auto step = static_cast<int64_t>(std::max<uint64_t>(1, kTaskBytes / shape.row_bytes[kValues]));
    for (int64_t row = begin; row < end; row += step) {
      Task task = {id, false, row, std::min(row + step, end), {}};
      for (size_t i = 0; i < kPieces; ++i)
        task.to[i] = buffer_at(at + offsets[i] + shape.row_bytes[i] * static_cast<uint64_t>(row - begin));
      tasks_.push_back(task);
    }
  }

  void run_task(const Task& task) const {
    const Weight& weight = model_.weights[task.id];
    const WeightPlan::Placed& placed = plan_.weights[task.id];
    if (!task.is_vector) {
      pack_rows(placed.shape, weight.dtype, weight.data, task.begin, task.end, task.to);
      return;
    }
    const auto count = static_cast<size_t>(weight.rows * weight.columns);
    auto* const values = reinterpret_cast<float*>(task.to[kValues]);
    format_of(weight.dtype).decode(weight.data, values, count);
    std::fill(values + count, values + placed.vector_bytes / 4, 0.0f);
  }

  // Packs what was added and asks for its copies; then the other buffer's turn.
  Status flush() {
    if (copies_.empty()) return {};
    Buffer& buffer = buffers_[current_];
    BATON_OK(buffer.copied.wait());
    pool_->parallel_for(static_cast<int64_t>(tasks_.size()), 1, [&](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) run_task(tasks_[static_cast<size_t>(i)]);
    });
    for (const Copy& copy : copies_) {
      BATON_OK(stream_.copy_in(to_ + copy.to, buffer_at(copy.from), copy.bytes));
      done_ += copy.bytes;
      held_ += copy.bytes;
    }
    BATON_OK(stream_.record(buffer.copied));
    current_ = 1 - current_;
    used_ = 0;
    tasks_.clear();
    copies_.clear();
    if (held_ >= kHeldBytes) {
      model_.release_pages();
      held_ = 0;
    }
    if (options_.on_progress) options_.on_progress(std::min(done_, plan_.bytes), plan_.bytes);
    return {};
  }

  const Model& model_;
  const WeightPlan& plan_;
  const Address to_;
  const WeightOptions& options_;
  uint64_t capacity_ = 0;
  std::array<Buffer, 2> buffers_;
  Stream stream_;  // goes before the buffers that it copies from
  std::unique_ptr<ThreadPool> pool_;
  size_t current_ = 0;
  uint64_t used_ = 0, done_ = 0, held_ = 0;
  std::vector<Task> tasks_;
  std::vector<Copy> copies_;
};

Status check_room(const Card& card, const Model& model, uint64_t bytes, uint64_t spared) {
  BATON_TRY(const uint64_t free, card.free_bytes());
  if (bytes <= free && spared <= free - bytes) return {};
  const CardFacts& facts = card.facts();
  std::string text = fmt::format("card {} ({}): the weights of '{}' take {}", facts.index, facts.name, model.spec.name,
                                 size_text(bytes));
  if (spared > 0) text += fmt::format(", and {} must be left for states", size_text(spared));
  text += fmt::format("; {} of its {} are free: use a more quantised or smaller model, or another unit",
                      size_text(free), size_text(facts.memory_bytes));
  return fail(Code::kOutOfMemory, std::move(text));
}

}  // namespace

Result<std::unique_ptr<Weights>> Weights::load(Card& card, std::shared_ptr<const Model> model,
                                               const WeightOptions& options) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->plan_ = plan_weights(*model);
  BATON_OK(check_limits(*model, weights->plan_, card.facts().shared_bytes));
  BATON_OK(check_room(card, *model, weights->plan_.bytes, options.spared_bytes));
  BATON_TRY(weights->memory_, card.allocate(weights->plan_.bytes, "weights"));
  BATON_OK(Upload(*model, weights->plan_, weights->memory_.address(), options).run(card));
  model->release_pages();
  weights->model_ = std::move(model);
  return weights;
}

Matrix Weights::matrix(WeightId id) const {
  const WeightPlan::Placed& placed = plan_.of(id);
  if (!placed.is_matrix) return {};
  return placed.shape.at(memory_.address() + placed.matrix_at);
}

Address Weights::vector(WeightId id) const {
  const WeightPlan::Placed& placed = plan_.of(id);
  return placed.is_vector ? memory_.address() + placed.vector_at : 0;
}

std::array<uint64_t, kPieces> Weights::expert_strides(const Op& op, size_t which) const {
  const WeightPlan::Placed& placed = plan_.of(op.weights[which]);
  std::array<uint64_t, kPieces> strides{};
  for (size_t i = 0; i < kPieces; ++i) strides[i] = placed.shape.row_bytes[i] != 0 ? placed.stride : 0;
  return strides;
}

}  // namespace baton::cuda
