// Faults on demand: places where what seldom fails can be made to fail, so that tests see what follows. They are there
// in builds with -DBATON_FAULTS=ON alone (the debug and sanitizer presets); elsewhere BATON_FAULT is `false` and
// nothing is left of them.
//
// Armed by a test, or by the environment: BATON_FAULT=step.fails:every=16,move.write:once. Names are those of
// fault_list.inc; `once` is `at=1`. What the variable says wrongly is a bug of who set it (checked).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "baton/base/status.h"

namespace baton {

enum class FaultPoint : uint8_t {
#define BATON_FAULT_POINT(point, name) point,
#include "baton/base/fault_list.inc"
#undef BATON_FAULT_POINT
};

// When a point fires, counted from its arming; both zero: never.
struct FaultPlan {
  uint64_t at = 0;     // the time it is reached, once
  uint64_t every = 0;  // each so manyth time
};

std::span<const FaultPoint> fault_points();
std::string_view to_string(FaultPoint point);
// As in the variable. kInvalidInput names what is wrong; then nothing was armed.
Status arm_faults(std::string_view text);
void arm_fault(FaultPoint point, FaultPlan plan);
void disarm_faults();
uint64_t faults_reached(FaultPoint point);
uint64_t faults_fired(FaultPoint point);

// Any thread; allocates nothing. For BATON_FAULT.
bool fault_fires(FaultPoint point);

}  // namespace baton

#if defined(BATON_FAULTS)
#define BATON_FAULT(point) (::baton::fault_fires(::baton::FaultPoint::point))
#else
#define BATON_FAULT(point) false
#endif
