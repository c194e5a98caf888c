// The probes. Every value in them is a small integer, exact on any fp16 engine, and the answers are computed here: no
// emulator has to agree with itself.
#include "baton/unit/apple/self_check.h"

#include <fmt/format.h>

#include <functional>

#include "baton/base/bytes.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/mil_writer.h"
#include "baton/unit/apple/plain_file.h"

namespace baton::apple {
namespace {

constexpr std::string_view kWeightFolder = "@model_path/";
constexpr std::string_view kWeightPath = "weights/self_check.bin";
constexpr std::string_view kHead =
    "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"coremlc-version\", "
    "\"3505.4.1\"}})]\n{\n  func main<ios16>(";

// Values of input `port` at (channel, column): they tell ports, rows and columns apart.
float input_value(size_t port, int64_t channel, int64_t column) {
  return static_cast<float>((channel * 37 + column * 5) % 499 + 600 * static_cast<int64_t>(port));
}

struct Probe {
  std::string mil;
  std::vector<std::byte> weights;  // empty: none
  size_t inputs = 1;
  int64_t in_channels = 0, out_channels = 0, columns = 0;
  int64_t pitch = 0;  // values from one row of a surface to the next
  std::function<float(int64_t channel, int64_t column)> expected;
};

// A matrix with `count` ones (or `value`s) in each row, where `place` says.
std::vector<uint16_t> picks(int64_t rows, int64_t columns,
                            const std::function<std::vector<std::pair<int64_t, float>>(int64_t)>& of_row) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r) {
    for (const auto& [column, value] : of_row(r)) out[static_cast<size_t>(r * columns + column)] = to_fp16(value);
  }
  return out;
}

// y[r] = x[63 - r] + 2 x[(r + 7) % 64]: a convolution as every kernel has, no square and no symmetric matrix.
Result<Probe> conv_probe() {
  constexpr int64_t kSize = 64;
  const auto matrix = picks(kSize, kSize, [](int64_t r) {
    return std::vector<std::pair<int64_t, float>>{{kSize - 1 - r, 1.0f}, {(r + 7) % kSize, 2.0f}};
  });
  Probe probe;
  BlobWriter blobs;
  const uint64_t record = blobs.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(matrix)));
  probe.weights = std::move(blobs).finish();
  MilWriter writer;
  const auto x = writer.input("x", kSize, kSize);
  const auto y = writer.conv("y", x, writer.conv_weight("self_check_w", kSize, kSize, kWeightPath, record));
  BATON_TRY(probe.mil, std::move(writer).finish(y));
  probe.in_channels = probe.out_channels = probe.columns = probe.pitch = kSize;
  probe.expected = [](int64_t r, int64_t c) {
    // A row that picks one channel twice has only the later of the two weights.
    const int64_t first = kSize - 1 - r, second = (r + 7) % kSize;
    return (first == second ? 0 : input_value(0, first, c)) + 2 * input_value(0, second, c);
  };
  return probe;
}

// b - a, declared with b first: which surface is a tells the order.
Probe binding_probe() {
  const std::string type = "tensor<fp16, [1, 4, 1, 32]>";
  Probe probe;
  probe.mil = std::string(kHead) +
              fmt::format(
                  "{0} b, {0} a) {{\n    {0} y = sub(x = b, y = a)[name = tensor<string, []>(\"y\")];\n  }} -> "
                  "(y);\n}}\n",
                  type);
  probe.inputs = 2;
  probe.in_channels = probe.out_channels = 4;
  probe.columns = probe.pitch = 32;
  probe.expected = [](int64_t r, int64_t c) { return input_value(1, r, c) - input_value(0, r, c); };
  return probe;
}

// Rows of 16 values: 32 bytes of data, 64 bytes apart or packed.
Probe pitch_probe() {
  const std::string type = "tensor<fp16, [1, 4, 1, 16]>";
  Probe probe;
  probe.mil =
      std::string(kHead) +
      fmt::format("{0} x) {{\n    {0} y = add(x = x, y = x)[name = tensor<string, []>(\"y\")];\n  }} -> (y);\n}}\n",
                  type);
  probe.in_channels = probe.out_channels = 4;
  probe.columns = 16;
  probe.pitch = 32;
  probe.expected = [](int64_t r, int64_t c) { return 2 * input_value(0, r, c); };
  return probe;
}

// Two convolutions, one picking channels in reverse, joined: order of channels and of weights.
Result<Probe> concat_probe() {
  constexpr int64_t kChannels = 32;
  const auto reverse = picks(kChannels, kChannels, [](int64_t r) {
    return std::vector<std::pair<int64_t, float>>{{kChannels - 1 - r, 1.0f}};
  });
  const auto twice = picks(kChannels, kChannels, [](int64_t r) {
    return std::vector<std::pair<int64_t, float>>{{r, 2.0f}};
  });
  Probe probe;
  BlobWriter blobs;
  const uint64_t first = blobs.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(reverse)));
  const uint64_t second = blobs.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(twice)));
  probe.weights = std::move(blobs).finish();
  MilWriter writer;
  const auto x = writer.input("x", kChannels, 32);
  const auto a = writer.conv("a", x, writer.conv_weight("reverse", kChannels, kChannels, kWeightPath, first));
  const auto b = writer.conv("b", x, writer.conv_weight("twice", kChannels, kChannels, kWeightPath, second));
  const MilWriter::Value parts[] = {a, b};
  BATON_TRY(probe.mil, std::move(writer).finish(writer.concat("y", parts)));
  probe.in_channels = probe.columns = probe.pitch = 32;
  probe.out_channels = 64;
  probe.expected = [](int64_t r, int64_t c) {
    return r < kChannels ? input_value(0, kChannels - 1 - r, c) : 2 * input_value(0, r - kChannels, c);
  };
  return probe;
}

Status write_files(const Probe& probe, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder / "weights", error);
  BATON_OK(write_plain_file(folder / "model.mil", as_bytes(probe.mil)));
  return probe.weights.empty() ? Status{} : write_plain_file(folder / kWeightPath, probe.weights);
}

Status fill(Surface& surface, size_t port, const Probe& probe) {
  BATON_TRY(SurfaceLock lock, SurfaceLock::take(surface, LockMode::kReadWrite));
  for (int64_t r = 0; r < probe.in_channels; ++r) {
    for (int64_t c = 0; c < probe.columns; ++c) {
      store_as<uint16_t>(lock.bytes().data() + 2 * (r * probe.pitch + c), to_fp16(input_value(port, r, c)));
    }
  }
  return lock.unlock();
}

// Runs the probe and compares: kUnsupported names the first value that differs.
Status run_in(Driver& driver, const Probe& probe, std::filesystem::path* folder) {
  std::vector<WeightEntry> weights;
  if (!probe.weights.empty()) weights.push_back({fmt::format("{}{}", kWeightFolder, kWeightPath), 0, probe.weights});
  BATON_TRY(const auto model, driver.create_model(probe.mil, &weights));
  *folder = driver.temporary_folder() / model->identifier();
  BATON_OK(write_files(probe, *folder));
  BATON_OK(model->compile());
  BATON_OK(model->load());
  std::vector<std::unique_ptr<Surface>> surfaces;
  RequestSpec spec;
  const auto bytes_of = [&](int64_t channels) {
    return surface_bytes(static_cast<uint64_t>(channels * probe.pitch * 2));
  };
  for (size_t i = 0; i < probe.inputs; ++i) {
    BATON_TRY(auto surface, driver.create_surface(SurfaceProperties::flat(bytes_of(probe.in_channels))));
    BATON_OK(fill(*surface, i, probe));
    spec.input_indices.push_back(static_cast<int32_t>(i));
    spec.inputs.push_back(surface.get());
    surfaces.push_back(std::move(surface));
  }
  BATON_TRY(const auto output, driver.create_surface(SurfaceProperties::flat(bytes_of(probe.out_channels))));
  spec.outputs = {output.get()};
  spec.output_indices = {0};
  BATON_TRY(const auto request, driver.create_request(spec));
  BATON_OK(model->evaluate(*request));
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*output, LockMode::kReadOnly));
  for (int64_t r = 0; r < probe.out_channels; ++r) {
    for (int64_t c = 0; c < probe.columns; ++c) {
      const uint16_t got = load_as<uint16_t>(lock.bytes().data() + 2 * (r * probe.pitch + c));
      const float expected = probe.expected(r, c);
      if (got == to_fp16(expected)) continue;
      return fail(Code::kUnsupported,
                  fmt::format("channel {} column {} is {}, expected {}", r, c, from_fp16(got), expected));
    }
  }
  return {};
}

Status run(Driver& driver, const Probe& probe) {
  std::filesystem::path folder;
  Status status = run_in(driver, probe, &folder);
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  return status;
}

Advice advice(Driver& driver, const char* name, const char* yes, const char* no, const Result<Probe>& probe) {
  const Status status = probe ? run(driver, *probe) : Status(fail(probe.error()));
  return {name, status ? yes : fmt::format("{}: {}", no, status.error().message), status.has_value()};
}

}  // namespace

Status self_check(Driver& device) {
  BATON_TRY(const Probe probe, conv_probe());
  const Status status = run(device, probe);
  if (status) return {};
  return fail(
      Code::kUnsupported,
      fmt::format("start-up check: a convolution of 64 channels and 64 columns: {}; the unit would compute wrong "
                  "values here (baton-apple-check makes a report)",
                  status.error().message));
}

std::vector<Advice> advise(Driver& device) {
  return {advice(device, "port_order", "ports are bound in the order of their names",
                 "ports may not be bound in the order of their names", binding_probe()),
          advice(device, "row_pitch", "rows of 16 values are 64 bytes apart",
                 "rows of 16 values do not work as 64 bytes", pitch_probe()),
          advice(device, "concat", "two convolutions and concat agree", "convolutions joined by concat do not work",
                 concat_probe())};
}

}  // namespace baton::apple
