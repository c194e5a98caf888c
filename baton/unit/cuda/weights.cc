// Filling the card's memory.
#include "baton/unit/cuda/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/file.h"
#include "baton/base/thread_pool.h"
#include "baton/model/container.h"
#include "baton/unit/cuda/card_limits.h"
#include "baton/unit/cuda/limits.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kTaskBytes = uint64_t{128} << 10;  // packed by a thread at a time
constexpr uint64_t kHeldBytes = uint64_t{128} << 20;  // read of a mapping until its pages are let go
constexpr uint64_t kLinkLeast = uint64_t{256} << 20;  // of weights whose link is measured in passing
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
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  ~Upload() {
    if (releasing_.joinable()) releasing_.join();
  }

  Result<WeightLoad> run(Card& card) {
    const int64_t start = clock_.now_ns();
    BATON_OK(prepare(card));
    int64_t aside = clock_.now_ns();
    if (plan_.bytes >= kLinkLeast) {
      BATON_TRY(loaded_.link_bytes_per_second, measure_link(card, stream_, to_, buffers_[0].memory, capacity_));
    }
    aside = clock_.now_ns() - aside;
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_vector) BATON_OK(add_vector(id));
    }
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_matrix) BATON_OK(add_matrix(id));
    }
    BATON_OK(flush());
    release_read(false);
    const int64_t copied = clock_.now_ns();
    BATON_OK(stream_.wait());
    waiting_ns_ += clock_.now_ns() - copied;
    if (options_.on_progress) options_.on_progress(plan_.bytes, plan_.bytes);
    loaded_.bytes = plan_.bytes;
    loaded_.seconds = ms_between(start + aside, clock_.now_ns()) / 1e3;
    loaded_.packing_seconds = ms_between(0, packing_ns_) / 1e3;
    loaded_.waiting_seconds = ms_between(0, waiting_ns_) / 1e3;
    return loaded_;
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
    find_files();
    capacity_ = aligned(std::max(least, std::min(options_.staging_bytes, plan_.bytes)));
    for (Buffer& buffer : buffers_) {
      BATON_TRY(buffer.memory, card.allocate_pinned(capacity_));
      BATON_TRY(buffer.copied, card.event());
    }
    BATON_TRY(stream_, card.stream());
    pool_ = make_pool(options_.threads);
    return {};
  }

  // What a weight is read from; null: memory.
  void find_files() {
    files_.assign(model_.weights.size(), nullptr);
    if (model_.container == nullptr) return;
    for (size_t id = 0; id < files_.size(); ++id) {
      const Weight& weight = model_.weights[id];
      for (const MappedFile& file : model_.container->files) {
        if (file.holds({weight.data, weight.bytes})) files_[id] = &file;
      }
    }
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

  // Of a matrix: straight from the file into a buffer.
  bool is_copied(size_t id) const {
    return files_[id] != nullptr && is_stored_alike(plan_.weights[id].shape, model_.weights[id].dtype);
  }
  // Stored rows of a matrix.
  std::span<const std::byte> part_of(const Task& task) const {
    const Weight& weight = model_.weights[task.id];
    const Format& format = format_of(weight.dtype);
    const size_t row = static_cast<size_t>(weight.columns) / format.block_elements * format.block_bytes;
    return {weight.data + static_cast<size_t>(task.begin) * row, static_cast<size_t>(task.end - task.begin) * row};
  }

  Status run_task(const Task& task) const {
    const Weight& weight = model_.weights[task.id];
    const WeightPlan::Placed& placed = plan_.weights[task.id];
    if (!task.is_vector) {
      if (is_copied(task.id))
        return files_[task.id]->copy(part_of(task), reinterpret_cast<std::byte*>(task.to[kValues]));
      pack_rows(placed.shape, weight.dtype, weight.data, task.begin, task.end, task.to);
      return {};
    }
    const auto count = static_cast<size_t>(weight.rows * weight.columns);
    auto* const values = reinterpret_cast<float*>(task.to[kValues]);
    format_of(weight.dtype).decode(weight.data, values, count);
    std::fill(values + count, values + placed.vector_bytes / 4, 0.0f);
    return {};
  }

  // The first that fails is the load's.
  void try_task(const Task& task) {
    Status done = run_task(task);
    if (done) return;
    const std::lock_guard lock(mutex_);
    if (failed_) failed_ = std::move(done);
  }

  // Pages of what was packed from a mapping go while threads pack and the card copies: by themselves they would take
  // as long as a link takes for as many bytes.
  void note_read() {
    for (const Task& task : tasks_) {
      if (task.is_vector || files_[task.id] == nullptr || is_copied(task.id)) continue;
      const auto part = part_of(task);
      held_ += part.size();
      if (!read_.empty() && read_.back().second.data() + read_.back().second.size() == part.data()) {
        read_.back().second = {read_.back().second.data(), read_.back().second.size() + part.size()};
      } else {
        read_.push_back({files_[task.id], part});
      }
    }
  }
  void release_read(bool beside) {
    if (releasing_.joinable()) releasing_.join();
    held_ = 0;
    const auto release = [parts = std::exchange(read_, {})] {
      for (const auto& [file, part] : parts) file->release(part);
    };
    if (beside) {
      try {
        releasing_ = std::thread(release);
        return;
      } catch (const std::system_error&) {  // the system has no threads left
      }
    }
    release();
  }

  // Packs what was added and asks for its copies; then the next buffer's turn.
  Status flush() {
    if (copies_.empty()) return {};
    Buffer& buffer = buffers_[current_];
    const int64_t begin = clock_.now_ns();
    BATON_OK(buffer.copied.wait());
    const int64_t free = clock_.now_ns();
    pool_->parallel_for(static_cast<int64_t>(tasks_.size()), 1, [&](int64_t first, int64_t end, uint32_t) {
      for (int64_t i = first; i < end; ++i) try_task(tasks_[static_cast<size_t>(i)]);
    });
    waiting_ns_ += free - begin;
    packing_ns_ += clock_.now_ns() - free;
    BATON_OK(failed_);
    for (const Copy& copy : copies_) {
      BATON_OK(stream_.copy_in(to_ + copy.to, buffer_at(copy.from), copy.bytes));
      done_ += copy.bytes;
    }
    BATON_OK(stream_.record(buffer.copied));
    note_read();
    if (held_ >= kHeldBytes) release_read(true);
    current_ = (current_ + 1) % buffers_.size();
    used_ = 0;
    tasks_.clear();
    copies_.clear();
    if (options_.on_progress) options_.on_progress(std::min(done_, plan_.bytes), plan_.bytes);
    return {};
  }

  const Model& model_;
  const WeightPlan& plan_;
  const Address to_;
  const WeightOptions& options_;
  uint64_t capacity_ = 0;
  std::array<Buffer, kUploadBuffers> buffers_;
  Stream stream_;  // goes before the buffers that it copies from
  std::unique_ptr<ThreadPool> pool_;
  size_t current_ = 0;
  uint64_t used_ = 0, done_ = 0, held_ = 0;
  std::vector<Task> tasks_;
  std::vector<Copy> copies_;
  std::vector<const MappedFile*> files_;                                        // by weight
  std::vector<std::pair<const MappedFile*, std::span<const std::byte>>> read_;  // of mappings, pages still there
  std::thread releasing_;
  std::mutex mutex_;
  Status failed_;
  const SteadyClock clock_;
  int64_t packing_ns_ = 0, waiting_ns_ = 0;
  WeightLoad loaded_;
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

std::string load_text(const WeightLoad& load) {
  const auto bytes = static_cast<double>(load.bytes);
  std::string text = fmt::format(
      "weights {:.2f} GB in {:.3f} s, {:.1f} GB/s (packing {:.3f} s, waiting for copies {:.3f} s", bytes * 1e-9,
      load.seconds, bytes * 1e-9 / std::max(load.seconds, 1e-9), load.packing_seconds, load.waiting_seconds);
  if (load.link_bytes_per_second > 0)
    text += fmt::format("; the link: {:.1f} GB/s measured", load.link_bytes_per_second * 1e-9);
  return text + ")";
}

Result<std::unique_ptr<Weights>> Weights::load(Card& card, std::shared_ptr<const Model> model,
                                               const WeightOptions& options) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->plan_ = plan_weights(*model);
  BATON_OK(check_limits(*model, weights->plan_, card.facts().shared_bytes));
  BATON_OK(check_room(card, *model, weights->plan_.bytes, options.spared_bytes));
  BATON_TRY(weights->memory_, card.allocate(weights->plan_.bytes, "weights"));
  BATON_TRY(weights->loaded_, Upload(*model, weights->plan_, weights->memory_.address(), options).run(card));
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
