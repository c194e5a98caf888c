// What a load does on the host, one thread: rows of a stored matrix taken apart into the planes of a card. The link
// must not wait for it: threads times these rates against 12 to 55 GB/s of PCI Express.
//   GB/s, in    stored bytes, GB/s, out: packed ones
//   pack/TYPE  from memory that no cache holds, into 8 MiB that one does
//   load/TYPE  of a load of 256 MiB from a mapped file, whose copies an emulated card makes: what the host does before
//              them (WeightLoad::packing_seconds), with one thread
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/model/container.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/pack.h"
#include "baton/unit/cuda/weights.h"

namespace baton::cuda {
namespace {

void pack(benchmark::State& state, DType dtype) {
  constexpr int64_t kColumns = 2048;
  const Format& format = format_of(dtype);
  const auto stored =
      static_cast<int64_t>(static_cast<uint64_t>(kColumns) / format.block_elements * format.block_bytes);
  const bool smoke = state.max_iterations == 1;
  const int64_t rows_all = std::max<int64_t>((smoke ? int64_t{1} << 20 : int64_t{256} << 20) / stored, 1);
  const int64_t rows = std::min(rows_all, std::max<int64_t>((int64_t{8} << 20) / stored, 1));
  std::vector<std::byte> source(static_cast<size_t>(rows_all * stored), std::byte{0x35});
  const Shape shape = shape_of(dtype, rows, kColumns);
  std::vector<unsigned char> packed(shape.bytes());
  int64_t row = 0;
  for (auto _ : state) {
    pack_rows(shape, dtype, source.data() + row * stored, 0, rows, packed.data());
    benchmark::ClobberMemory();
    row = row + 2 * rows <= rows_all ? row + rows : 0;
  }
  const auto count = static_cast<double>(state.iterations());
  using Counter = benchmark::Counter;
  state.counters["GB/s, in"] = Counter(count * static_cast<double>(rows * stored) * 1e-9, Counter::kIsRate);
  state.counters["GB/s, out"] = Counter(count * static_cast<double>(shape.bytes()) * 1e-9, Counter::kIsRate);
}

// A file of one matrix of zeros, in the system's cache.
std::shared_ptr<Model> file_of(DType dtype, int64_t rows, int64_t columns) {
  const Format& format = format_of(dtype);
  const auto bytes = static_cast<size_t>(rows * columns) / format.block_elements * format.block_bytes;
  const auto path = std::filesystem::temp_directory_path() / ("baton_pack_bench_" + std::to_string(::getpid()));
  BATON_CHECK(write_file(path, std::vector<std::byte>(bytes)).has_value());
  auto model = std::make_shared<Model>();
  auto container = std::make_unique<Container>();
  container->files.push_back(*MappedFile::open(path));
  std::filesystem::remove(path);
  model->weights.push_back({.name = "w",
                            .dtype = dtype,
                            .rows = rows,
                            .columns = columns,
                            .data = container->files[0].bytes().data(),
                            .bytes = bytes,
                            .source = {}});
  model->program.ops.push_back({.kind = OpKind::kEmbed, .weights = {0}});
  model->container = std::move(container);
  return model;
}

void load(benchmark::State& state, DType dtype) {
  constexpr int64_t kColumns = 2048;
  const Format& format = format_of(dtype);
  const auto row = static_cast<int64_t>(static_cast<uint64_t>(kColumns) / format.block_elements * format.block_bytes);
  const auto model = file_of(dtype, ((state.max_iterations == 1 ? int64_t{1} : int64_t{256}) << 20) / row, kColumns);
  const auto card = *Card::open(emulated_driver(), 0);
  double seconds = 0, bytes = 0;
  for (auto _ : state) {
    const auto weights = Weights::load(*card, model, {.threads = 1});
    BATON_CHECK(weights.has_value());
    seconds += (*weights)->loaded().packing_seconds;
    bytes += static_cast<double>((*weights)->bytes());
  }
  state.counters["GB/s, out"] = benchmark::Counter(bytes / seconds * 1e-9);
}

[[maybe_unused]] const bool registered = [] {
  for (const Format& format : formats()) {
    if (!is_native(format.dtype)) continue;
    benchmark::RegisterBenchmark(("pack/" + std::string(format.name)).c_str(), pack, format.dtype);
  }
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
    benchmark::RegisterBenchmark(("load/" + std::string(format_of(dtype).name)).c_str(), load, dtype);
  return true;
}();

}  // namespace
}  // namespace baton::cuda
