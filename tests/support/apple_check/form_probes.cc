// What the system takes: forms of a program's head, widths of rows, sizes of surfaces, several functions in a program.
#include <fmt/format.h>

#include <cstring>

#include "baton/base/bytes.h"
#include "baton/base/clock.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/driver_apple.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/plain_file.h"
#include "baton/unit/apple/self_check.h"
#include "tests/support/apple_check/probe.h"

namespace baton::apple {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::vector<uint16_t> exact_inputs(int64_t columns, int64_t pitch) {
  std::vector<uint16_t> values(static_cast<size_t>(kExactSize * pitch));
  for (int64_t r = 0; r < kExactSize; ++r) {
    for (int64_t c = 0; c < columns; ++c) values[static_cast<size_t>(r * pitch + c)] = exact_input(r, c);
  }
  return values;
}

uint64_t wrong_values(std::span<const uint16_t> output, int64_t columns, int64_t pitch) {
  uint64_t wrong = 0;
  for (int64_t r = 0; r < kExactSize; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      wrong += output[static_cast<size_t>(r * pitch + c)] != to_fp16(exact_output(r, c));
  }
  return wrong;
}

OrderedJson answer(const Result<Ran>& ran, int64_t columns, int64_t pitch) {
  if (!ran) return {{"ok", false}, {"error", ran.error().message}};
  const uint64_t wrong = wrong_values(ran->output, columns, pitch);
  bool zeros = true;
  for (const uint16_t value : ran->output) zeros = zeros && value == 0;
  return {{"ok", wrong == 0},
          {"wrong_values", wrong},
          {"all_zero", zeros},
          {"compile_and_load_ms", ran->load_ms},
          {"evaluate_ms", ran->median_ms}};
}

// Exact kernel, plain form.
OrderedJson try_exact(const CheckContext& context, int64_t columns, uint64_t in_surface, uint64_t out_surface) {
  auto device = open_device(context);
  if (!device) return {{"ok", false}, {"error", device.error().message}};
  auto kernel = exact_kernel(context, columns);
  if (!kernel) return {{"ok", false}, {"error", kernel.error().message}};
  const auto values = exact_inputs(columns, columns);
  return answer(run_kernel(**device, *kernel, values, values.size(), 5, in_surface, out_surface), columns, columns);
}

Result<OrderedJson> probe_head(const CheckContext& given, const std::string& name) {
  CheckContext context = given;
  context.head = name.substr(name.find('-') + 1);
  OrderedJson json = try_exact(context, kExactSize, 0, 0);
  json["head"] = context.head;
  return json;
}

Result<OrderedJson> probe_width(const CheckContext& context, const std::string& name) {
  const int64_t columns = std::stoll(name.substr(name.find('-') + 1));
  if (columns % 32 == 0) return try_exact(context, columns, 0, 0);
  // Shorter than the writer makes: rows 64 bytes apart, packed, or neither.
  BATON_TRY(const auto device, open_device(context));
  BATON_TRY(Kernel kernel, exact_kernel(context, 32));
  kernel.mil = replaced(kernel.mil, "[1, 64, 1, 32]", fmt::format("[1, 64, 1, {}]", columns));
  OrderedJson json;
  for (const int64_t pitch : {int64_t{32}, columns}) {
    const auto values = exact_inputs(columns, pitch);
    json = answer(run_kernel(*device, kernel, values, values.size(), 1), columns, pitch);
    if (json["ok"].get<bool>()) {
      json["rows"] = pitch == columns ? "packed" : "64 bytes apart";
      return json;
    }
  }
  return json;
}

Result<OrderedJson> probe_surface(const CheckContext& context, const std::string& name) {
  const uint64_t bytes = std::stoull(name.substr(name.find('-') + 1));
  OrderedJson json = try_exact(context, kExactSize, bytes, bytes);
  json["surface_bytes"] = bytes;
  return json;
}

Result<OrderedJson> probe_advice(const CheckContext& context, const std::string&) {
  BATON_TRY(const auto device, open_device(context));
  OrderedJson json = {{"ok", true}};
  for (const Advice& advice : advise(*device)) {
    json[advice.name] = advice.text;
    json["ok"] = json["ok"].get<bool>() && advice.as_expected;
  }
  return json;
}

// Two functions in one program, each asked by its index.
Result<OrderedJson> probe_bank(const CheckContext& context, const std::string&) {
  BATON_TRY(const auto device, open_device(context));
  BATON_TRY(const Kernel kernel, exact_kernel(context, kExactSize));
  const size_t begin = kernel.mil.find("  func main"), end = kernel.mil.rfind('}');
  const std::string function = kernel.mil.substr(begin, end - begin);
  const std::string mil = kernel.mil.substr(0, begin) + replaced(function, "main", "procedure000") +
                          replaced(function, "main", "procedure001") + "}\n";
  const std::vector<WeightEntry> weights = {{kernel.weights_key, 0, kernel.weights}};
  BATON_TRY(const auto model, device->create_model(mil, &weights));
  const auto folder = device->temporary_folder() / model->identifier();
  const auto file = folder / kernel.weights_key.substr(std::string_view("@model_path/").size());
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  BATON_OK(write_plain_file(folder / "model.mil", as_bytes(mil)));
  BATON_OK(write_plain_file(file, kernel.weights));
  BATON_OK(model->compile());
  BATON_OK(model->load());
  const auto values = exact_inputs(kExactSize, kExactSize);
  BATON_TRY(const auto input, device->create_surface(SurfaceProperties::flat(kSurfaceStep)));
  {
    BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*input, LockMode::kReadWrite));
    std::memcpy(lock.bytes().data(), values.data(), values.size() * 2);
  }
  OrderedJson json = {{"ok", true}};
  for (const int32_t procedure : {0, 1}) {
    BATON_TRY(const auto output, device->create_surface(SurfaceProperties::flat(kSurfaceStep)));
    BATON_TRY(const PortIndices indices, model->port_indices(procedure));
    RequestSpec spec = RequestSpec::one(input.get(), output.get());
    spec.procedure = procedure;
    spec.input_indices = indices.inputs;
    spec.output_indices = indices.outputs;
    BATON_TRY(const auto request, device->create_request(spec));
    BATON_OK(model->evaluate(*request));
    BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*output, LockMode::kReadOnly));
    std::vector<uint16_t> got(values.size());
    std::memcpy(got.data(), lock.bytes().data(), got.size() * 2);
    const uint64_t wrong = wrong_values(got, kExactSize, kExactSize);
    json["ok"] = json["ok"].get<bool>() && wrong == 0;
    json[fmt::format("procedure_{}", procedure)] = {
        {"wrong_values", wrong}, {"input_index", indices.inputs.at(0)}, {"output_index", indices.outputs.at(0)}};
  }
  return json;
}

// What the unit itself asks at its start.
Result<OrderedJson> probe_start_up(const CheckContext& context, const std::string&) {
  if (context.emulate) {
    BATON_TRY(const auto device, open_device(context));
    BATON_OK(self_check(*device));
    return OrderedJson{{"ok", true}, {"evidence", device->evidence()}};
  }
  BATON_TRY(const auto driver, AppleDriver::open({}));
  return OrderedJson{{"ok", true}, {"evidence", driver->evidence()}};
}

}  // namespace

MilDialect dialect_of(std::string_view head) {
  return head.starts_with("ios18") ? MilDialect::kIos18 : MilDialect::kIos16;
}

std::string with_head(std::string mil, std::string_view head) {
  if (head.ends_with("bare")) return mil;
  const std::string type = dialect_of(head) == MilDialect::kIos16 ? "tensor<string, []>" : "string";
  return replaced(std::move(mil), "{{\"coremlc-version\", \"3505.4.1\"}}",
                  fmt::format("{{{{{0}(\"coremlc-version\"), {0}(\"3505.4.1\")}}}}", type));
}

Result<std::unique_ptr<Driver>> open_device(const CheckContext& context) {
  if (!context.emulate) {
    BATON_TRY(std::unique_ptr<Driver> device, AppleDriver::open({.temporary_folder = {}, .self_check = false}));
    return device;
  }
  EmulatorOptions options;
  options.temporary_folder = context.folder;
  options.mode = Mode::kLenient;
  options.numerics.profile = Profile::kModern;
  options.numerics.perturbed_tables = true;  // so that a comparison has something to find
  options.surface_bytes_min = 16384;
  options.columns_min = 32;
  options.watch_surfaces = false;
  BATON_TRY(std::unique_ptr<Driver> device, EmulatorDriver::create(options));
  return device;
}

std::vector<Probe> form_probes() {
  std::vector<Probe> out;
  const auto add = [&](std::string name, const char* group, auto run, bool quick = true) {
    out.push_back({std::move(name), group, quick, false, 60, run});
  };
  for (const char* head : kHeads) add(fmt::format("head-{}", head), "head", probe_head);
  add("start-up", "start-up", probe_start_up);
  for (const int columns : {16, 32, 64, 128, 256, 512}) add(fmt::format("width-{}", columns), "width", probe_width);
  for (const int bytes : {8192, 16384, 49152, 65536}) add(fmt::format("surface-{}", bytes), "surface", probe_surface);
  add("advice", "advice", probe_advice);
  add("bank", "bank", probe_bank);
  return out;
}

}  // namespace baton::apple
