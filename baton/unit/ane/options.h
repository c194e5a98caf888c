// How the `ane` unit works: what a caller may choose.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/unit/apple/chip.h"
#include "baton/unit/apple/mac.h"
#include "baton/unit/apple/mil_blob.h"
#include "baton/unit/apple/rule.h"

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
  Device device = Device::kAuto;
  Dispatch dispatch = Dispatch::kBatch;
  int64_t columns = 32;    // tokens a call, compiled into the kernels: 32, 64 or 128
  bool pipeline = true;    // host work of one chunk of a prompt beside device work of the next
  bool lazy_head = false;  // load the output head when logits are first asked for: for units that only prefill
  // Kernels compiled and loaded at a time. What does not fit runs on the host: the output head first, then whole steps,
  // those of most kernels first.
  uint32_t kernels_max = 119;
  // Weights of a kernel, bytes; 0: 64 MB, or 76 MB when that saves steps from the host.
  uint64_t weight_bytes_max = 0;
  apple::OutOfRange out_of_range = apple::OutOfRange::kRefuse;  // weights beyond fp16
  std::filesystem::path cache_folder;  // of compiled kernels; empty: every process compiles, and leaves nothing
  bool donors = false;                 // one compile per shape (apple/device_kernel.h)

  // The emulator's.
  apple::Mode mode = apple::Mode::kStrict;
  apple::Numerics numerics;
  const apple::ChipPreset* chip = nullptr;  // estimates as of this chip; null: no times are emulated
};

// From "chip=m1,dispatch=sequential,...": the words are those of describe(). kInvalidInput names the word, and what may
// stand there.
Result<AneOptions> parse_options(std::string_view text);
// What the environment variable BATON_ANE says; defaults where there is none.
Result<AneOptions> options_from_environment();
// Every word parse_options knows, with its values.
std::string options_help();

}  // namespace baton::ane
