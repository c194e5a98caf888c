// How the `ane` unit works: what a caller may choose.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/apple/chip.h"
#include "baton/unit/apple/mac.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/rule.h"
#include "baton/unit/options.h"

namespace baton::ane {

enum class Device : uint8_t {
  kAuto,      // the hardware where its start-up check passes, the emulator elsewhere
  kEmulator,  // always emulated
  kHardware,  // refused where there is none
};

enum class Dispatch : uint8_t {
  kBatch,       // a call of the device takes up to `columns` tokens
  kSequential,  // one token a call, the other columns zero
};

struct AneOptions {
  uint32_t threads = 0;      // of the host's part; 0: what load() says
  std::string host_kernels;  // set of kernels of the host's part; empty: the best
  Device device = Device::kAuto;
  Dispatch dispatch = Dispatch::kBatch;
  int64_t columns = 32;    // tokens a call, compiled into the kernels: 32, 64 or 128
  bool pipeline = true;    // host work of one chunk of a prompt beside device work of the next
  bool lazy_head = false;  // load the output head when logits are first asked for: for units that only prefill
  // Kernels compiled and loaded at a time. What does not fit runs on the host: the output head first, then whole steps,
  // those of most kernels first.
  // Counted over the whole process, as the system does: about 119, of which the start-up check compiles one.
  uint32_t kernels_max = 118;
  // Weights of a kernel, bytes; 0: 64 MB, or 76 MB when that saves steps from the host.
  uint64_t weight_bytes_max = 0;
  apple::OutOfRange out_of_range = apple::OutOfRange::kRefuse;  // weights beyond fp16
  // Of compiled kernels, so that the next process loads them in milliseconds. Empty: cache_folder() below decides.
  std::filesystem::path cache_folder;
  bool cache = true;
  bool donors = false;  // one compile per shape (apple/device_kernel.h)

  // The emulator's.
  apple::Mode mode = apple::Mode::kStrict;
  apple::Numerics numerics;
  // Compiles a process may make, kernels given back included, as macOS 15 and older count; 0: no limit.
  uint32_t compiles_max = 0;
  const apple::ChipPreset* chip = nullptr;  // estimates as of this chip; null: no times are emulated
};

// What `baton units --help-options` lists, and what is made of it.
std::vector<UnitOption> option_list();
AneOptions options_of(const UnitOptions& given);
// From "chip=m1,dispatch=sequential,...".
Result<AneOptions> parse_options(std::string_view words);
// Where compiled kernels are kept: the folder that was named; on hardware Library/Caches/baton/ane in the home folder;
// empty (nothing is kept) for the emulator, which compiles in no time, and with cache=off.
std::filesystem::path cache_folder(const AneOptions& options, bool hardware);

// Whether the unit uses the system's driver. `open` opens it with its start-up check. On a Mac the emulator runs only
// when it is asked for by name: without that the reason is the answer, so that emulated figures are never taken for the
// machine's. Elsewhere there is nothing but the emulator.
Result<bool> choose_hardware(Device device, bool is_mac, const std::function<Status()>& open);

}  // namespace baton::ane
