// Cards: opening, memory, kernels by name, and what errors of the driver mean.
#include "baton/unit/cuda/card.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "baton/base/thread_pool.h"
#include "baton/unit/cuda/card_parts.h"
#include "baton/unit/cuda/embedded.h"

namespace baton::cuda {
namespace {

// After these the driver refuses everything else to this process's context.
constexpr DriverCode kLostCodes[] = {
    4,   // deinitialized
    46,  // unavailable
    kEccError,
    kNvlinkError,
    226,  // contained error
    kIllegalAddress,
    kLaunchTimeout,
    kContextDestroyed,
    kAssert,
    kStackError,
    kIllegalInstruction,
    kMisalignedAddress,
    kInvalidAddressSpace,
    kInvalidProgramCounter,
    kLaunchFailed,
    721,  // tensor memory leak
    911,  // another device
    kUnknown,
};

std::string mib(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string card_text(const CardFacts& facts) {
  return facts.name.empty() ? fmt::format("card {}", facts.index)
                            : fmt::format("card {} ({})", facts.index, facts.name);
}

}  // namespace

CardCounts& card_counts() {
  static constinit CardCounts counts;
  return counts;
}

CardUse card_use() {
  const CardCounts& counts = card_counts();
  return {counts.device_bytes, counts.pinned_bytes, counts.cards, counts.streams, counts.events, counts.graphs};
}

bool Card::Parts::is_loss(DriverCode code) {
  return std::find(std::begin(kLostCodes), std::end(kLostCodes), code) != std::end(kLostCodes);
}

tl::unexpected<Error> Card::Parts::failed(std::string_view what, uint64_t bytes, DriverCode code) {
  if (is_loss(code)) lost = code;
  std::string text = fmt::format("{}: {}", card_text(*facts), what);
  if (bytes != 0) text += fmt::format(" {} bytes", bytes);
  text += fmt::format(": {}", code_text(*driver, code));
  if (lost != kDone)
    return fail(Code::kUnavailable, text + "; the card is lost to this process, which must be started again to use it");
  return fail(code == kNoMemory ? Code::kOutOfMemory : Code::kDevice, std::move(text));
}

Result<Handle> Card::Parts::function(std::string_view name, uint32_t shared_bytes) {
  const std::lock_guard lock(mutex);
  auto found = functions.find(name);
  if (found == functions.end()) {
    Function function;
    for (const Handle module : modules) {
      DriverCode code = kDone;
      const std::string text(name);
      BATON_OK(run("finding a kernel", 0, [&](const Driver& d) {
        code = d.module_function(&function.handle, module, text.c_str());
        return code == kNoSuchName ? kDone : code;
      }));
      if (code == kDone) break;
      function.handle = nullptr;
    }
    if (function.handle == nullptr)
      return fail(Code::kInternal, fmt::format("{}: no kernel {} was built in", card_text(*facts), name));
    // All kernels want memory of a processor cut the same way: one that is cut anew must be empty, and lets nobody
    // begin before the kernel that stands before it is over.
    BATON_OK(run("choosing a kernel's shared memory", 0, [&](const Driver& d) {
      return d.function_set_attribute(function.handle, FunctionAttribute::kSharedShare, kMostShared);
    }));
    found = functions.emplace(name, function).first;
  }
  Function& function = found->second;
  if (shared_bytes > function.shared_max) {
    BATON_OK(run(fmt::format("giving kernel {} shared memory:", name), shared_bytes, [&](const Driver& d) {
      return d.function_set_attribute(function.handle, FunctionAttribute::kDynamicSharedBytes,
                                      static_cast<int>(shared_bytes));
    }));
    function.shared_max = shared_bytes;
  }
  return function.handle;
}

Result<uint32_t> Card::count(const Driver& driver) {
  int count = 0;
  if (const DriverCode code = driver.device_count(&count); code != kDone && code != kNoDevice)
    return fail(Code::kUnsupported, fmt::format("the cards cannot be counted: {}", code_text(driver, code)));
  return std::min(static_cast<uint32_t>(std::max(count, 0)), kCardsMax);
}

Status Card::read_facts() {
  const auto attribute = [&](DeviceAttribute what, uint32_t& value) -> Status {
    int number = 0;
    BATON_OK(parts_->run("reading an attribute", 0,
                         [&](const Driver& d) { return d.device_attribute(&number, what, parts_->device); }));
    value = static_cast<uint32_t>(std::max(number, 0));
    return {};
  };
  std::array<char, 256> name = {};
  std::array<char, 32> pci = {};
  size_t bytes = 0;
  int version = 0;
  uint32_t major = 0, minor = 0;
  BATON_OK(parts_->run("reading its name and memory", 0, [&](const Driver& d) {
    DriverCode code = d.device_name(name.data(), static_cast<int>(name.size()), parts_->device);
    if (code == kDone) code = d.device_memory(&bytes, parts_->device);
    if (code == kDone) code = d.device_pci(pci.data(), static_cast<int>(pci.size()), parts_->device);
    return code == kDone ? d.version(&version) : code;
  }));
  BATON_OK(attribute(DeviceAttribute::kCapabilityMajor, major));
  BATON_OK(attribute(DeviceAttribute::kCapabilityMinor, minor));
  BATON_OK(attribute(DeviceAttribute::kProcessors, facts_.processors));
  BATON_OK(attribute(DeviceAttribute::kSharedBytesMax, facts_.shared_bytes));
  name.back() = pci.back() = '\0';
  facts_.name = printable(name.data());
  facts_.pci = printable(pci.data());
  facts_.memory_bytes = bytes;
  facts_.capability = std::min(major, 99u) * 10 + std::min(minor, 9u);
  facts_.maps = parts_->driver->describe_matrix != nullptr && facts_.capability >= 90;
  facts_.driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  if (facts_.capability < kCapabilityLeast)
    return fail(Code::kUnsupported,
                fmt::format("{}: it has compute capability {}.{}, and kernels need {}.{} or later: choose another unit "
                            "('baton units')",
                            card_text(facts_), major, minor, kCapabilityLeast / 10, kCapabilityLeast % 10));
  constexpr uint64_t kMemoryMost = uint64_t{1} << 50;
  constexpr uint32_t kProcessorsMost = 1 << 16;
  const bool can_be =
      facts_.processors > 0 && facts_.processors <= kProcessorsMost && bytes > 0 && bytes <= kMemoryMost;
  if (!can_be)
    return fail(Code::kUnsupported,
                fmt::format("{}: the driver says that it has {} processors and {} bytes of memory, which no card has: "
                            "mend or replace the driver, or choose another unit ('baton units')",
                            card_text(facts_), facts_.processors, bytes));
  return {};
}

Status Card::load_kernels(std::string_view only) {
  BATON_OK(parts_->run("opening it", 0,
                       [&](const Driver& d) { return d.context_retain(&parts_->context, parts_->device); }));
  ++card_counts().cards;
  // The emulated card knows kernels by name: any image will do.
  static constexpr KernelImage kNothing = {"emulated", "emulated"};
  const auto images = facts_.emulated ? std::span(&kNothing, 1) : kernel_images();
  parts_->modules.reserve(images.size());
  for (const KernelImage& image : images) {
    if (!only.empty() && !facts_.emulated && image.name != only) continue;
    Handle module = nullptr;
    DriverCode code = kDone;
    const Status loaded = parts_->run(fmt::format("loading the kernels of {}.cu", image.name), 0,
                                      [&](const Driver& d) { return code = d.module_load(&module, image.bytes); });
    if (!loaded && (code == kNoBinaryForCard || code == kNewerPtx || code == kNoCompiler || code == kInvalidImage)) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: the kernels do not run on compute capability {}.{} with driver {}: they were built "
                              "by {} ({}); a newer driver or a build for this card will do",
                              card_text(facts_), facts_.capability / 10, facts_.capability % 10, facts_.driver,
                              kernel_build(), code_text(*parts_->driver, code)));
    }
    BATON_OK(loaded);
    parts_->modules.push_back(module);
  }
  return {};
}

Card::Card() = default;

Result<std::shared_ptr<Card>> Card::find(const Driver& driver, uint32_t index) try {
  BATON_TRY(const uint32_t cards, count(driver));
  if (cards == 0)
    return fail(Code::kUnsupported,
                "there is no NVIDIA card that the driver lets this process see: choose another "
                "unit ('baton units')");
  if (index >= cards) {
    return fail(Code::kUnsupported,
                fmt::format("cuda: there is no card {}: {}", index,
                            cards == 1 ? "the only one is 0" : fmt::format("the last is {}", cards - 1)));
  }
  std::shared_ptr<Card> card(new Card);
  card->facts_.index = index;
  card->facts_.emulated = driver.emulated;
  card->parts_ = std::make_unique<Parts>();
  card->parts_->driver = &driver;
  card->parts_->facts = &card->facts_;
  if (const DriverCode code = driver.device_get(&card->parts_->device, static_cast<int>(index)); code != kDone)
    return card->parts_->failed("finding it", 0, code);
  BATON_OK(card->read_facts());
  return card;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("no memory to open card {}", index));
}

Result<CardFacts> Card::facts_of(const Driver& driver, uint32_t index) {
  BATON_TRY(const auto card, find(driver, index));
  return card->facts_;
}

Result<std::shared_ptr<Card>> Card::open(const Driver& driver, uint32_t index, std::string_view only) {
  BATON_TRY(auto card, find(driver, index));
  BATON_OK(card->load_kernels(only));
  return card;
}

Card::~Card() {
  if (parts_ == nullptr || parts_->context == nullptr) return;
  for (const Handle module : parts_->modules) parts_->drop([&](const Driver& d) { return d.module_unload(module); });
  parts_->drop([&](const Driver& d) { return d.context_release(parts_->device); });
  --card_counts().cards;
  // No context stays current that is no more.
  static_cast<void>(parts_->driver->context_set_current(nullptr));
}

bool Card::lost() const { return parts_->lost != kDone; }

Result<uint64_t> Card::free_bytes() const {
  size_t free = 0, all = 0;
  BATON_OK(parts_->run("asking for its free memory", 0, [&](const Driver& d) { return d.memory_info(&free, &all); }));
  return free;
}

Result<DeviceMemory> Card::allocate(uint64_t bytes, std::string_view what) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  DriverCode code = kDone;
  Address address = 0;
  const Status done = parts_->run(fmt::format("allocating for {}", what), bytes,
                                  [&](const Driver& d) { return code = d.memory_allocate(&address, bytes); });
  if (!done && code == kNoMemory) {
    const Result<uint64_t> free = free_bytes();
    return fail(Code::kOutOfMemory,
                fmt::format("{}: no memory for {}: {} more are needed, {} of its {} are free, {} are held here",
                            card_text(facts_), what, mib(bytes), free ? mib(*free) : "an unknown part",
                            mib(facts_.memory_bytes), mib(held_)));
  }
  BATON_OK(done);
  memory.card_ = this;
  memory.address_ = address;
  memory.bytes_ = bytes;
  held_ += bytes;
  card_counts().device_bytes += bytes;
  return memory;
}

// Whether it has memory that was mapped here, in huge pages, and pinned.
Result<bool> Card::pin_huge(uint64_t bytes, ThreadPool* pool, PinnedMemory& memory) {
  const uint64_t mapped_bytes = (bytes + kHugeBytes - 1) / kHugeBytes * kHugeBytes + kHugeBytes;
  void* const mapped = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  const auto misplaced = reinterpret_cast<uintptr_t>(mapped) % kHugeBytes;
  auto* const data = static_cast<std::byte*>(mapped) + (misplaced == 0 ? 0 : kHugeBytes - misplaced);
#if defined(MADV_HUGEPAGE)
  ::madvise(data, mapped_bytes - kHugeBytes, MADV_HUGEPAGE);
#endif
  const auto clear = [&](int64_t begin, int64_t end, uint32_t) {
    const uint64_t first = static_cast<uint64_t>(begin) * kHugeBytes;
    std::memset(data + first, 0, std::min(bytes, static_cast<uint64_t>(end) * kHugeBytes) - first);
  };
  if (pool != nullptr) pool->parallel_for(static_cast<int64_t>((bytes + kHugeBytes - 1) / kHugeBytes), 1, clear);
  // A refusal may be one of this way alone: the driver's own memory is tried then.
  DriverCode code = kDone;
  Status pinned = parts_->run("pinning memory of the host:", bytes,
                              [&](const Driver& d) { return code = d.host_register(data, bytes, kHostAllCards); });
  if (!pinned) {
    ::munmap(mapped, mapped_bytes);
    if (code == kInvalidValue || code == kNotSupported) return false;
    return fail(std::move(pinned.error()));
  }
  memory.data_ = data;
  memory.mapped_ = static_cast<std::byte*>(mapped);
  memory.mapped_bytes_ = mapped_bytes;
  return true;
}

Result<PinnedMemory> Card::allocate_pinned(uint64_t bytes, ThreadPool* pool) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  bool huge = false;
  if (bytes >= kHugeBytes) {
    BATON_TRY(huge, pin_huge(bytes, pool, memory));
  }
  if (!huge) {
    void* data = nullptr;
    BATON_OK(parts_->run("pinning memory of the host:", bytes,
                         [&](const Driver& d) { return d.host_allocate(&data, bytes, kHostAllCards); }));
    memory.data_ = static_cast<std::byte*>(data);
  }
  memory.card_ = this;
  memory.bytes_ = bytes;
  held_pinned_ += bytes;
  card_counts().pinned_bytes += bytes;
  return memory;
}

Result<Stream> Card::stream() {
  Stream stream;
  BATON_OK(parts_->run("making a stream", 0,
                       [&](const Driver& d) { return d.stream_create(&stream.handle_, kStreamApart); }));
  stream.card_ = this;
  ++card_counts().streams;
  return stream;
}

Result<Event> Card::event(bool timed) {
  Event event;
  const unsigned flags = timed ? 0 : kEventUntimed;
  BATON_OK(parts_->run("making an event", 0, [&](const Driver& d) { return d.event_create(&event.handle_, flags); }));
  event.card_ = this;
  ++card_counts().events;
  return event;
}

Result<uint32_t> Card::blocks_of(std::string_view kernel, uint32_t threads, uint32_t shared_bytes) {
  BATON_TRY(const Handle function, parts_->function(kernel, shared_bytes));
  int blocks = 0;
  BATON_OK(parts_->run("asking how many blocks run at once", 0, [&](const Driver& d) {
    return d.function_blocks(&blocks, function, static_cast<int>(threads), shared_bytes);
  }));
  return static_cast<uint32_t>(std::max(blocks, 0));
}

Result<bool> Card::reach(const Card& other) {
  if (&other == this || other.facts_.index == facts_.index) return true;
  int can = 0;
  BATON_OK(parts_->run(fmt::format("reaching card {}", other.facts_.index), 0, [&](const Driver& d) {
    const DriverCode code = d.device_can_reach(&can, parts_->device, other.parts_->device);
    if (code != kDone || can == 0) return code;
    const DriverCode reached = d.context_reach(other.parts_->context, 0);
    return reached == kPeerAlready ? DriverCode{kDone} : reached;
  }));
  return can != 0;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  if (card_ == nullptr) return;
  card_->parts_->drop([&](const Driver& d) { return d.memory_free(address_); });
  card_->held_ -= bytes_;
  card_counts().device_bytes -= bytes_;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}
PinnedMemory::~PinnedMemory() {
  if (card_ == nullptr) return;
  card_->parts_->drop(
      [&](const Driver& d) { return mapped_ != nullptr ? d.host_unregister(data_) : d.host_free(data_); });
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  card_->held_pinned_ -= bytes_;
  card_counts().pinned_bytes -= bytes_;
}

}  // namespace baton::cuda
