// The driver of Apple's classes through a real Objective-C runtime: each selector with its argument types and its
// order, each call failing in each way, objects and surfaces given back. The classes are doubles that forward to the
// emulator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/driver_apple.h"
#include "baton/unit/apple/fixtures_test.h"
#include "baton/unit/apple/objc_double_test.h"
#include "baton/unit/apple/self_check.h"

namespace baton::apple {
namespace {

using fixtures::OwnedWeight;

constexpr const char* kCreate = "modelWithMILText:weights:optionsPlist:";
constexpr const char* kModel = "inMemoryModelWithDescriptor:";
constexpr const char* kIdentifier = "hexStringIdentifier";
constexpr const char* kCompile = "compileWithQoS:options:error:";
constexpr const char* kLoad = "loadWithQoS:options:error:";
constexpr const char* kEvaluate = "evaluateWithQoS:options:request:error:";
constexpr const char* kUnload = "unloadWithQoS:error:";
constexpr const char* kSurfaceObject = "objectWithIOSurface:";
constexpr const char* kRequest =
    "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:";

struct AppleCalls : testing::Test {
  fixtures::TemporaryFolder folder;
  EmulatorOptions options;
  std::unique_ptr<ObjcDouble> system;
  std::unique_ptr<AppleDriver> driver;
  OwnedWeight w{"w", 24, 16, 1};

  void open_system(Mode mode = Mode::kStrict) {
    options.temporary_folder = folder.path();
    options.mode = mode;
    system = ObjcDouble::open(options);
  }
  void SetUp() override {
    open_system();
    if (system == nullptr) GTEST_SKIP() << "libobjc is not installed (Debian: libobjc-12-dev)";
    auto made = AppleDriver::create(system->lookup(), {{}, false});
    ASSERT_TRUE(made) << made.error().message;
    driver = std::move(*made);
  }
  void TearDown() override {
    driver.reset();
    if (system == nullptr) return;
    EXPECT_EQ(system->live_objects(), 0u);
    EXPECT_EQ(system->live_surfaces(), 0u);
    for (const std::string& complaint : system->complaints()) ADD_FAILURE() << complaint;
    EXPECT_EQ(system->emulator().report().loaded, 0u);
  }
  Kernel kernel(const char* name = "l00_w") const {
    const LayerPart parts[] = {{"w", &w.weight}};
    return *build_kernel(plan_linear(name, parts, {})->at(0));
  }
  // Loads a kernel and evaluates it once; what failed.
  Status run_kernel() {
    KernelLoader loader(*driver, {});
    BATON_TRY(const auto loaded, loader.load(kernel()));
    BATON_TRY(const auto io, loaded->new_io());
    BATON_OK(fixtures::fill(*io.input, {std::vector<float>(16 * 32, 1.0f), 32}));
    BATON_OK(loaded->evaluate(io));
    BATON_TRY(const auto y, fixtures::read(*io.output, 24 * 32, 32));
    float expected = 0;
    for (size_t i = 0; i < 16; ++i) expected += w.values[i];
    EXPECT_NEAR(y[0], expected, 4e-3f);
    return {};
  }
};

TEST_F(AppleCalls, SequenceAndAnswer) {
  EXPECT_EQ(driver->temporary_folder(), folder.path());
  const Status status = run_kernel();
  ASSERT_TRUE(status) << fixtures::message(status);
  std::vector<std::string> calls;
  for (const std::string& call : system->log()) {
    if (!call.starts_with("IOSurface")) calls.push_back(call);
  }
  EXPECT_EQ(calls, (std::vector<std::string>{kCreate, kModel, kIdentifier, kCompile, kLoad, kSurfaceObject,
                                             kSurfaceObject, kRequest, kEvaluate, kUnload}));
  EXPECT_TRUE(system->emulator().report().warnings.empty());
}

// Each call fails: an error with the system's words, everything given back (TearDown counts).
TEST_F(AppleCalls, EachFailureIsAnError) {
  const std::pair<const char*, Fault> failures[] = {{kCreate, Fault::kProgram},
                                                    {kModel, Fault::kNoResources},
                                                    {kCompile, Fault::kCompile},
                                                    {kLoad, Fault::kRecompile},
                                                    {kSurfaceObject, Fault::kNoResources},
                                                    {kRequest, Fault::kBadArgument},
                                                    {kEvaluate, Fault::kInference},
                                                    {"IOSurfaceCreate", Fault::kNoMemory},
                                                    {"IOSurfaceLock", Fault::kNoMemory},
                                                    {"IOSurfaceUnlock", Fault::kBadArgument},
                                                    {"IOSurfaceGetAllocSize", Fault::kNoMemory}};
  for (const auto& [call, fault] : failures) {
    system->fail_at(call);
    const Status status = run_kernel();
    ASSERT_FALSE(status) << call;
    EXPECT_EQ(fault_in(status.error().message), fault) << call << ": " << status.error().message;
    EXPECT_EQ(system->live_objects(), 0u) << call;
    EXPECT_EQ(system->live_surfaces(), 0u) << call;
    EXPECT_EQ(system->emulator().report().loaded, 0u) << call;
  }
  system->fail_at("");
  EXPECT_TRUE(run_kernel());
}

TEST_F(AppleCalls, WordsOfAnNsErrorAreKept) {
  system->fail_at(kLoad, "Error Domain=com.apple.appleneuralengine Code=5 \"0xe00002bd\"");
  const Status status = run_kernel();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kOutOfMemory);
  EXPECT_NE(status.error().message.find("Domain=com.apple"), std::string::npos) << status.error().message;
}

// A refusal of the emulator crosses the runtime as an NSError and keeps its rule.
TEST_F(AppleCalls, RulesCrossTheRuntime) {
  const std::vector<WeightEntry> none;
  const std::string mil = fixtures::program(fixtures::op("tensor<fp16, [1, 8, 1, 32]>", "y", "erf(x = x)"));
  const auto model = std::move(*driver->create_model(mil, &none));
  fixtures::write_text(folder.path() / model->identifier() / "model.mil", mil);
  const Status status = model->compile();
  ASSERT_FALSE(status);
  EXPECT_EQ(rule_in(status.error()), Rule::kOpList) << status.error().message;
}

TEST_F(AppleCalls, WrongOrderIsRefusedHere) {
  const std::vector<WeightEntry> none;
  const std::string mil = fixtures::program(fixtures::op("tensor<fp16, [1, 8, 1, 32]>", "y", "add(x = x, y = x)"));
  EXPECT_FALSE(driver->create_model(mil, nullptr));
  EXPECT_FALSE(driver->create_model("", &none));
  EXPECT_FALSE(driver->create_surface(SurfaceProperties{}));
  const auto model = std::move(*driver->create_model(mil, &none));
  const auto input = std::move(*driver->create_surface(SurfaceProperties::flat(512)));
  const auto small = std::move(*driver->create_surface(SurfaceProperties::flat(511)));
  RequestSpec spec = RequestSpec::one(input.get(), small.get());
  const auto request = std::move(*driver->create_request(spec));
  EXPECT_EQ(rule_in(model->evaluate(*request).error()), Rule::kEvaluateBeforeLoad);
  EXPECT_FALSE(model->unload());
  EXPECT_EQ(rule_in(model->compile().error()), Rule::kFileMissing);
  fixtures::write_text(folder.path() / model->identifier() / "model.mil", mil);
  ASSERT_TRUE(model->compile());
  ASSERT_TRUE(model->load());
  EXPECT_EQ(rule_in(model->load().error()), Rule::kLoadTwice);
  EXPECT_EQ(rule_in(model->evaluate(*request).error()), Rule::kSurfaceSmall);
  spec.perf_stats = true;
  EXPECT_FALSE(driver->create_request(spec));
  spec = RequestSpec::one(input.get(), small.get());
  spec.weights_buffer = input.get();
  EXPECT_FALSE(driver->create_request(spec));
  // A surface of another driver.
  const auto foreign = std::move(*system->emulator().create_surface(SurfaceProperties::flat(512)));
  EXPECT_FALSE(driver->create_request(RequestSpec::one(input.get(), foreign.get())));
  EXPECT_TRUE(model->unload());
}

TEST_F(AppleCalls, CacheAndDonors) {
  fixtures::TemporaryFolder cache;
  for (int start = 0; start < 2; ++start) {
    system->log().clear();
    KernelLoader loader(*driver, {cache.path(), false, 0});
    const auto loaded = loader.load(kernel());
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(std::count(system->log().begin(), system->log().end(), kCompile), start == 0 ? 1 : 0);
  }
  KernelLoader loader(*driver, {{}, true, 0});
  const auto donor = loader.load(kernel("l01_w")), other = loader.load(kernel("l02_w"));
  ASSERT_TRUE(donor && other);
  EXPECT_EQ((*other)->loaded_by(), LoadedBy::kDonor);
}

TEST_F(AppleCalls, LoadIsTriedAgain) {
  system->fail_at(kLoad);
  KernelLoader loader(*driver, {{}, false, 1});
  EXPECT_FALSE(loader.load(kernel()));
  EXPECT_EQ(std::count(system->log().begin(), system->log().end(), kLoad), 2);
}

TEST_F(AppleCalls, EmptyIdentifierStillNamesAFolder) {
  system->empty_identifiers(true);
  const std::vector<WeightEntry> none;
  const auto a = std::move(*driver->create_model("program(1.0)", &none)),
             b = std::move(*driver->create_model("program(1.3)", &none));
  EXPECT_FALSE(a->identifier().empty());
  EXPECT_NE(a->identifier(), b->identifier());
}

TEST_F(AppleCalls, MissingSymbolsAreNamed) {
  for (const char* symbol : {"objc_getClass", "sel_registerName", "objc_msg_lookup", "IOSurfaceCreate", "CFRelease",
                             "kIOSurfaceAllocSize"}) {
    auto other = system->lookup();
    const auto without = [&](const char* name) { return std::string_view(name) == symbol ? nullptr : other(name); };
    const auto made = AppleDriver::create(without, {folder.path(), false});
    ASSERT_FALSE(made) << symbol;
    EXPECT_EQ(made.error().code, Code::kUnsupported);
    const std::string_view expected = std::string_view(symbol) == "objc_msg_lookup" ? "objc_msgSend" : symbol;
    EXPECT_NE(made.error().message.find(expected), std::string::npos) << made.error().message;
  }
  // Without pools and NSTemporaryDirectory there is still a driver.
  system->hide("NSTemporaryDirectory");
  const auto made = AppleDriver::create(system->lookup(), {{}, false});
  ASSERT_TRUE(made);
  EXPECT_FALSE((*made)->temporary_folder().empty());
}

#if !defined(__APPLE__)
TEST(AppleDriver, OpensOnMacsOnly) {
  const auto made = AppleDriver::open({});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
}
#endif

struct AppleSelfCheck : AppleCalls {
  void SetUp() override {
    // What hardware is reported to do with small surfaces and short rows: the start-up check must not depend on either.
    options.surface_bytes_min = 16384;
    options.columns_min = 32;
    open_system();
    if (system == nullptr) GTEST_SKIP() << "libobjc is not installed (Debian: libobjc-12-dev)";
  }
};

TEST_F(AppleSelfCheck, PassesWhereAnswersAgree) {
  const uint32_t before = process_counts().compiles;
  const auto made = AppleDriver::create(system->lookup(), {{}, true});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(std::count(system->log().begin(), system->log().end(), kEvaluate), 1);
  EXPECT_EQ(process_counts().compiles.load(), before + 1);
  EXPECT_EQ(process_counts().loaded.load(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(system->emulator().report().warnings.empty());
}

TEST_F(AppleSelfCheck, DifferentAnswersRefuseTheDriver) {
  system->spoil_answers(true);
  const auto made = AppleDriver::create(system->lookup(), {{}, true});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_NE(made.error().message.find("channel 0 column 0"), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find("wrong values"), std::string::npos);
}

TEST_F(AppleSelfCheck, FailedCallsRefuseTheDriver) {
  system->fail_at(kEvaluate);
  const auto made = AppleDriver::create(system->lookup(), {{}, true});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("status=0x1d"), std::string::npos) << made.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Near the system's limit a refusal says what the process has used of it.
TEST_F(AppleCalls, RefusalsNearTheLimitNameIt) {
  const uint32_t before = process_counts().compiles.exchange(119);
  system->fail_at(kCompile);
  const Status status = run_kernel();
  process_counts().compiles = before;
  ASSERT_FALSE(status);
  EXPECT_EQ(fault_in(status.error().message), Fault::kCompile);
  EXPECT_NE(status.error().message.find("compiled 119 programs"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("kernels=N"), std::string::npos);
}

// A bank: two functions in one program, one load, a request for each with the indices that the system tells.
TEST_F(AppleCalls, ProceduresOfABank) {
  const auto function = [](const char* name, const char* call) {
    return fmt::format("  func {}<ios16>(tensor<fp16, [1, 8, 1, 32]> x) {{\n{}  }} -> (y);\n", name,
                       fixtures::op("tensor<fp16, [1, 8, 1, 32]>", "y", call));
  };
  const std::string one = fixtures::program("");
  const std::string mil = one.substr(0, one.find("  func")) + function("procedure000", "add(x = x, y = x)") +
                          function("procedure001", "mul(x = x, y = x)") + "}\n";
  const auto model = fixtures::loaded_model(*driver, mil, {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(system->emulator().report().loaded, 1u);
  const auto input = std::move(*driver->create_surface(SurfaceProperties::flat(65536)));
  const auto output = std::move(*driver->create_surface(SurfaceProperties::flat(65536)));
  ASSERT_TRUE(fixtures::fill(*input, {std::vector<float>(256, 3.0f), 32}));
  for (const int32_t procedure : {0, 1}) {
    const auto indices = (*model)->port_indices(procedure);
    ASSERT_TRUE(indices) << indices.error().message;
    EXPECT_EQ(indices->inputs, std::vector<int32_t>{procedure});
    RequestSpec spec = RequestSpec::one(input.get(), output.get());
    spec.procedure = procedure;
    spec.input_indices = indices->inputs;
    spec.output_indices = indices->outputs;
    const auto request = std::move(*driver->create_request(spec));
    const Status status = (*model)->evaluate(*request);
    ASSERT_TRUE(status) << fixtures::message(status);
    EXPECT_EQ(fixtures::read(*output, 256, 32)->at(255), procedure == 0 ? 6.0f : 9.0f);
    spec.input_indices = {0};
    spec.output_indices = {0};
    const auto unasked = std::move(*driver->create_request(spec));
    EXPECT_EQ(static_cast<bool>((*model)->evaluate(*unasked)), procedure == 0);
  }
  EXPECT_FALSE((*model)->port_indices(2));
}

// A device that binds ports as they are declared, or packs rows, is found: the emulator in those roles.
class OddDevice final : public Driver {
 public:
  OddDevice(Driver& inner, bool swap_ports, bool pack_rows)
      : inner_(inner), swap_ports_(swap_ports), pack_rows_(pack_rows) {}
  std::string_view name() const override { return "odd"; }
  std::string evidence() const override { return "a test"; }
  std::filesystem::path temporary_folder() const override { return inner_.temporary_folder(); }
  Result<std::unique_ptr<DeviceModel>> create_model(std::string_view mil,
                                                    const std::vector<WeightEntry>* weights) override {
    return inner_.create_model(mil, weights);
  }
  Result<std::unique_ptr<Surface>> create_surface(const SurfaceProperties& properties) override {
    return inner_.create_surface(properties);
  }
  Result<std::unique_ptr<Request>> create_request(const RequestSpec& spec) override {
    RequestSpec changed = spec;
    if (swap_ports_) std::reverse(changed.inputs.begin(), changed.inputs.end());
    if (pack_rows_ && spec.inputs.size() == 1) {
      // The values of packed rows, put where the emulator looks for them.
      const auto lock = std::move(*SurfaceLock::take(*spec.inputs[0], LockMode::kReadWrite));
      std::vector<std::byte> packed(lock.bytes().begin(), lock.bytes().end());
      for (size_t row = 0; row * 64 < packed.size(); ++row) std::copy_n(&packed[row * 32], 32, &lock.bytes()[row * 64]);
    }
    return inner_.create_request(changed);
  }

 private:
  Driver& inner_;
  const bool swap_ports_, pack_rows_;
};

// Another order of ports or another pitch of rows is told, and refuses nothing: no kernel depends on either.
TEST(SelfCheck, OtherBindingAndOtherPitchAdvise) {
  fixtures::TemporaryFolder folder;
  EmulatorOptions options;
  options.temporary_folder = folder.path();
  options.mode = Mode::kLenient;  // the probes ask what strict mode forbids
  const auto emulator = std::move(*EmulatorDriver::create(options));
  const auto odd = [](Driver& driver) {
    std::string names;
    for (const Advice& advice : advise(driver)) names += advice.as_expected ? "" : advice.name + " ";
    return names;
  };
  OddDevice declared(*emulator, true, false), packed(*emulator, false, true);
  EXPECT_EQ(odd(*emulator), "");
  EXPECT_EQ(odd(declared), "port_order ");
  EXPECT_NE(odd(packed).find("row_pitch"), std::string::npos);
  EXPECT_TRUE(self_check(*emulator));
  EXPECT_TRUE(self_check(declared));
  options.columns_min = 32;
  const auto zeros = std::move(*EmulatorDriver::create(options));
  EXPECT_EQ(odd(*zeros), "row_pitch ");
  EXPECT_TRUE(self_check(*zeros));
}

}  // namespace
}  // namespace baton::apple
