// The unit through the framework's calls, against doubles of its classes: the messages and their order, every call
// failing, outputs that do not fit, damaged and missing programs in the cache, and what the compute plan says.
#include "baton/unit/coreml/framework.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "baton/base/random.h"
#include "baton/unit/coreml/coreml_double_test.h"
#include "baton/unit/coreml/executor.h"
#include "tests/support/state_values.h"

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;

class FrameworkTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("baton-framework-{}", getpid());
    fs::create_directories(folder_ / "system");
    double_ = CoreMlDouble::open(folder_ / "system");
    if (double_ == nullptr) GTEST_SKIP() << "libobjc.so.4 is not installed (Debian package libobjc4)";
    auto model = load_model(fs::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-qwen3.5");
    ASSERT_TRUE(model) << model.error().message;
    model_ = *model;
    options_.cache = folder_ / "cache";
    options_.seqs = {16, 32};
    options_.chunks = 2;
  }
  void TearDown() override {
    executor_.reset();
    engine_.reset();
    if (double_ != nullptr) {
      double_->join();
      EXPECT_EQ(double_->live_objects(), 0u);
      for (const std::string& complaint : double_->complaints()) ADD_FAILURE() << complaint;
    }
    double_.reset();
    fs::remove_all(folder_);
  }

  // Opens, and has a prompt for each length: both are then loaded.
  std::string open_all() {
    std::string error = open();
    for (const int32_t seq : options_.seqs) {
      if (error.empty()) error = prefill(*executor_, static_cast<size_t>(seq)).first;
    }
    return error;
  }
  // Error text; "" when it worked.
  std::string open(ComputeUnits units = ComputeUnits::kCpuAndNeuralEngine, int timeout_ms = 10'000) {
    executor_.reset();
    engine_.reset();
    const std::chrono::milliseconds timeout(timeout_ms);
    auto engine = create_framework(double_->lookup(), {units, timeout, timeout});
    if (!engine) return engine.error().message;
    engine_ = std::move(*engine);
    options_.units = units;
    auto executor = CoreMlExecutor::load(model_, *engine_, options_);
    if (!executor) return executor.error().message;
    executor_ = std::move(*executor);
    return "";
  }
  static std::vector<int32_t> prompt(size_t tokens) {
    Random random(tokens);
    std::vector<int32_t> ids(tokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(256));
    return ids;
  }
  // All bytes of a state after a prefill; the error's text instead when it failed.
  static std::pair<std::string, std::vector<std::byte>> prefill(Executor& executor, size_t tokens) {
    auto state = executor.new_state(tokens);
    const auto status = executor.prefill(**state, prompt(tokens), {});
    if (!status) return {status.error().message, {}};
    return {"", test::state_bytes(**state)};
  }

  // Of the compiled forms in the cache.
  uint64_t compiled_bytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(options_.cache)) {
      if (entry.path().extension() == ".mlmodelc") bytes += folder_bytes(entry.path());
    }
    return bytes;
  }

  fs::path folder_;
  std::unique_ptr<CoreMlDouble> double_;
  std::shared_ptr<const Model> model_;
  ExecutorOptions options_;
  std::unique_ptr<PackageEngine> engine_;
  std::unique_ptr<CoreMlExecutor> executor_;
};

// The same bits as the interpreter without Objective-C, for lengths that need padding, several packages and a past.
TEST_F(FrameworkTest, StatesAreThoseOfTheInterpreter) {
  ASSERT_EQ(open(), "");
  const auto interpreter = interpreter_engine(1);
  ExecutorOptions options = options_;
  options.cache = folder_ / "interpreted";
  auto wanted = CoreMlExecutor::load(model_, *interpreter, options);
  ASSERT_TRUE(wanted) << wanted.error().message;
  for (const size_t tokens : {size_t{1}, size_t{7}, size_t{16}, size_t{20}, size_t{33}, size_t{100}}) {
    const auto got = prefill(*executor_, tokens);
    EXPECT_EQ(got.first, "");
    EXPECT_EQ(got.second, prefill(**wanted, tokens).second) << tokens;
  }
}

TEST_F(FrameworkTest, MessagesInTheirOrder) {
  ASSERT_EQ(open(), "");
  const std::vector<std::string> once = {"compileModelAtURL:error:", "init", "setComputeUnits:",
                                         "MLModel loadContentsOfURL:configuration:completionHandler:",
                                         "loadContentsOfURL:configuration:completionHandler:"};
  std::vector<std::string> wanted;
  for (int package = 0; package < 2; ++package) wanted.insert(wanted.end(), once.begin(), once.end());
  EXPECT_EQ(double_->log(), wanted);
  EXPECT_EQ(double_->compute_units(), 3);
  double_->log().clear();
  ASSERT_EQ(prefill(*executor_, 5).first, "");
  const auto count = [&](const char* call) { return std::count(double_->log().begin(), double_->log().end(), call); };
  EXPECT_EQ(count("predictionFromFeatures:error:"), 2);  // one a chunk
  EXPECT_EQ(count("initWithDictionary:error:"), 2);
  EXPECT_EQ(count("initWithShape:dataType:error:"), count("getMutableBytesWithHandler:"));
  EXPECT_EQ(count("featureValueForName:"), count("getBytesWithHandler:"));
  EXPECT_EQ(count("compileModelAtURL:error:"), 0);
  ASSERT_EQ(open(ComputeUnits::kCpuOnly), "");
  EXPECT_EQ(double_->compute_units(), 0);
}

TEST_F(FrameworkTest, EveryCallThatFailsIsAnError) {
  for (const char* call :
       {"compileModelAtURL:error:", "init", "MLModel loadContentsOfURL:configuration:completionHandler:"}) {
    double_->fail_at(call, "the system's words");
    const std::string error = open();
    ASSERT_NE(error, "") << call;
    if (std::string_view(call) != "init") {
      EXPECT_NE(error.find("the system's words"), std::string::npos) << error;
    }
    double_->fail_at(call);
    EXPECT_NE(open(), "") << call << " without an NSError";
    double_->fail_at("");
  }
  ASSERT_EQ(open(), "");
  for (const char* call : {"initWithShape:dataType:error:", "getMutableBytesWithHandler:",
                           "featureValueWithMultiArray:", "initWithDictionary:error:", "predictionFromFeatures:error:",
                           "featureValueForName:", "multiArrayValue", "getBytesWithHandler:"}) {
    for (const char* words : {"", "the system's words"}) {
      double_->fail_at(call, words);
      EXPECT_NE(prefill(*executor_, 5).first, "") << call;
    }
  }
  double_->fail_at("");
  EXPECT_EQ(prefill(*executor_, 5).first, "");
}

TEST_F(FrameworkTest, OutputsThatDoNotFitAreErrors) {
  ASSERT_EQ(open(), "");
  for (const char* how : {"shape", "type", "nan", "short"}) {
    double_->spoil_output(how);
    EXPECT_NE(prefill(*executor_, 5).first.find("output '"), std::string::npos) << how;
  }
}

TEST_F(FrameworkTest, WhatIsMissingIsNamed) {
  for (const char* name : {"objc_msg_lookup", "MLModel", "MLMultiArray", "NSURL", "_NSConcreteGlobalBlock"}) {
    const auto fresh = CoreMlDouble::open(folder_ / "system");
    fresh->hide(name);
    const auto engine = create_framework(fresh->lookup(), {});
    ASSERT_FALSE(engine) << name;
    EXPECT_EQ(engine.error().code, Code::kUnsupported);
    const std::string wanted = std::string_view(name) == "objc_msg_lookup" ? "objc_msgSend" : name;
    EXPECT_NE(engine.error().message.find(wanted), std::string::npos) << engine.error().message;
  }
  double_ = nullptr;  // the last one took its place
}

TEST_F(FrameworkTest, CacheIsFoundAgainAndMendsItself) {
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 4u);
  EXPECT_EQ(executor_->cache_events().bytes_added, compiled_bytes());
  EXPECT_NE(executor_->placement().text().find("4 compiled programs"), std::string::npos);
  const auto wanted = prefill(*executor_, 9);
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 0u);
  EXPECT_EQ(executor_->cache_events().found, 4u);
  EXPECT_EQ(executor_->placement().text().find("compiled programs"), std::string::npos);
  EXPECT_EQ(prefill(*executor_, 9), wanted);
  // Another system compiles for itself.
  double_->set_system("Version 15.1 (Build 24B83)");
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 4u);
  // Other lengths are other programs.
  options_.seqs = {16, 24};
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 2u);
  // A program that is damaged or gone is made again.
  size_t damaged = 0;
  for (const auto& entry : fs::recursive_directory_iterator(options_.cache)) {
    if (entry.path().filename() == "model.mlmodel" && damaged++ == 0) std::ofstream(entry.path()) << "x";
  }
  ASSERT_GT(damaged, 0u);
  options_.seqs = {16, 24, 32};
  ASSERT_EQ(open_all(), "");
  const uint64_t replaced = executor_->cache_events().replaced;
  double_->set_system("Version 15.0 (Build 24A335)");
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(replaced + executor_->cache_events().replaced, 1u);
  for (const auto& entry : fs::directory_iterator(options_.cache)) {
    for (const auto& file : fs::directory_iterator(entry.path())) {
      if (file.is_directory()) fs::remove_all(file.path());
    }
  }
  ASSERT_EQ(open_all(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 6u);
  EXPECT_EQ(prefill(*executor_, 9), wanted);
  for (const auto& entry : fs::recursive_directory_iterator(options_.cache))
    EXPECT_EQ(entry.path().filename().string().find("part-"), std::string::npos) << entry.path();
}

// A load that hangs, as others report of some systems, ends after the time-out with what may help; a late answer finds
// nobody. One that comes late but in time is used.
TEST_F(FrameworkTest, LoadsThatHangEnd) {
  double_->set_load_answers(PlanAnswers::kTooLate);
  const std::string error = open(ComputeUnits::kAll, 20);
  double_->join();
  EXPECT_NE(error.find("did not come in 20 ms"), std::string::npos) << error;
  EXPECT_NE(error.find("coreml:units=cpu or gpu"), std::string::npos) << error;
  EXPECT_NE(error.find("coreml:timeout"), std::string::npos) << error;
  EXPECT_NE(open(ComputeUnits::kCpuOnly, 20).find("another unit"), std::string::npos);
  double_->join();
  double_->set_load_answers(PlanAnswers::kLater);
  ASSERT_EQ(open(), "");
  EXPECT_EQ(prefill(*executor_, 5).first, "");
}

// The shortest length comes first, the others when a prompt needs them; one that cannot be had names the shorter.
TEST_F(FrameworkTest, LongerLengthsComeWhenNeeded) {
  ASSERT_EQ(open(), "");
  EXPECT_EQ(executor_->cache_events().compiled, 2u);
  ASSERT_EQ(prefill(*executor_, 16).first, "");
  EXPECT_EQ(executor_->cache_events().compiled, 2u);
  double_->fail_at("compileModelAtURL:error:", "too large");
  const std::string error = prefill(*executor_, 17).first;
  EXPECT_NE(error.find("too large"), std::string::npos) << error;
  EXPECT_NE(error.find("coreml:lengths=16"), std::string::npos) << error;
  double_->fail_at("");
  ASSERT_EQ(prefill(*executor_, 17).first, "");
  EXPECT_EQ(executor_->cache_events().compiled, 4u);
}

TEST_F(FrameworkTest, CacheThatCannotBeWritten) {
  std::ofstream(folder_ / "file") << "x";
  options_.cache = folder_ / "file";
  const std::string error = open();
  EXPECT_NE(error.find("coreml:cache"), std::string::npos) << error;
}

TEST_F(FrameworkTest, PlacementTellsThePlan) {
  double_->set_plan(1.0, "cpu", true);
  ASSERT_EQ(open(), "");
  EXPECT_EQ(executor_->placement().ran, "coreml");
  EXPECT_EQ(executor_->placement().warning, "");
  EXPECT_NE(executor_->placement().text().find("plan by cost: 100 % Neural Engine"), std::string::npos)
      << executor_->placement().text();
  EXPECT_DOUBLE_EQ(executor_->shares().neural_engine, 1);

  // Four operations of five, but a fifth of the operations is three times as dear: 4 of 7 by cost.
  double_->set_plan(0.8, "gpu", true);
  ASSERT_EQ(open(), "");
  EXPECT_NEAR(executor_->shares().neural_engine, 4.0 / 7, 0.02);
  EXPECT_NEAR(executor_->shares().gpu, 3.0 / 7, 0.02);
  EXPECT_EQ(executor_->placement().warning, "");
  double_->set_plan(0.8, "gpu", false);
  ASSERT_EQ(open(), "");
  EXPECT_NEAR(executor_->shares().neural_engine, 0.8, 0.02);
  EXPECT_NE(executor_->placement().text().find("plan by count"), std::string::npos);
}

TEST_F(FrameworkTest, MismatchIsLoud) {
  double_->set_plan(0.1, "cpu", true);
  for (const ComputeUnits units : {ComputeUnits::kAll, ComputeUnits::kCpuAndNeuralEngine}) {
    ASSERT_EQ(open(units), "");
    const Placement placement = executor_->placement();
    EXPECT_TRUE(placement.text().starts_with("MISMATCH")) << placement.text();
    EXPECT_NE(placement.warning.find("% CPU"), std::string::npos) << placement.warning;
    EXPECT_NE(placement.warning.find(fmt::format("asked for {}", to_string(units))), std::string::npos);
  }
  // Who asked for the CPU gets no warning.
  for (const ComputeUnits units : {ComputeUnits::kCpuOnly, ComputeUnits::kCpuAndGpu}) {
    ASSERT_EQ(open(units), "");
    EXPECT_EQ(executor_->placement().warning, "");
    EXPECT_FALSE(executor_->placement().text().starts_with("MISMATCH"));
  }
  double_->set_neural_engine(false);
  ASSERT_EQ(open(), "");
  EXPECT_NE(executor_->placement().warning.find("no Neural Engine"), std::string::npos)
      << executor_->placement().warning;
}

TEST_F(FrameworkTest, PlanThatDoesNotComeIsSaid) {
  double_->set_plan_answers(PlanAnswers::kLater);
  ASSERT_EQ(open(), "");
  EXPECT_GT(executor_->shares().operations, 0u);
  double_->set_plan_answers(PlanAnswers::kError);
  ASSERT_EQ(open(), "");
  EXPECT_EQ(executor_->shares().operations, 0u);
  EXPECT_NE(executor_->placement().warning.find("the plan is refused"), std::string::npos)
      << executor_->placement().warning;
  double_->set_plan_answers(PlanAnswers::kTooLate);
  ASSERT_EQ(open(ComputeUnits::kCpuAndNeuralEngine, 20), "");
  EXPECT_NE(executor_->placement().text().find("did not come in 20 ms"), std::string::npos)
      << executor_->placement().text();
  EXPECT_EQ(prefill(*executor_, 5).first, "");
  double_->join();  // the late answers find nobody, and free what they were given
}

TEST_F(FrameworkTest, SystemsWithoutPlans) {
  for (const char* name : {"MLComputePlan", "MLNeuralEngineComputeDevice", "MLGPUComputeDevice", "MLCPUComputeDevice"})
    double_->hide(name);
  ASSERT_EQ(open(), "");
  EXPECT_NE(executor_->placement().warning.find("macOS 14.4"), std::string::npos) << executor_->placement().warning;
  EXPECT_EQ(prefill(*executor_, 5).first, "");
}

TEST_F(FrameworkTest, DecodeSaysWhoCan) {
  ASSERT_EQ(open(), "");
  auto state = executor_->new_state(8);
  const auto status = executor_->decode(**state, 1, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_NE(status.error().message.find("another one"), std::string::npos) << status.error().message;
}

TEST_F(FrameworkTest, BadTokensAndFullStates) {
  ASSERT_EQ(open(), "");
  auto state = executor_->new_state(4);
  EXPECT_FALSE(executor_->prefill(**state, std::vector<int32_t>{-1}, {}));
  EXPECT_FALSE(executor_->prefill(**state, std::vector<int32_t>{256}, {}));
  EXPECT_FALSE(executor_->prefill(**state, std::vector<int32_t>(5, 1), {}));
  EXPECT_EQ((*state)->position(), 0u);
}

TEST(ComputeUnitNames, ByName) {
  for (const ComputeUnits units :
       {ComputeUnits::kCpuOnly, ComputeUnits::kCpuAndGpu, ComputeUnits::kAll, ComputeUnits::kCpuAndNeuralEngine}) {
    EXPECT_EQ(*compute_units_by_name(to_string(units)), units);
  }
  EXPECT_NE(compute_units_by_name("npu").error().message.find("ane, all, gpu, cpu"), std::string::npos);
}

}  // namespace
}  // namespace baton::coreml
