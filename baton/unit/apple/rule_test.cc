// Every rule of the list that a program, a weight file or a call can break has a case here that breaks it and nothing
// else: refused by name in the modes where it is an error, a warning where it is not.
#include "baton/unit/apple/rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "baton/base/file.h"
#include "baton/unit/apple/fixtures_test.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/mil_graph.h"

namespace baton::apple {
namespace {

using fixtures::constant;
using fixtures::file_constant;
using fixtures::op;
using fixtures::program;
using fixtures::repeated;

constexpr std::string_view kX = "tensor<fp16, [1, 8, 1, 32]>";
constexpr std::string_view kScalarInt = "tensor<int32, []>", kScalarBool = "tensor<bool, []>",
                           kScalarText = "tensor<string, []>";

struct Outcome {
  std::optional<Error> error;
  std::vector<Warning> warnings;
};
using Case = std::function<Outcome(Mode)>;

const std::string kPlain = program(op(kX, "y", "add(x = x, y = x)"));

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The program with its function once under each name.
std::string bank_of(const std::string& one, const std::vector<std::string>& names) {
  const size_t begin = one.find("  func main"), end = one.rfind('}');
  const std::string function = one.substr(begin, end - begin);
  std::string out = one.substr(0, begin);
  for (const std::string& name : names) out += replaced(function, "main", name);
  return out + "}\n";
}

// A weight file with one fp16 tensor of 64 values, changed by `change`.
std::vector<std::byte> small_file(const std::function<void(std::vector<std::byte>&)>& change = nullptr) {
  BlobWriter writer;
  std::vector<uint16_t> ones(64, 0x3c00);
  writer.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(ones)));
  std::vector<std::byte> bytes = std::move(writer).finish();
  if (change) change(bytes);
  return bytes;
}

// Text through parser and checker, as compile does.
Outcome check(Mode mode, const std::string& mil, const WeightFiles& files = {}) {
  Diagnostics diagnostics(mode);
  Outcome out;
  auto parsed = parse_mil(mil);
  if (!parsed) return {parsed.error(), {}};
  auto graph = check_mil(*parsed, files, diagnostics);
  if (!graph) out.error = graph.error();
  out.warnings.assign(diagnostics.warnings().begin(), diagnostics.warnings().end());
  return out;
}

Case text(std::string mil) {
  return [mil = std::move(mil)](Mode mode) { return check(mode, mil); };
}
// A program of one conv with an 8x8 weight in a file.
Case blob(const std::function<void(std::vector<std::byte>&)>& change,
          std::string_view type = "tensor<fp16, [1, 64, 1, 1]>", uint64_t offset = 64) {
  return [=](Mode mode) {
    const std::vector<std::byte> bytes = small_file(change);
    const std::string mil =
        program(file_constant(type, "w", offset) + op("tensor<fp16, [1, 64, 1, 32]>", "y", "add(x = x, y = w)"),
                "tensor<fp16, [1, 64, 1, 32]> x");
    return check(mode, mil, {{"@model_path/weights/w.bin", bytes}});
  };
}

// conv with its parameters as named constants; `change` edits the text.
struct Conv {
  std::string in = "tensor<fp16, [1, 8, 1, 32]>", out = "tensor<fp16, [1, 8, 1, 32]>";
  std::string weight = "tensor<fp16, [8, 8, 1, 1]>";
  size_t weights = 64;
  std::string pad = "[0, 0, 0, 0]", pad_type = "\"valid\"", groups = "1";
  std::string call = "conv(dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = x)";

  std::string mil() const {
    return program(constant(kScalarText, "pt", pad_type) + constant("tensor<int32, [2]>", "st", "[1, 1]") +
                       constant("tensor<int32, [4]>", "pd", pad) + constant("tensor<int32, [2]>", "dl", "[1, 1]") +
                       constant(kScalarInt, "gr", groups) + constant(weight, "w", repeated("0x1p-3", weights)) +
                       op(out, "y", call),
                   in + " x");
  }
};

struct Concat {
  std::string axis_type = "tensor<int32, []>", axis = "1", interleave = "false",
              call = "concat(axis = ax, interleave = il, values = (a, b))";
  std::string a = "tensor<fp16, [1, 8, 1, 32]>", out = "tensor<fp16, [1, 16, 1, 32]>";

  std::string mil() const {
    return program(constant(axis_type, "ax", axis) + constant(kScalarBool, "il", interleave) +
                   op(kX, "a", "sigmoid(x = x)") + op(kX, "b", "tanh(x = x)") + op(out, "y", call));
  }
};

// A driver with one loaded model of `kPlain`, its surfaces and its request.
struct Device {
  fixtures::TemporaryFolder folder;
  std::unique_ptr<EmulatorDriver> driver;
  std::unique_ptr<DeviceModel> model;
  std::unique_ptr<Surface> input, output;
  std::string mil = kPlain;
  std::vector<WeightEntry> weights;

  explicit Device(Mode mode, const std::function<void(EmulatorOptions&)>& change = nullptr) {
    EmulatorOptions options;
    options.temporary_folder = folder.path();
    options.mode = mode;
    if (change) change(options);
    driver = std::move(*EmulatorDriver::create(options));
    input = std::move(*driver->create_surface(SurfaceProperties::flat(512)));
    output = std::move(*driver->create_surface(SurfaceProperties::flat(512)));
  }
  std::filesystem::path model_folder() const { return folder.path() / model->identifier(); }
  void create() { model = std::move(*driver->create_model(mil, &weights)); }
  void write_files() {
    fixtures::write_text(model_folder() / "model.mil", mil);
    for (const WeightEntry& entry : weights)
      fixtures::write_text(model_folder() / entry.key.substr(12), as_text(entry.data));
  }
  void load() {
    create();
    write_files();
    EXPECT_TRUE(model->compile());
    EXPECT_TRUE(model->load());
  }
  RequestSpec spec() { return RequestSpec::one(input.get(), output.get()); }
  Status evaluate(const RequestSpec& spec) {
    const auto request = std::move(*driver->create_request(spec));
    return model->evaluate(*request);
  }
  Outcome done(const Status& status) const {
    Outcome out;
    if (!status) out.error = status.error();
    out.warnings = driver->report().warnings;
    return out;
  }
};

// Loads `kPlain` and evaluates a request changed by `change`.
Case request(const std::function<void(Device&, RequestSpec&)>& change) {
  return [=](Mode mode) {
    Device device(mode);
    device.load();
    RequestSpec spec = device.spec();
    change(device, spec);
    return device.done(device.evaluate(spec));
  };
}

void add_call_cases(std::map<Rule, Case>* cases) {
  auto& all = *cases;
  all[Rule::kFileMissing] = [](Mode mode) {
    Device device(mode);
    device.create();
    return device.done(device.model->compile());
  };
  all[Rule::kFileDiffers] = [](Mode mode) {
    Device device(mode);
    device.create();
    fixtures::write_text(device.model_folder() / "model.mil", device.mil + " ");
    return device.done(device.model->compile());
  };
  all[Rule::kCallOrder] = [](Mode mode) {
    Device device(mode);
    device.load();
    return device.done(device.model->compile());
  };
  all[Rule::kTextMissing] = text("");
  all[Rule::kWeightsMissing] = [](Mode mode) {
    Device device(mode);
    const auto model = device.driver->create_model(kPlain, nullptr);
    return device.done(model ? Status{} : fail(model.error()));
  };
  all[Rule::kWeightKey] = [](Mode mode) {
    const auto bytes = small_file();
    return check(mode, program(file_constant("tensor<fp16, [1, 64, 1, 1]>", "w") + op(kX, "y", "add(x = x, y = x)")),
                 {});
  };
  all[Rule::kWeightKeyTwice] = [](Mode mode) {
    Device device(mode);
    const auto bytes = small_file();
    device.weights = {{"@model_path/weights/w.bin", 0, bytes}, {"@model_path/weights/w.bin", 0, bytes}};
    const auto model = device.driver->create_model(kPlain, &device.weights);
    return device.done(model ? Status{} : fail(model.error()));
  };
  all[Rule::kWeightKeyUnused] = [](Mode mode) {
    const auto bytes = small_file();
    return check(mode, kPlain, {{"@model_path/weights/w.bin", bytes}});
  };
  all[Rule::kEvaluateBeforeLoad] = [](Mode mode) {
    Device device(mode);
    device.create();
    device.write_files();
    EXPECT_TRUE(device.model->compile());
    return device.done(device.evaluate(device.spec()));
  };
  all[Rule::kEvaluateAfterUnload] = [](Mode mode) {
    Device device(mode);
    device.load();
    EXPECT_TRUE(device.model->unload());
    return device.done(device.evaluate(device.spec()));
  };
  all[Rule::kLoadTwice] = [](Mode mode) {
    Device device(mode);
    device.load();
    return device.done(device.model->load());
  };
  all[Rule::kPortCount] = request([](Device&, RequestSpec& spec) { spec.inputs.clear(); });
  all[Rule::kPortIndices] = request([](Device&, RequestSpec& spec) { spec.output_indices = {1}; });
  all[Rule::kProcedure] = request([](Device&, RequestSpec& spec) { spec.procedure = 1; });
  all[Rule::kRequestShared] = [](Mode mode) {
    Device device(mode);
    device.load();
    const auto request = std::move(*device.driver->create_request(device.spec()));
    EXPECT_TRUE(device.model->evaluate(*request));
    const auto first = std::move(device.model);
    device.mil = program(op(kX, "y", "sub(x = x, y = x)"));
    device.load();
    return device.done(device.model->evaluate(*request));
  };
  all[Rule::kProgramWindow] = [](Mode mode) {
    Device device(mode, [](EmulatorOptions& options) { options.program_bytes_max = 255; });
    const auto bytes = small_file();
    device.weights = {{"@model_path/weights/w.bin", 0, bytes}};
    // Two functions with 128 bytes of weights each.
    const std::string one = program(file_constant("tensor<fp16, [1, 64, 1, 1]>", "w") +
                                        op("tensor<fp16, [1, 64, 1, 32]>", "y", "add(x = x, y = w)"),
                                    "tensor<fp16, [1, 64, 1, 32]> x");
    device.mil = bank_of(one, {"a", "b"});
    device.create();
    device.write_files();
    return device.done(device.model->compile());
  };
  all[Rule::kWeightsBuffer] =
      request([](Device& device, RequestSpec& spec) { spec.weights_buffer = device.input.get(); });
  all[Rule::kPerfStats] = request([](Device&, RequestSpec& spec) { spec.perf_stats = true; });
  all[Rule::kCompileLimit] = [](Mode mode) {
    Device device(mode, [](EmulatorOptions& options) { options.compiles_max = 0; });
    device.create();
    device.write_files();
    return device.done(device.model->compile());
  };
  all[Rule::kLoadLimit] = [](Mode mode) {
    Device device(mode, [](EmulatorOptions& options) { options.loaded_max = 0; });
    device.create();
    device.write_files();
    EXPECT_TRUE(device.model->compile());
    return device.done(device.model->load());
  };
  const auto without = [](const char* file, const char* content) {
    return [=](Mode mode) {
      Device device(mode);
      device.create();
      device.write_files();
      EXPECT_TRUE(device.model->compile());
      std::filesystem::remove(device.model_folder() / file);
      if (content != nullptr) fixtures::write_text(device.model_folder() / file, content);
      return device.done(device.model->load());
    };
  };
  all[Rule::kNetMissing] = without("net.plist", nullptr);
  all[Rule::kDataMissing] = without("data", nullptr);
  all[Rule::kNetCorrupt] = without("net.plist", "<plist>");
}

void add_surface_cases(std::map<Rule, Case>* cases) {
  auto& all = *cases;
  all[Rule::kSurfaceNotFlat] = [](Mode mode) {
    Device device(mode);
    SurfaceProperties properties = SurfaceProperties::flat(512);
    properties.height = 8;
    properties.bytes_per_row = properties.width = 64;
    const auto surface = device.driver->create_surface(properties);
    return device.done(surface ? Status{} : fail(surface.error()));
  };
  all[Rule::kSurfaceSmall] = request([](Device& device, RequestSpec& spec) {
    device.output = std::move(*device.driver->create_surface(SurfaceProperties::flat(511)));
    spec.outputs = {device.output.get()};
  });
  all[Rule::kRowPitch] =
      text(program(op("tensor<fp16, [1, 8, 1, 16]>", "y", "add(x = x, y = x)"), "tensor<fp16, [1, 8, 1, 16]> x"));
  // More than one port is a warning of its own: these programs cannot avoid it.
  all[Rule::kNarrowRows] = [](Mode mode) {
    Device device(mode, [](EmulatorOptions& options) { options.columns_min = 64; });
    device.load();
    EXPECT_TRUE(fixtures::fill(*device.input, {std::vector<float>(256, 3.0f), 32}));
    const Outcome out = device.done(device.evaluate(device.spec()));
    EXPECT_EQ(fixtures::read(*device.output, 256, 32)->at(0), 0.0f);
    return out;
  };
  all[Rule::kPortOrder] =
      text(program(op(kX, "y", "sub(x = b, y = a)"), "tensor<fp16, [1, 8, 1, 32]> b, tensor<fp16, [1, 8, 1, 32]> a"));
  all[Rule::kPortSizes] =
      text(program(op(kX, "y", "add(x = a, y = b)"), "tensor<fp16, [1, 8, 1, 32]> a, tensor<fp16, [1, 1, 1, 32]> b"));
  all[Rule::kManyPorts] =
      text(program(op(kX, "y", "add(x = a, y = b)"), "tensor<fp16, [1, 8, 1, 32]> a, tensor<fp16, [1, 8, 1, 32]> b"));
  all[Rule::kSurfaceUnlocked] = request([](Device& device, RequestSpec&) {
    const auto bytes = *device.input->lock(LockMode::kReadWrite);
    EXPECT_TRUE(device.input->unlock(LockMode::kReadWrite));
    bytes[3] = std::byte{1};
  });
  all[Rule::kSurfaceReadOnly] = request([](Device& device, RequestSpec&) {
    const auto bytes = *device.input->lock(LockMode::kReadOnly);
    bytes[3] = std::byte{1};
    EXPECT_TRUE(device.input->unlock(LockMode::kReadOnly));
  });
  all[Rule::kSurfaceLocked] =
      request([](Device& device, RequestSpec&) { EXPECT_TRUE(device.input->lock(LockMode::kReadWrite)); });
  all[Rule::kSurfaceShared] = request([](Device& device, RequestSpec& spec) { spec.outputs = {device.input.get()}; });
}

void add_text_cases(std::map<Rule, Case>* cases) {
  auto& all = *cases;
  all[Rule::kSyntax] = text(replaced(kPlain, ";\n  }", "\n  }"));
  const size_t info = kPlain.find("[buildInfo"), end = kPlain.find("]\n{");
  all[Rule::kBuildInfo] = text(kPlain.substr(0, info) + kPlain.substr(end + 1));
  all[Rule::kBuildInfoTyped] =
      text(replaced(kPlain, "{{\"coremlc-version\", \"3505.4.1\"}}",
                    "{{tensor<string, []>(\"coremlc-version\"), tensor<string, []>(\"3505.4.1\")}}"));
  all[Rule::kProgramVersion] = text(replaced(kPlain, "program(1.0)", "program(1.1)"));
  all[Rule::kOpset] = text(replaced(kPlain, "ios16", "ios14"));
  all[Rule::kDialect] = text(replaced(kPlain, "[name = tensor<string, []>(\"y\")]", "[name = string(\"y\")]"));
  all[Rule::kFunctionName] = text(replaced(kPlain, "func main", "func prefill"));
  all[Rule::kFunctionOrder] = text(bank_of(kPlain, {"b", "a"}));
  all[Rule::kNameDuplicate] = text(program(op(kX, "x", "add(x = x, y = x)"), "tensor<fp16, [1, 8, 1, 32]> x", "x"));
  all[Rule::kNameUndefined] = text(program(op(kX, "y", "add(x = x, y = z)")));
  all[Rule::kConstUnused] = text(program(constant(kScalarInt, "c", "1") + op(kX, "y", "add(x = x, y = x)")));
  all[Rule::kOutputIsInput] = text(program("", "tensor<fp16, [1, 8, 1, 32]> x", "x"));
  all[Rule::kOutputIsConst] = text(program(constant(kX, "y", repeated("1", 256))));
  all[Rule::kOpName] = text(replaced(kPlain, "[name = tensor<string, []>(\"y\")]", ""));
  all[Rule::kParameterUnknown] = text(program(op(kX, "y", "sigmoid(x = x, y = x)")));
  all[Rule::kParameterMissing] = text(program(op(kX, "y", "add(x = x)")));
  all[Rule::kParameterType] = text(program(constant(kScalarInt, "c", "1") + op(kX, "y", "add(x = x, y = c)")));
  Concat inlined;
  inlined.call = "concat(axis = 1, interleave = il, values = (a, b))";
  all[Rule::kInlineLiteral] = text(inlined.mil());
  all[Rule::kResultType] = text(program(op("tensor<fp16, [1, 8, 1, 64]>", "y", "add(x = x, y = x)")));
  all[Rule::kOpList] = text(program(op(kX, "y", "erf(x = x)")));
  all[Rule::kTile] = text(program(constant("tensor<int32, [4]>", "r", "[1, 2, 1, 1]") +
                                  op("tensor<fp16, [1, 16, 1, 32]>", "y", "tile(x = x, reps = r)")));
  all[Rule::kPoisoned] = [](Mode) {
    Device device(Mode::kLenient);
    device.mil = program(constant("tensor<int32, [4]>", "r", "[1, 1, 1, 1]") + op(kX, "y", "tile(x = x, reps = r)"));
    device.load();
    EXPECT_TRUE(device.evaluate(device.spec()));
    Outcome out = device.done(device.evaluate(device.spec()));
    out.warnings.clear();  // that of tile itself
    return out;
  };
  all[Rule::kAttentionMask] =
      text(program(op(kX, "y", "scaled_dot_product_attention(query = x, key = x, value = x, attn_mask = x)")));
  all[Rule::kControlFlow] =
      text(program("tensor<fp16, [1, 8, 1, 32]> y = cond(pred = x)[name = tensor<string, []>(\"y\")] { };\n"));
  all[Rule::kScatter] = text(program(op(kX, "y", "scatter_along_axis(data = x)")));
  all[Rule::kGather] = text(program(op(kX, "y", "gather(x = x, indices = x)")));
  all[Rule::kStateOp] = text(program(op(kX, "y", "read_state(input = x)")));
  all[Rule::kDynamicShape] = text(program(op(kX, "y", "add(x = x, y = x)"), "tensor<fp16, [1, 8, 1, ?]> x"));
  all[Rule::kPortType] =
      text(program(op(kX, "y", "add(x = x, y = x)"), "tensor<int32, [1, 8, 1, 32]> a, tensor<fp16, [1, 8, 1, 32]> x"));
  all[Rule::kPortFp32] = text(program(constant(kScalarText, "t", "\"fp16\"") + op(kX, "y", "cast(x = x, dtype = t)"),
                                      "tensor<fp32, [1, 8, 1, 32]> x"));
  all[Rule::kFp32Arithmetic] =
      text(program(constant(kScalarText, "t", "\"fp16\"") + constant(kScalarText, "u", "\"fp32\"") +
                   op("tensor<fp32, [1, 8, 1, 32]>", "a", "cast(x = x, dtype = u)") +
                   op("tensor<fp32, [1, 8, 1, 32]>", "b", "sigmoid(x = a)") + op(kX, "y", "cast(x = b, dtype = t)")));
  all[Rule::kIntegerTensor] =
      text(program(constant(kScalarText, "t", "\"int32\"") + op(kX, "y", "cast(x = x, dtype = t)")));
  all[Rule::kRank] = text(program(op(kX, "y", "add(x = x, y = x)"), "tensor<fp16, [1, 1, 1, 8, 1, 32]> x"));
  all[Rule::kRankFour] = text(program(
      constant("tensor<int32, [3]>", "s", "[1, 8, 32]") + constant("tensor<int32, [4]>", "t", "[1, 8, 1, 32]") +
      op("tensor<fp16, [1, 8, 32]>", "a", "reshape(x = x, shape = s)") + op(kX, "y", "reshape(x = a, shape = t)")));
  all[Rule::kDimension] =
      text(program(op("tensor<fp16, [1, 1, 1, 16416]>", "y", "add(x = x, y = x)"), "tensor<fp16, [1, 1, 1, 16416]> x"));
  all[Rule::kBroadcast] =
      text(program(constant("tensor<fp16, [1, 1, 1, 32]>", "c", repeated("1", 32)) + op(kX, "y", "add(x = x, y = c)")));
  all[Rule::kBroadcastBatch] =
      text(program(constant(kX, "c", repeated("1", 256)) + op("tensor<fp16, [2, 8, 1, 32]>", "y", "mul(x = x, y = c)"),
                   "tensor<fp16, [2, 8, 1, 32]> x"));
}

void add_op_cases(std::map<Rule, Case>* cases) {
  auto& all = *cases;
  Conv conv;
  conv.call = "conv(groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = x)";
  all[Rule::kConvAttribute] = text(conv.mil());
  conv = {};
  conv.call = "conv(bias = b, dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = x)";
  all[Rule::kConvBias] =
      text(replaced(conv.mil(), "tensor<fp16, [1, 8, 1, 32]> y",
                    constant("tensor<fp16, [8]>", "b", repeated("1", 8)) + "tensor<fp16, [1, 8, 1, 32]> y"));
  conv = {};
  conv.call = "conv(dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = x, x = x)";
  all[Rule::kConvWeight] = text(conv.mil());
  conv = {};
  conv.groups = "3";
  all[Rule::kConvGroups] = text(conv.mil());
  conv = {};
  conv.pad_type = "\"mirror\"";
  all[Rule::kConvPad] = text(conv.mil());
  conv = {};
  conv.in = "tensor<fp16, [1, 16416, 1, 32]>";
  conv.weight = "tensor<fp16, [8, 16416, 1, 1]>";
  conv.weights = 8 * 16416;
  all[Rule::kConvInputs] = text(conv.mil());
  conv = {};
  conv.in = conv.out = "tensor<fp16, [1, 8, 1, 64]>";
  conv.weight = "tensor<fp16, [8, 8, 1, 14]>";
  conv.weights = 64 * 14;
  conv.pad_type = "\"custom\"";
  conv.pad = "[0, 0, 6, 7]";
  all[Rule::kConvKernel] = text(conv.mil());
  Concat concat;
  concat.axis_type = "tensor<int32, [1]>";
  concat.axis = "[1]";
  all[Rule::kConcatAxis] = text(concat.mil());
  concat = {};
  concat.interleave = "true";
  all[Rule::kConcatInterleave] = text(concat.mil());
  concat = {};
  concat.call = "concat(axis = ax, interleave = il, values = (a, w))";
  all[Rule::kConcatShape] = text(
      replaced(concat.mil(), "tensor<fp16, [1, 16, 1, 32]> y",
               constant("tensor<fp16, [1, 8, 1, 64]>", "w", repeated("1", 512)) + "tensor<fp16, [1, 16, 1, 32]> y"));
  all[Rule::kMatmulFlags] =
      text(program(constant(kScalarInt, "f", "0") +
                       op("tensor<fp16, [1, 8, 8, 32]>", "y", "matmul(x = x, y = x, transpose_x = f, transpose_y = f)"),
                   "tensor<fp16, [1, 8, 32, 32]> x"));
  all[Rule::kSoftmaxAxis] = text(program(op(kX, "y", "softmax(x = x)")));
  all[Rule::kGeluMode] = text(program(op(kX, "y", "gelu(x = x)")));
  all[Rule::kGelu] = text(program(constant(kScalarText, "m", "\"EXACT\"") + op(kX, "y", "gelu(mode = m, x = x)")));
  all[Rule::kReduceAxes] =
      text(program(constant(kScalarInt, "a", "1") + constant(kScalarBool, "k", "true") +
                   op("tensor<fp16, [1, 1, 1, 32]>", "y", "reduce_sum(axes = a, keep_dims = k, x = x)")));
  const auto weights = [](int64_t out) {
    return [out](Mode mode) {
      BlobWriter writer;
      std::vector<std::byte> zeros(static_cast<size_t>(out) * 16384 * 2);
      writer.add(MilType::kFp16, zeros);
      const std::vector<std::byte> bytes = std::move(writer).finish();
      Conv large;
      large.in = "tensor<fp16, [1, 16384, 1, 32]>";
      large.out = fmt::format("tensor<fp16, [1, {}, 1, 32]>", out);
      std::string mil = large.mil();
      const std::string type = fmt::format("tensor<fp16, [{}, 16384, 1, 1]>", out);
      mil =
          replaced(mil, constant("tensor<fp16, [8, 8, 1, 1]>", "w", repeated("0x1p-3", 64)), file_constant(type, "w"));
      return check(mode, mil, {{"@model_path/weights/w.bin", bytes}});
    };
  };
  all[Rule::kWeightsLarge] = weights(2016);
  all[Rule::kWeightsTooLarge] = weights(4000);
  all[Rule::kActivationsLarge] = text(
      program(op("tensor<fp16, [1, 8192, 1, 1024]>", "y", "add(x = x, y = x)"), "tensor<fp16, [1, 8192, 1, 1024]> x"));
  all[Rule::kActivationsTooLarge] = text(program(op("tensor<fp16, [1, 65536, 1, 16384]>", "y", "add(x = x, y = x)"),
                                                 "tensor<fp16, [1, 65536, 1, 16384]> x"));
}

void add_blob_cases(std::map<Rule, Case>* cases) {
  auto& all = *cases;
  using Bytes = std::vector<std::byte>;
  all[Rule::kBlobShort] = blob([](Bytes& bytes) { bytes.resize(127); });
  all[Rule::kBlobVersion] = blob([](Bytes& bytes) { bytes[4] = std::byte{3}; });
  // A broken record ends the walk over the file, so that it counts as trailing bytes.
  all[Rule::kBlobSentinel] = blob([](Bytes& bytes) { bytes[64] = bytes[0] = std::byte{0}; });
  all[Rule::kBlobRecord] = blob(nullptr, "tensor<fp16, [1, 64, 1, 1]>", 128 + 8);
  all[Rule::kBlobType] = blob([](Bytes& bytes) { bytes[68] = std::byte{2}; });
  all[Rule::kBlobSize] = blob(nullptr, "tensor<fp16, [1, 32, 1, 1]>");
  all[Rule::kBlobOffset] = blob([](Bytes& bytes) {
    bytes.resize(bytes.size() + 64);
    store_as<uint64_t>(&bytes[80], 192);
  });
  all[Rule::kBlobRange] = blob(nullptr, "tensor<fp16, [1, 64, 1, 1]>", 1 << 20);
  all[Rule::kBlobCount] = blob([](Bytes& bytes) { bytes[0] = std::byte{2}; });
  all[Rule::kBlobTrailing] = blob([](Bytes& bytes) { bytes.resize(bytes.size() + 5); });
  all[Rule::kWeightRange] = [](Mode) {
    const float values[2] = {1.0f, 65536.0f};
    const Weight weight = {"w", DType::kF32, 1, 2, reinterpret_cast<const std::byte*>(values), 8, ""};
    BlobWriter writer;
    RangeReport report;
    const auto added = writer.add_fp16(weight, whole(weight), OutOfRange::kRefuse, &report);
    EXPECT_EQ(report.overflows, 1u);
    Outcome out;
    if (!added) out.error = added.error();
    return out;
  };
}

std::map<Rule, Case> all_cases() {
  std::map<Rule, Case> cases;
  add_call_cases(&cases);
  add_surface_cases(&cases);
  add_text_cases(&cases);
  add_op_cases(&cases);
  add_blob_cases(&cases);
  return cases;
}

// Warnings that come with a program by its nature, whatever rule it is about.
bool unavoidable(Rule warning, Rule rule) {
  const bool two_ports = rule == Rule::kPortOrder || rule == Rule::kPortSizes || rule == Rule::kPortType;
  return (warning == Rule::kManyPorts && two_ports) || (warning == Rule::kBroadcast && rule == Rule::kPortSizes) ||
         (warning == Rule::kBlobTrailing && rule == Rule::kBlobSentinel) ||
         (warning == Rule::kConstUnused && rule == Rule::kInlineLiteral);
}

TEST(Rules, PlainProgramBreaksNone) {
  for (const Mode mode : {Mode::kStrict, Mode::kLenient}) {
    for (const std::string& mil : {kPlain, Conv{}.mil(), Concat{}.mil()}) {
      const Outcome outcome = check(mode, mil);
      EXPECT_FALSE(outcome.error) << outcome.error->message;
      EXPECT_TRUE(outcome.warnings.empty()) << outcome.warnings[0].text;
    }
    Device device(mode);
    device.load();
    const Outcome outcome = device.done(device.evaluate(device.spec()));
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_TRUE(outcome.warnings.empty()) << outcome.warnings[0].text;
  }
}

TEST(Rules, EachIsBrokenByNameAndAlone) {
  const std::map<Rule, Case> cases = all_cases();
  for (const RuleFacts& facts : rules()) {
    if (facts.section >= 30) continue;  // arithmetic: runner_test
    const auto found = cases.find(facts.rule);
    ASSERT_NE(found, cases.end()) << "no case breaks '" << facts.name << "'";
    for (const Mode mode : {Mode::kStrict, Mode::kLenient}) {
      SCOPED_TRACE(fmt::format("{} in {} mode", facts.name, mode == Mode::kStrict ? "strict" : "lenient"));
      const Outcome outcome = found->second(mode);
      const bool refused =
          facts.level == RuleLevel::kError || (facts.level == RuleLevel::kStrict && mode == Mode::kStrict);
      ASSERT_EQ(outcome.error.has_value(), refused) << (outcome.error ? outcome.error->message : "not refused");
      if (refused) {
        EXPECT_EQ(rule_in(*outcome.error), facts.rule) << outcome.error->message;
        EXPECT_TRUE(outcome.error->message.starts_with(to_string(facts.fault))) << outcome.error->message;
        EXPECT_EQ(fault_in(outcome.error->message), facts.fault) << outcome.error->message;
      }
      bool warned = false;
      for (const Warning& warning : outcome.warnings) {
        warned |= warning.rule == facts.rule;
        EXPECT_TRUE(warning.rule == facts.rule || unavoidable(warning.rule, facts.rule)) << warning.text;
      }
      EXPECT_TRUE(refused || warned);
    }
  }
}

TEST(Rules, NamesAreDistinct) {
  std::map<std::string_view, Rule> names;
  for (const RuleFacts& facts : rules()) EXPECT_TRUE(names.emplace(facts.name, facts.rule).second) << facts.name;
}

TEST(Rules, AreInTheDocument) {
  const auto text = read_file(std::filesystem::path(BATON_SOURCE_DIR) / "docs/ane.md", 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  for (const RuleFacts& facts : rules()) {
    // The table's row of the rule's number holds its name.
    const size_t row = text->find(fmt::format("\n| {} |", facts.section));
    ASSERT_NE(row, std::string::npos) << facts.section;
    EXPECT_NE(text->substr(row, text->find('\n', row + 1) - row).find(facts.name), std::string::npos) << facts.name;
  }
}

TEST(Rules, WarningsAreBounded) {
  Diagnostics diagnostics(Mode::kLenient);
  for (size_t i = 0; i < Diagnostics::kWarningsMax + 10; ++i) diagnostics.warn(Rule::kOverflow, fmt::format("{}", i));
  diagnostics.warn(Rule::kOverflow, "0");
  EXPECT_EQ(diagnostics.warnings().size(), Diagnostics::kWarningsMax);
  EXPECT_EQ(diagnostics.warnings()[0].count, 2u);
  EXPECT_EQ(diagnostics.dropped(), 10u);
}

TEST(Faults, AreFoundInSystemTexts) {
  EXPECT_EQ(fault_in("Error Domain=com.apple.appleneuralengine Code=8 \"ANECCompile() FAILED: err=()\""),
            Fault::kCompile);
  EXPECT_EQ(
      fault_in("ANEProgramProcessRequestDirect() Failed with status=0x1d : statusType=0x9: Program Inference error"),
      Fault::kInference);
  EXPECT_EQ(fault_in("... 0xe00002bd"), Fault::kNoMemory);
  EXPECT_EQ(fault_in("something else"), Fault::kUnknown);
}

}  // namespace
}  // namespace baton::apple
