// The probes, and their comparison bit by bit: every value in them is a small integer, exact on any fp16 engine.
#include "baton/unit/apple/self_check.h"

#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/mil_writer.h"
#include "baton/unit/apple/plain_file.h"

namespace baton::apple {
namespace {

constexpr std::string_view kModelPath = "@model_path/";

struct Probe {
  std::string what;  // what is wrong when the answers differ
  std::string mil;
  std::string weights_key;  // empty: none
  std::vector<std::byte> weights;
  std::vector<uint64_t> inputs;  // bytes of the surfaces, in bound order
  uint64_t output = 0;
  uint64_t row_values_bytes = 64;  // of each 64 bytes of the output; what lies between rows does not matter
};

constexpr std::string_view kHead =
    "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{tensor<string, "
    "[]>(\"coremlc-version\"), "
    "tensor<string, []>(\"3505.4.1\")}})]\n{\n  func main<ios16>(";

// b - a, declared with b first: which surface is a tells the order.
Probe binding_probe() {
  const std::string type = "tensor<fp16, [1, 4, 1, 32]>";
  std::string mil(kHead);
  mil += fmt::format(
      "{0} b, {0} a) {{\n    {0} y = sub(x = b, y = a)[name = tensor<string, []>(\"y\")];\n  }} -> (y);\n}}\n", type);
  return {"ports are not bound in the order of their names", std::move(mil), "", {}, {256, 256}, 256};
}

// Rows of 16 values: 32 bytes of data, at a pitch of 64 bytes or packed.
Probe pitch_probe() {
  const std::string type = "tensor<fp16, [1, 4, 1, 16]>";
  std::string mil(kHead);
  mil += fmt::format("{0} x) {{\n    {0} y = add(x = x, y = x)[name = tensor<string, []>(\"y\")];\n  }} -> (y);\n}}\n",
                     type);
  return {"rows of ports are not 64 bytes apart", std::move(mil), "", {}, {256}, 256, 32};
}

// Two convolutions, one picking channels in reverse, joined: order of channels and of weights.
Result<Probe> concat_probe() {
  constexpr int64_t kChannels = 4;
  std::vector<uint16_t> reverse(kChannels * kChannels), twice(kChannels * kChannels);
  for (size_t i = 0; i < kChannels; ++i) {
    reverse[i * kChannels + (kChannels - 1 - i)] = to_fp16(1);
    twice[i * kChannels + i] = to_fp16(2);
  }
  BlobWriter blobs;
  const uint64_t first = blobs.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(reverse)));
  const uint64_t second = blobs.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(twice)));
  const std::string path = "weights/self_check_concat.bin";
  MilWriter writer;
  const auto x = writer.input("x", kChannels, 32);
  const auto a = writer.conv("a", x, writer.conv_weight("reverse", kChannels, kChannels, path, first));
  const auto b = writer.conv("b", x, writer.conv_weight("twice", kChannels, kChannels, path, second));
  const MilWriter::Value parts[] = {a, b};
  const auto y = writer.concat("y", parts);
  BATON_TRY(std::string mil, std::move(writer).finish(y));
  return Probe{"convolutions and concat give other values",
               std::move(mil),
               fmt::format("{}{}", kModelPath, path),
               std::move(blobs).finish(),
               {kChannels * 64},
               2 * kChannels * 64};
}

Status write_files(const Probe& probe, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder / "weights", error);
  BATON_OK(write_plain_file(folder / "model.mil", as_bytes(probe.mil)));
  if (probe.weights_key.empty()) return {};
  return write_plain_file(folder / probe.weights_key.substr(kModelPath.size()), probe.weights);
}

// Values that tell ports, rows and columns apart, all over the surface.
Status fill(Surface& surface, size_t port) {
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(surface, LockMode::kReadWrite));
  for (size_t i = 0; i + 1 < lock.bytes().size(); i += 2) {
    store_as<uint16_t>(lock.bytes().data() + i, to_fp16(static_cast<float>(i / 2 % 509 + 600 * port)));
  }
  return {};
}

Result<std::vector<std::byte>> run_in(Driver& driver, const Probe& probe, std::filesystem::path* folder) {
  std::vector<WeightEntry> weights;
  if (!probe.weights_key.empty()) weights.push_back({probe.weights_key, 0, probe.weights});
  BATON_TRY(const auto model, driver.create_model(probe.mil, &weights));
  *folder = driver.temporary_folder() / model->identifier();
  BATON_OK(write_files(probe, *folder));
  BATON_OK(model->compile());
  BATON_OK(model->load());
  std::vector<std::unique_ptr<Surface>> surfaces;
  RequestSpec spec;
  for (const uint64_t bytes : probe.inputs) {
    BATON_TRY(auto surface, driver.create_surface(SurfaceProperties::flat(bytes)));
    BATON_OK(fill(*surface, spec.inputs.size()));
    spec.input_indices.push_back(static_cast<int32_t>(spec.inputs.size()));
    spec.inputs.push_back(surface.get());
    surfaces.push_back(std::move(surface));
  }
  BATON_TRY(const auto output, driver.create_surface(SurfaceProperties::flat(probe.output)));
  spec.outputs = {output.get()};
  spec.output_indices = {0};
  BATON_TRY(const auto request, driver.create_request(spec));
  BATON_OK(model->evaluate(*request));
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*output, LockMode::kReadOnly));
  return std::vector<std::byte>(lock.bytes().begin(), lock.bytes().end());
}

Result<std::vector<std::byte>> run(Driver& driver, const Probe& probe) {
  std::filesystem::path folder;
  auto answer = run_in(driver, probe, &folder);
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  return answer;
}

Status compare(Driver& device, Driver& emulator, const Probe& probe) {
  BATON_TRY(const auto expected, run(emulator, probe));
  const auto got = run(device, probe);
  if (!got) {
    return fail(Code::kUnsupported, fmt::format("start-up check: {}; a program that asks whether {} failed",
                                                got.error().message, probe.what));
  }
  for (uint64_t i = 0; i < probe.output; ++i) {
    if (i % 64 >= probe.row_values_bytes || (*got)[i] == expected[i]) continue;
    return fail(Code::kUnsupported,
                fmt::format("start-up check: {} (first difference at byte {} of the output); the unit "
                            "would compute wrong values here",
                            probe.what, i));
  }
  return {};
}

}  // namespace

Status self_check(Driver& device) {
  EmulatorOptions options;
  options.mode = Mode::kLenient;
  options.temporary_folder = device.temporary_folder() / "baton_self_check";
  std::error_code error;
  std::filesystem::create_directories(options.temporary_folder, error);
  const auto all = [&]() -> Status {
    BATON_TRY(const auto emulator, EmulatorDriver::create(options));
    BATON_TRY(const Probe concat, concat_probe());
    BATON_OK(compare(device, *emulator, binding_probe()));
    BATON_OK(compare(device, *emulator, pitch_probe()));
    return compare(device, *emulator, concat);
  };
  const Status status = all();
  std::filesystem::remove_all(options.temporary_folder, error);
  return status;
}

}  // namespace baton::apple
