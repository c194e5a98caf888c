// The sequence: create the model, then cached load, donated load or compile, each with the files it needs.
#include "baton/unit/apple/device_kernel.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <chrono>
#include <thread>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/unit/apple/plain_file.h"

namespace baton::apple {
namespace {

constexpr std::chrono::milliseconds kRetryPause(100);

// Of everything that decides what a kernel computes; the system's identifier may cover less.
std::string content_hash(const Kernel& kernel) {
  const uint64_t text = XXH3_64bits(kernel.mil.data(), kernel.mil.size());
  const uint64_t weights = XXH3_64bits(kernel.weights.data(), kernel.weights.size());
  return fmt::format("{:016x}{:016x}", text, weights);
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(Code::kInvalidInput, fmt::format("{}: cannot be created: {}", folder.string(), error.message()));
  return {};
}

}  // namespace

struct KernelLoader::Job {
  const Kernel& kernel;
  std::unique_ptr<DeviceModel> model;
  std::filesystem::path folder;
  std::string content;
  LoadedBy loaded_by = LoadedBy::kCompile;
};

DeviceKernel::~DeviceKernel() {
  model_.reset();
  std::error_code ignored;
  if (!folder_to_remove_.empty()) std::filesystem::remove_all(folder_to_remove_, ignored);
}

Result<KernelIo> DeviceKernel::new_io() {
  KernelIo io;
  BATON_TRY(io.input, driver_.create_surface(SurfaceProperties::flat(surface_bytes(input_bytes()))));
  BATON_TRY(io.output, driver_.create_surface(SurfaceProperties::flat(surface_bytes(output_bytes()))));
  BATON_TRY(io.request, new_request(*io.input, *io.output));
  return io;
}

Result<std::unique_ptr<Request>> DeviceKernel::new_request(Surface& input, Surface& output) {
  return driver_.create_request(RequestSpec::one(&input, &output));
}

Status DeviceKernel::evaluate(const Request& request) {
  auto status = model_->evaluate(request);
  if (!status) return fail(std::move(status).error().in(fmt::format("kernel '{}'", plan_.name)));
  return {};
}

std::filesystem::path KernelLoader::marker(const std::string& identifier) const {
  return options_.cache_folder / "compiled_markers" / (identifier + ".ok");
}

Status KernelLoader::write_files(const Job& job) const {
  const std::filesystem::path weights =
      job.folder / job.kernel.weights_key.substr(std::string_view("@model_path/").size());
  BATON_OK(make_folder(weights.parent_path()));
  BATON_OK(write_plain_file(job.folder / "model.mil", as_bytes(job.kernel.mil)));
  return write_plain_file(weights, job.kernel.weights);
}

// The marker says that this very content was compiled; the artefacts may be gone all the same.
bool KernelLoader::load_cached(Job* job) {
  if (options_.cache_folder.empty()) return false;
  const std::filesystem::path path = marker(job->model->identifier());
  const auto text = read_file(path, 256);
  if (!text) return false;
  if (*text == "ok " + job->content + "\n" && job->model->load()) {
    job->loaded_by = LoadedBy::kCache;
    return true;
  }
  ++counts_.stale_markers;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return false;
}

bool KernelLoader::load_from_donor(Job* job) {
  const auto donor = donors_.find(job->kernel.plan.shape());
  if (!options_.donors || donor == donors_.end() || !write_files(*job)) return false;
  std::error_code error;
  std::filesystem::copy_file(donor->second / "net.plist", job->folder / "net.plist",
                             std::filesystem::copy_options::overwrite_existing, error);
  if (error || !write_plain_file(job->folder / "data", job->kernel.weights) || !job->model->load()) return false;
  job->loaded_by = LoadedBy::kDonor;
  return true;
}

Status KernelLoader::compile_and_load(Job* job) {
  BATON_OK(write_files(*job));
  BATON_OK(job->model->compile());
  Status loaded = job->model->load();
  for (uint32_t i = 0; !loaded && i < options_.load_retries; ++i) {
    std::this_thread::sleep_for(kRetryPause);
    loaded = job->model->load();
  }
  BATON_OK(loaded);
  job->loaded_by = LoadedBy::kCompile;
  donors_.emplace(job->kernel.plan.shape(), job->folder);
  if (options_.cache_folder.empty()) return {};
  const std::filesystem::path path = marker(job->model->identifier());
  BATON_OK(make_folder(path.parent_path()));
  return write_plain_file(path, as_bytes("ok " + job->content + "\n"));
}

Result<std::unique_ptr<DeviceKernel>> KernelLoader::load(const Kernel& kernel) {
  const std::vector<WeightEntry> weights = {{kernel.weights_key, 0, kernel.weights}};
  const std::string where = fmt::format("kernel '{}'", kernel.plan.name);
  auto model = driver_.create_model(kernel.mil, &weights);
  if (!model) return fail(std::move(model).error().in(where));
  Job job{kernel, std::move(*model), {}, content_hash(kernel)};
  const std::string& identifier = job.model->identifier();
  job.folder = driver_.temporary_folder() / identifier;
  const auto [known, is_new] = contents_.emplace(identifier, job.content);
  if (!is_new && known->second != job.content) {
    return fail(Code::kMismatch, fmt::format("{}: another kernel has the identifier {}; names in the text must differ",
                                             where, identifier));
  }
  if (!load_cached(&job) && !load_from_donor(&job)) {
    if (auto status = compile_and_load(&job); !status) {
      std::error_code ignored;
      job.model.reset();
      std::filesystem::remove_all(job.folder, ignored);
      if (is_new) contents_.erase(known);
      return fail(std::move(status).error().in(where));
    }
  }
  ++(job.loaded_by == LoadedBy::kCompile ? counts_.compiles
     : job.loaded_by == LoadedBy::kCache ? counts_.cache_loads
                                         : counts_.donor_loads);
  std::unique_ptr<DeviceKernel> out(new DeviceKernel(driver_, kernel.plan));
  out->loaded_by_ = job.loaded_by;
  out->model_ = std::move(job.model);
  if (options_.cache_folder.empty()) out->folder_to_remove_ = job.folder;
  return out;
}

}  // namespace baton::apple
