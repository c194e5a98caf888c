// See worker.h.
#include "baton/http/worker.h"

#include <fmt/format.h>

#include "baton/base/random.h"

namespace baton::http {

void Shared::begin_exchange() {
  const std::lock_guard lock(mutex);
  ++exchanges;
}

void Shared::end_exchange() {
  const std::lock_guard lock(mutex);
  if (--exchanges == 0) fewer.notify_all();
}

std::string Shared::new_id() {
  const uint64_t number = ids++;
  return fmt::format("{:016x}{:08x}", Random(id_seed + number).next(), number);
}

}  // namespace baton::http
