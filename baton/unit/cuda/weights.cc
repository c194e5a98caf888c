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
#include "baton/unit/cuda/piece_ring.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kTaskBytes = uint64_t{128} << 10;  // packed by a thread at a time
constexpr uint32_t kOnTheWay = 2;                     // copies that keep the link busy while this thread waits for one
constexpr uint64_t kLinkLeast = uint64_t{256} << 20;  // of weights whose link is measured in passing
constexpr uint32_t kThreadsMax = 16;

std::string size_text(uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < uint64_t{1} << 30 ? fmt::format("{:.1f} MiB", size / (1 << 20))
                                   : fmt::format("{:.2f} GiB", size / (1 << 30));
}

uint64_t aligned(uint64_t bytes) { return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment; }

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
  unsigned char* to;
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

  Result<WeightLoad> run(Card& card) {
    const int64_t start = clock_.now_ns();
    BATON_OK(prepare(card));
    int64_t aside = clock_.now_ns();
    if (plan_.bytes >= kLinkLeast) {
      BATON_TRY(loaded_.link_bytes_per_second, measure_link(card, stream_, to_, pinned_, capacity_));
    }
    aside = clock_.now_ns() - aside;
    Status sent;
    ring_.run(*pool_, [&] { sent = send_all(); });
    BATON_OK(std::move(sent));
    if (options_.on_progress) options_.on_progress(plan_.bytes, plan_.bytes);
    loaded_.bytes = plan_.bytes;
    loaded_.seconds = ms_between(start + aside, clock_.now_ns()) / 1e3;
    loaded_.packing_seconds = ms_between(0, packing_ns_) / 1e3;
    loaded_.waiting_seconds = ms_between(0, waiting_ns_) / 1e3;
    return loaded_;
  }

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    Event copied;
    std::vector<Task> tasks;
    std::vector<Copy> copies;
  };

  // Buffers hold at least a row of any matrix, and any vector.
  Status prepare(Card& card) {
    uint64_t least = kWeightAlignment;
    for (const WeightPlan::Placed& placed : plan_.weights)
      least = std::max({least, placed.shape.row_bytes(), placed.vector_bytes});
    find_files();
    uint64_t stored = 0;  // that a task packs
    for (size_t id = 0; id < files_.size(); ++id) {
      if (!plan_.weights[id].is_matrix || files_[id] == nullptr || is_copied(id)) continue;
      stored = std::max(stored, static_cast<uint64_t>(rows_of_task(plan_.weights[id].shape)) * stored_row(id));
    }
    capacity_ = aligned(std::max(least, std::min(options_.staging_bytes, plan_.bytes)));
    pool_ = make_pool(options_.threads);
    BATON_TRY(pinned_, card.allocate_pinned(kUploadBuffers * capacity_, pool_.get()));
    for (size_t i = 0; i < kUploadBuffers; ++i) {
      buffers_[i].memory = pinned_.data() + i * capacity_;
      BATON_TRY(buffers_[i].copied, card.event());
    }
    BATON_TRY(stream_, card.stream());
    scratch_.assign(pool_->size(), std::vector<std::byte>(stored));
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

  Status send_all() {
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_vector) BATON_OK(add_vector(id));
    }
    for (size_t id = 0; id < plan_.weights.size(); ++id) {
      if (plan_.weights[id].is_matrix) BATON_OK(add_matrix(id));
    }
    BATON_OK(flush());
    BATON_OK(await(ring_.added()));
    return stream_.wait();
  }

  Buffer& current() { return buffers_[ring_.added() % kUploadBuffers]; }
  unsigned char* buffer_at(uint64_t offset) { return reinterpret_cast<unsigned char*>(current().memory) + offset; }

  // What goes on where the last copy ends is part of it.
  void add_copy(uint64_t to, uint64_t from, uint64_t bytes) {
    if (bytes == 0) return;
    std::vector<Copy>& copies = current().copies;
    if (!copies.empty()) {
      Copy& last = copies.back();
      if (last.to + last.bytes == to && last.from + last.bytes == from) {
        last.bytes += bytes;
        return;
      }
    }
    copies.push_back({to, from, bytes});
  }

  // A buffer has fewer small weights than a batch may have pieces.
  bool is_full(uint64_t more) {
    return used_ + more > capacity_ || current().tasks.size() >= PieceRing<kUploadBuffers>::kPiecesMax / 2;
  }

  Status add_vector(size_t id) {
    const WeightPlan::Placed& placed = plan_.weights[id];
    if (is_full(placed.vector_bytes)) BATON_OK(flush());
    current().tasks.push_back({id, true, 0, 0, buffer_at(used_)});
    add_copy(placed.vector_at, used_, placed.vector_bytes);
    used_ += placed.vector_bytes;
    return {};
  }

  Status add_matrix(size_t id) {
    const WeightPlan::Placed& placed = plan_.weights[id];
    const Shape& shape = placed.shape;
    const uint64_t bytes = shape.bytes();
    if (bytes <= capacity_) {
      if (is_full(bytes)) BATON_OK(flush());
      add_rows(id, 0, shape.matrix.rows, used_);
      add_copy(placed.matrix_at, used_, bytes);
      used_ += bytes;
      return {};
    }
    // In buffers of its own.
    const uint64_t row = shape.row_bytes();
    const auto most = static_cast<int64_t>(capacity_ / row);
    for (int64_t begin = 0; begin < shape.matrix.rows; begin += most) {
      BATON_OK(flush());
      const int64_t end = std::min<int64_t>(begin + most, shape.matrix.rows);
      used_ = row * static_cast<uint64_t>(end - begin);
      add_copy(placed.matrix_at + row * static_cast<uint64_t>(begin), 0, used_);
      add_rows(id, begin, end, 0);
    }
    return {};
  }

  // Rows of a matrix into the buffer, from `at` on.
  void add_rows(size_t id, int64_t begin, int64_t end, uint64_t at) {
    const Shape& shape = plan_.weights[id].shape;
    const int64_t step = rows_of_task(shape);
    for (int64_t row = begin; row < end; row += step) {
      unsigned char* const to = buffer_at(at + shape.row_bytes() * static_cast<uint64_t>(row - begin));
      current().tasks.push_back({id, false, row, std::min(row + step, end), to});
    }
  }

  // Of a matrix: straight from the file into a buffer.
  bool is_copied(size_t id) const {
    return files_[id] != nullptr && is_stored_alike(plan_.weights[id].shape, model_.weights[id].dtype);
  }
  static int64_t rows_of_task(const Shape& shape) {
    return static_cast<int64_t>(std::max<uint64_t>(1, kTaskBytes / shape.row_bytes()));
  }
  uint64_t stored_row(size_t id) const {
    const Weight& weight = model_.weights[id];
    const Format& format = format_of(weight.dtype);
    return static_cast<uint64_t>(weight.columns) / format.block_elements * format.block_bytes;
  }
  // Stored rows of a matrix.
  std::span<const std::byte> part_of(const Task& task) const {
    const uint64_t row = stored_row(task.id);
    return {model_.weights[task.id].data + static_cast<uint64_t>(task.begin) * row,
            static_cast<uint64_t>(task.end - task.begin) * row};
  }

  Status run_task(const Task& task, std::vector<std::byte>& scratch) const {
    const Weight& weight = model_.weights[task.id];
    const WeightPlan::Placed& placed = plan_.weights[task.id];
    if (!task.is_vector) {
      const MappedFile* const file = files_[task.id];
      const auto part = part_of(task);
      if (is_copied(task.id)) return file->copy(part, reinterpret_cast<std::byte*>(task.to));
      const std::byte* from = part.data();
      if (file != nullptr) {
        BATON_OK(file->copy(part, scratch.data()));
        from = scratch.data();
      }
      pack_rows(placed.shape, weight.dtype, from, 0, task.end - task.begin, task.to);
      return {};
    }
    const auto count = static_cast<size_t>(weight.rows * weight.columns);
    auto* const values = reinterpret_cast<float*>(task.to);
    format_of(weight.dtype).decode(weight.data, values, count);
    std::fill(values + count, values + placed.vector_bytes / 4, 0.0f);
    return {};
  }

  // The first that fails is the load's.
  void try_task(const Task& task, std::vector<std::byte>& scratch) {
    Status done = run_task(task, scratch);
    if (done) return;
    const std::lock_guard lock(mutex_);
    if (failed_) failed_ = std::move(done);
  }

  // Hands what was added to the threads; then the next buffer's turn.
  Status flush() {
    if (current().copies.empty()) return {};
    ring_.add(static_cast<uint32_t>(current().tasks.size()));
    while (sent_ < ring_.added() && ring_.done(sent_)) BATON_OK(send());
    if (ring_.added() >= kUploadBuffers) BATON_OK(await(ring_.added() - kUploadBuffers + 1));
    used_ = 0;
    current().tasks.clear();
    current().copies.clear();
    return {};
  }

  // Until so many buffers, the first, were copied. Those that are packed meanwhile are sent: the link has something to
  // do whenever this thread waits for it, if there is anything.
  Status await(uint32_t buffers) {
    while (copied_ < buffers) {
      const bool all_sent = sent_ == ring_.added();
      if (!all_sent && ring_.done(sent_)) {
        BATON_OK(send());
        continue;
      }
      const int64_t begin = clock_.now_ns();
      if (all_sent || sent_ - copied_ >= kOnTheWay) {
        BATON_OK(buffers_[copied_ % kUploadBuffers].copied.wait());
        ++copied_;
        waiting_ns_ += clock_.now_ns() - begin;
      } else {
        ring_.wait(sent_);
        packing_ns_ += clock_.now_ns() - begin;
      }
    }
    return {};
  }

  // The next, which is packed.
  Status send() {
    {
      const std::lock_guard lock(mutex_);
      BATON_OK(failed_);
    }
    Buffer& buffer = buffers_[sent_ % kUploadBuffers];
    for (const Copy& copy : buffer.copies) {
      BATON_OK(stream_.copy_in(to_ + copy.to, buffer.memory + copy.from, copy.bytes));
      done_ += copy.bytes;
    }
    BATON_OK(stream_.record(buffer.copied));
    ++sent_;
    if (options_.on_progress) options_.on_progress(std::min(done_, plan_.bytes), plan_.bytes);
    return {};
  }

  const Model& model_;
  const WeightPlan& plan_;
  const Address to_;
  const WeightOptions& options_;
  uint64_t capacity_ = 0;
  PinnedMemory pinned_;
  std::array<Buffer, kUploadBuffers> buffers_;
  Stream stream_;  // goes before the buffers that it copies from
  std::unique_ptr<ThreadPool> pool_;
  PieceRing<kUploadBuffers> ring_{[this](size_t slot, uint32_t piece, uint32_t thread) {
    try_task(buffers_[slot].tasks[piece], scratch_[thread]);
  }};
  uint32_t sent_ = 0, copied_ = 0;  // buffers, the first
  uint64_t used_ = 0, done_ = 0;
  std::vector<const MappedFile*> files_;         // by weight
  std::vector<std::vector<std::byte>> scratch_;  // by thread: rows as they are stored
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

}  // namespace baton::cuda
